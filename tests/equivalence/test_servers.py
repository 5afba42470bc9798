"""Guarantee 4 for the parameter server: another number of workers and servers, the same loss curve."""

from __future__ import annotations

import json

import pytest
import torch

from .test_layouts import assert_same_curve
from .test_resume import version_at

FRAMES = {"communicator": {"payload": "frames", "chunk": 65536}}
#: Name to workers, servers and changes of the plan.
LAYOUTS = {
    "1 worker, 1 server": (1, 1, {}),
    "2 workers, 1 server": (2, 1, {}),
    "2 workers, 2 servers": (2, 2, {}),
    "2 workers, 2 servers, frames": (2, 2, FRAMES),
    "2 workers, 1 server, ragged": (2, 1, {"train": {"micro": 3}}),
    "4 workers, 1 server": (4, 1, {}),
    "4 workers, 2 servers, some without work": (4, 2, {"train": {"micro": 4}}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_servers_give_the_curve_of_one_process(lab, layout):
    workers, servers, changes = LAYOUTS[layout]
    assert_same_curve(lab.run(layout, workers, servers=servers, **changes), lab.run("one"))


AT = 20


@pytest.mark.parametrize(("first", "second"), [(None, 2), (2, None), (1, 2)])
def test_a_version_is_taken_up_by_another_number_of_servers_and_by_none(lab, first, second):
    reference, name = lab.run("one"), f"{first or 0} to {second or 0} servers"
    of = "one" if first is None else f"2 workers, {first} server{'s' * (first > 1)}"
    before = reference if first is None else lab.run(of, 2, servers=first)
    workers, servers = (1, 0) if second is None else (2, second)
    after = lab.run(name, workers, servers=servers, of=of, resume=version_at(lab, of, AT))
    again = after.losses[len(before.losses) :]
    worst = max(abs(a - b) / abs(b) for a, b in zip(again, reference.losses[AT:], strict=True))
    assert worst <= 2e-6, f"losses differ by {worst:.1e}"
    gap = max(float((after.weights[name] - each).abs().max()) for name, each in reference.weights.items())
    assert gap <= 1e-4


@pytest.mark.parametrize("servers", [1, 2])
def test_with_dropout_it_repeats_itself_and_resumes_bit_for_bit(lab, servers):
    changes = {"model": {"dropout": 0.2}}
    ran, again = (lab.run(f"{servers} dropout {take}", 2, servers=servers, **changes) for take in ("a", "b"))
    assert ran.losses == again.losses
    name = f"{servers} dropout a"
    resumed = lab.run(
        f"{name}, resumed", 2, servers=servers, of=name, resume=version_at(lab, name, AT), **changes
    )
    assert resumed.losses[len(ran.losses) :] == ran.losses[AT:]
    assert all(torch.equal(resumed.weights[name], each) for name, each in ran.weights.items())


INT8 = {"use": "int8", "block": 64}
#: Name to settings of the communicator.
SMALLER = {
    "fp16 up": {"compressor": {"use": "fp16"}},
    "int8 up": {"compressor": INT8},
    "bf16 down": {"down": {"use": "bf16"}},
    "bf16 up, int8 down": {"compressor": {"use": "bf16"}, "down": INT8},
}


@pytest.mark.parametrize("name", SMALLER)
def test_with_fewer_bytes_it_learns_as_well(lab, name):
    ran = lab.run(name, 2, servers=2, communicator=SMALLER[name])
    plain = lab.run("one")
    assert ran.losses != plain.losses
    assert ran.losses[-1] == pytest.approx(plain.losses[-1], rel=5e-3)
    events = map(json.loads, (ran.folder / "events.jsonl").read_text().splitlines())
    said = [event["message"] for event in events if "bytes a step instead of" in event.get("message", "")]
    for direction, verb in (("compressor", "sends"), ("down", "gets")):
        use = SMALLER[name].get(direction, {"use": "-"})["use"]
        found = [each for each in said if each.startswith(f"compressor {use}: a worker {verb} ")]
        assert len(found) == (direction in SMALLER[name])
    assert len(said) == len(SMALLER[name])


def test_item_30_with_topk_it_resumes_bit_for_bit_with_what_its_workers_owe_and_have(lab):
    changes = {
        "model": {"dropout": 0.2},
        "communicator": {
            "compressor": {"use": "topk", "share": 0.2},
            "down": {"use": "bf16"},
            "chunk": 65536,
        },
    }
    ran = lab.run("topk", 2, servers=2, **changes)
    plain = lab.run("2 dropout a", 2, servers=2, model={"dropout": 0.2})
    assert ran.losses[-1] < 1.1 * plain.losses[-1]
    resumed = lab.run("topk, resumed", 2, servers=2, of="topk", resume=version_at(lab, "topk", AT), **changes)
    assert resumed.losses[len(ran.losses) :] == ran.losses[AT:]
    assert all(torch.equal(resumed.weights[key], each) for key, each in ran.weights.items())
