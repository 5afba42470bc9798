"""Kills of workers that train together, and of who started them: restarted at once, and ending as the unbroken run."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from .lab import EVERY, PARTS, STEPS, Lab, until
from .test_kills import NUMBER, SEED
from .test_supervised import lay, leaves

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")

#: Layouts of two workers, one after the other.
LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"shard": 3},
    {"shard": 1},
    {"pipeline": 2},
    {"tensor": 2},
)
#: Where a worker is killed: a function that it calls in a step, and whether as it begins or as it ends.
POINTS = (
    ("nlpkernel_torchdist.group:TorchGroup.run_window", "call"),
    ("nlpkernel_torchdist.group:TorchGroup.run_window", "return"),
    ("nlpkernel_torchdist.group:TorchGroup.update", "return"),
    ("nlpkernel_torchdist.exchange:merge", "call"),
    ("nlpkernel_store.capture:capture", "call"),
    ("nlpkernel_store.commit:Committer._write_part", "return"),
    ("nlpkernel_store.parts:Gathering.wait", "call"),
    ("nlpkernel_store.catalog:Catalog.commit", "return"),
)
_ONLY = {"nlpkernel_store.parts:Gathering.wait": 1, "nlpkernel_store.catalog:Catalog.commit": 0}


def sections(layout: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": {"layers": 2},
        "communicator": {"use": "torchdist", "workers": 2, **layout},
        "monitor": [{"use": "jsonl"}, {"use": f"{PARTS / 'witness.py'}:Onlooker"}],
    }


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Lab]:
    """The run of a layout to which nothing happened."""
    made: dict[int, Lab] = {}

    def get(number: int) -> Lab:
        if number not in made:
            lab = Lab(tmp_path_factory.mktemp(f"layout-{number}"), **sections(LAYOUTS[number]))
            lab.cold("run", "plan.json", "-q").end()
            made[number] = lab
        return made[number]

    return get


def kill(draw: random.Random, least: int) -> tuple[int, dict[str, Any]]:
    """Which worker is killed, and where, in a step after `least`."""
    function, event = draw.choice(POINTS)
    rank = _ONLY.get(function, draw.randrange(2))
    step = draw.randint(least, least + 5)
    return rank, {"what": "call", "function": function, "step": step, "event": event}


def assert_as_unbroken(made: Lab, whole: Lab) -> None:
    for rank in ("-0", "-1"):
        told, wanted = (each.told(each.folder / f"witness{rank}") for each in (made, whole))
        assert told.numbers == wanted.numbers
    assert [info.step for info in made.versions()] == [info.step for info in whole.versions()]
    assert leaves(made) == leaves(whole)
    assert (
        made.remains() - {"runs/small/logs/rank-0.stack", "runs/small/logs/rank-1.stack"} == whole.remains()
    )


@pytest.mark.parametrize("number", range(max(2, NUMBER // 25)))
def test_workers_are_killed_twice_and_come_back_at_the_first_restart(
    tmp_path: Path, unbroken: Callable[[int], Lab], number: int
) -> None:
    layout = number % len(LAYOUTS)
    whole, made = unbroken(layout), Lab(tmp_path, **sections(LAYOUTS[layout]))
    draw = random.Random(f"{SEED} workers {number}")
    kills = [kill(draw, least) for least in (4, 13)]
    for rank in (0, 1):
        traps: list[Sequence[dict[str, Any]]] = [[trap] if who == rank else [] for who, trap in kills]
        lay(made, [*traps, []], f"-{rank}")
    try:
        process = made.cold(
            "run", "plan.json", "-q", "--restarts", "2", FAULTS_TRAPS=str(made.folder / "traps")
        )
        told = process.end()
        for who, _ in kills:
            assert f"worker-{who} was killed by SIGKILL" in told
        assert told.count("was killed by SIGKILL") == 2, f"{kills}: {told}"
        began = made.told(made.folder / "witness-0").began
        assert len(began) == 3
        assert began == sorted(began)
        assert_as_unbroken(made, whole)
    finally:
        made.close()


@pytest.mark.parametrize("layout", [{}, *([{"shard": 2}] if NUMBER > 50 else [])], ids=str)
def test_case_r8_workers_that_are_killed_inside_a_window_do_it_again(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    """24 micro-batches in windows of 4, two on each worker; killed at the 3rd, the 10th and the 17th of them."""
    changes = {
        **sections(layout),
        "train": {"steps": 6, "batch": 8, "micro": 2, "log": {"every": 1}, "evaluate": {"every": 6}},
        "checkpoint": {"use": "store", "every": 1, "keep": {"last": 9, "best": 0}},
    }
    forward = {"what": "call", "function": "nlpkernel.engine.group:run_microbatch", "event": "call"}
    # Micro-batches 1 and 3 of a window are the first worker's.
    kills = [(0, {**forward, "step": 1, "turn": 2}), (1, {**forward, "step": 3}), (0, {**forward, "step": 5})]
    labs = [Lab(tmp_path / name, **changes) for name in ("whole", "made")]
    whole, made = labs
    for rank in (0, 1):
        lay(made, [*([trap] if who == rank else [] for who, trap in kills), []], f"-{rank}")
    try:
        whole.cold("run", "plan.json", "-q").end()
        told = made.cold(
            "run", "plan.json", "-q", "--restarts", "3", FAULTS_TRAPS=str(made.folder / "traps")
        ).end()
        assert told.count("was killed by SIGKILL") == 3, told
        first, second, third, fourth = made.told(made.folder / "witness-0").began
        # The version before may not have been whole yet.
        assert (first, second) == (0, 0)
        assert third in (1, 2)
        assert fourth in (third, 3, 4)
        for rank in ("-0", "-1"):
            numbers = [each.told(each.folder / f"witness{rank}").numbers for each in labs]
            assert numbers[0] == numbers[1]
            assert {step for kind, step in numbers[0] if kind == "step"} == set(range(1, 7))
        assert leaves(made) == leaves(whole)
    finally:
        for each in labs:
            each.close()


@pytest.mark.parametrize("number", range(max(1, NUMBER // 50)))
def test_kill_9_of_the_launcher_leaves_no_worker_and_another_number_goes_on(
    tmp_path: Path, number: int
) -> None:
    made = Lab(tmp_path, **sections(LAYOUTS[number % 3]))
    draw = random.Random(f"{SEED} launcher {number}")
    step = draw.randint(EVERY + 2, STEPS - 4)
    for rank in (0, 1):
        hold = {"what": "hold", "step": step, "file": str(made.folder / "never")}
        lay(made, [[hold], []], f"-{rank}")
    try:
        process = made.cold("run", "plan.json", "-q", FAULTS_TRAPS=str(made.folder / "traps"))
        assert until(lambda: made.told(made.folder / "witness-1").last == step - 1)
        process.kill()
        process.end(-signal.SIGKILL)
        workers = draw.choice([1, 3])
        change = f"communicator.workers={workers}"
        told = made.cold("resume", "runs/small", "--set", change).end()
        assert f"steps     {STEPS} of {STEPS}" in told
    finally:
        made.close()


def test_a_worker_that_raises_is_the_news_and_not_the_exchange_that_failed_for_it(tmp_path: Path) -> None:
    raising = tmp_path / "raising.py"
    raising.write_text(
        "from nlpkernel import component, hookimpl\n"
        "from nlpkernel_transformer.component import Gpt\n\n"
        "@component\n"
        "class Raising(Gpt):\n"
        '    """Its forward fails in step 5 on worker 1."""\n\n'
        "    @hookimpl\n"
        "    def create_model(self, run, info):\n"
        "        model = super().create_model(info)\n"
        "        def check(*_):\n"
        "            if run.rank == 1 and run.progress.step == 4:\n"
        '                raise ValueError("no such token")\n'
        "        model.module.register_forward_pre_hook(check)\n"
        "        return model\n"
    )
    made = Lab(
        tmp_path / "lab",
        **{**sections({}), "model": {"use": f"{raising}:Raising", "layers": 1, "width": 16, "heads": 2}},
    )
    try:
        process = made.cold("run", "plan.json", "-q")
        told = process.end(None)
        assert process.code not in (0, None)
        assert "no such token" in told
        assert "worker-1 ended with exit code" in told
        assert "an exchange between workers failed" not in told
    finally:
        made.close()
