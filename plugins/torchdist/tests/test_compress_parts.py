"""What a communicator does with a compressor: beside the backward pass, counted, and measured before the first step."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nlpkernel import Plan
from nlpkernel.engine.breakeven import BreakEven
from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.communicator import Update
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel.state import Addends
from nlpkernel_sdk import tiny_values
from nlpkernel_torchdist.compress import one
from nlpkernel_torchdist.compress.component import Int8, PowerSgd, TopK
from nlpkernel_torchdist.compress.lanes import lane

from .parts.spawn import spawn

NAMES = ("fp16", "bf16", "int8", "topk", "powersgd")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return spawn("compress_cases.py", 2, tmp_path_factory.mktemp("compress"))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sent_is_what_was_announced(both, name):
    """The bytes of a step as they stand in the notice, against those of the tensors that were exchanged."""
    for found in (each[name] for each in both):
        assert found["buckets"] > 1
        # Of a sum among two, each sends half of it twice.
        assert found["sent"] == found["announced"] > 0
        assert found["plain"] == 4 * found["elements"]
    assert 0.01 < found["sent"] / found["plain"] < 0.51


@pytest.mark.parametrize("name", NAMES)
def test_buckets_travel_while_the_backward_pass_goes_on(both, name):
    assert all(each[name]["overlapped"] for each in both)


@pytest.mark.parametrize("name", NAMES)
def test_all_workers_get_the_same(both, name):
    assert all(each[name]["alike"] for each in both)
    assert both[0][name]["gradient"] > 0


def test_jobs_are_done_in_their_order_and_a_failure_is_raised_afterwards():
    beside, done, results = lane(torch.device("cpu")), [], torch.zeros(1)

    def failing():
        raise RuntimeError("Connection closed by peer")

    futures = [beside.put(lambda number=number: done.append(number), results) for number in range(20)]
    assert all(future.wait() is results for future in futures)
    beside.finish()
    assert done == list(range(20))
    beside.put(failing, results).wait()
    # The others would wait for a worker that sends no more.
    assert beside.put(lambda: done.append(-1), results).wait() is results
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        beside.finish()
    assert done == list(range(20))
    beside.close()
    (thread,) = [each for each in threading.enumerate() if each.name == "nlpkernel-compress"]
    thread.join(10)
    assert not thread.is_alive()


def found(**changes):
    values = {"name": "topk", "plain": 8e6, "sent": 0.8e6, "seconds": 0.01, "link": 1e9 / 8}
    return BreakEven(**{**values, **changes})


def test_a_compressor_pays_below_the_link_at_which_it_saves_as_much_as_it_costs():
    slow = found()
    assert slow.limit == 0.72e9
    assert slow.pays
    assert str(slow) == (
        "compressor topk: a worker sends 800,000 bytes a step instead of 8,000,000 (10.0%); to encode, add up and "
        "decode takes 10 ms more, so it pays on links below 5.8 Gbit/s, and this one carries 1 Gbit/s: it pays"
    )
    fast = found(link=1e9)
    assert not fast.pays
    assert str(fast).endswith("below 5.8 Gbit/s, and this one carries 8 Gbit/s: it slows the run down")


def test_a_compressor_that_takes_no_time_pays_on_any_link():
    assert found(seconds=-0.001).pays
    assert "on any link" in str(found(seconds=-0.001))
    assert not found(seconds=-0.001, sent=9e6).pays


def test_what_every_worker_sends_to_every_other_may_never_pay():
    many = found(name="int8", sent=9e6)
    assert not many.pays
    assert str(many).endswith("(112.5%): among so many workers it never pays")


@pytest.mark.parametrize("shard", [2, 3])
def test_it_does_not_go_with_shards_that_are_reduced_by_torch(shard):
    communicator = {"use": "torchdist", "shard": shard, "compressor": {"use": "bf16"}}
    with pytest.raises(
        PlanError, match=f"shard {shard} reduces gradients .* a compressor needs shard 0 or 1"
    ):
        Plan.of(tiny_values(communicator=communicator))


def test_settings_of_a_compressor_are_checked_where_they_stand(tmp_path: Path):
    path = tmp_path / "plan.toml"
    path.write_text('[communicator]\nuse = "torchdist"\ncompressor = { use = "topk", share = 1.5 }\n')
    with pytest.raises(PlanError, match=r"plan.toml:3:\d+: .*share"):
        Plan.load(path)


def test_check_counts_the_memory_of_what_is_owed():
    facts = Facts(gradient_bytes=100)
    assert TopK().estimate(facts).gradient_bytes == 300
    assert "has not sent yet" in PowerSgd().estimate(facts).notes[0]
    assert Int8().estimate(Facts()) == Facts()


@pytest.mark.parametrize("scale", [None, 1024.0])
def test_one_process_pays_what_is_owed_in_its_first_good_window(monkeypatch, scale):
    seen = []

    def update(self, work, number, sums):
        seen.append(work.named[0][1].grad.clone())
        bad = torch.tensor(float(len(seen) == 1))
        return Update(None if scale is None else not bad, torch.zeros(()), bad)

    monkeypatch.setattr(one.SingleGroup, "update", update)
    group = one.One(torch.device("cpu"))
    group.load_state({"residual/w": Addends({0: torch.ones(2), 1: torch.full((2,), 2.0)})})
    weight = torch.zeros(2)
    precision = SimpleNamespace(scaled=scale is not None, scale=lambda loss: loss * scale)
    work = SimpleNamespace(named=[("w", weight)], precision=precision)
    for _ in range(3):
        weight.grad = torch.zeros(2)
        owing = bool(group.state())
        group.update(work, 0, {})
    assert not owing
    assert [float(each[0]) / (scale or 1) for each in seen] == [3, 3, 0]
