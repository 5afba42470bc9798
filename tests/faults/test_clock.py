"""A clock that is set, forwards and backwards, while a run goes on and between its processes."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable

import pytest

from .lab import PLAN, STEPS, Lab, differences

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")

_DAY = 86400


def test_a_clock_that_is_set_changes_neither_order_nor_rotation_nor_budget_nor_the_time_left(
    lab: Callable[..., Lab], whole: Lab
) -> None:
    budget = {"use": "budget", "time": "30m"}
    made = lab(
        train={"policy": [budget]},
        checkpoint={"asynchronous": False},
        monitor=[*PLAN["monitor"], {"use": "console"}],
    )
    # Versions are made in an order that their times deny.
    there = {4: 365 * _DAY, 10: -730 * _DAY, 16: _DAY}
    told = made.do("run", "plan.json", code=-signal.SIGKILL, traps=[jumps(there), kill(20)])
    back = {19: -600 * _DAY, 23: 900 * _DAY}
    told += made.do("resume", "runs/small", traps=[jumps(back)])
    assert made.told().began == [0, 18]
    assert made.told().numbers == whole.told().numbers
    assert [info.step for info in made.versions()] == [12, 21, 24]
    created = [info.created for info in made.versions()]
    assert created != sorted(created), "the clock was not set"
    assert differences(made.load(), whole.load()) == []
    report = json.loads((made.run / "report.json").read_text())
    assert (report["status"], report["progress"]["step"]) == ("finished", STEPS)
    assert 0 < report["seconds"] < 600
    left = re.findall(r"left (\S+)", told)
    assert len(left) > 3
    assert all(re.fullmatch(r"[\d.]+s", each) for each in left), f"a run of seconds: {left}"


def jumps(by_step: dict[int, int]) -> dict[str, object]:
    return {"what": "clock", "jumps": {str(step): seconds for step, seconds in by_step.items()}}


def kill(step: int) -> dict[str, object]:
    return {"what": "call", "function": "nlpkernel.bus:Bus.publish", "step": step}
