"""Two processes that want the same run at once: one gets it, the other says who has it, and nothing is harmed."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable

import pytest

from .lab import Lab, differences, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")


def at_once(lab: Lab, words: list[str], hold: int) -> None:
    """Two processes of the same command; the one that gets the run waits before a step until the other has ended."""
    go = lab.folder / "go"
    go.unlink(missing_ok=True)
    trap = {"what": "hold", "step": hold, "file": str(go)}
    both = [lab.start(*words, "-q", traps=[trap]) for _ in range(2)]
    there = go.with_name("go.reached")
    assert until(lambda: any(not each.running() for each in both))
    (loser,) = (each for each in both if not each.running())
    (winner,) = (each for each in both if each is not loser)
    told = loser.end(2)
    if words[0] == "run" and "NK301" in told:
        assert told.startswith(
            "error: NK301 the run folder 'runs/small' exists; `nlpkernel resume runs/small` continues"
        )
    else:
        # It may ask in the moment before the other one has written down who it is.
        assert re.fullmatch(
            rf"error: NK311 the run 'runs/small' is in use( by process {winner.pid} on \S+)?; wait for it, or end that "
            r"process\n",
            told,
        )
    lab.reached(winner, go)
    go.touch()
    there.unlink()
    winner.end()


@pytest.mark.parametrize("number", range(3))
def test_two_processes_that_start_a_run_at_once(
    lab: Callable[..., Lab], whole: Lab, tidy: set[str], number: int
) -> None:
    made = lab()
    at_once(made, ["run", "plan.json"], 2)
    assert made.told().began == [0]
    assert made.told().numbers == whole.told().numbers
    assert differences(made.load(), whole.load()) == []
    assert made.remains() == tidy


def test_two_processes_that_resume_a_run_at_once_again_and_again(lab: Callable[..., Lab], whole: Lab) -> None:
    made = lab()
    made.do("run", "plan.json", "-q")
    for _ in range(3):
        at_once(made, ["resume", "runs/small", "--from", "21"], 23)
    assert made.told().began == [0, 21, 21, 21]
    assert made.told().numbers == whole.told().numbers
    assert differences(made.load(), whole.load()) == []


def test_a_run_in_use_is_neither_replaced_nor_rolled_back_nor_pruned(
    lab: Callable[..., Lab], whole: Lab, tidy: set[str]
) -> None:
    made = lab()
    with made.held(20, "run", "plan.json") as process:
        for words in (
            ["run", "plan.json", "--overwrite"],
            ["resume", "runs/small"],
            ["rollback", "runs/small", "12"],
            ["versions", "prune", "runs/small", "12"],
            ["versions", "import", "runs/small", str(made.folder)],
        ):
            told = made.do(*words, code=2)
            assert f"NK311 the run 'runs/small' is in use by process {process.pid} on " in told, words
        # Who only looks is let in.
        made.do("versions", "runs/small")
        made.do("versions", "verify", "runs/small")
        shutil.copytree(made.run, made.folder / "copy")
    assert differences(made.load(), whole.load()) == []
    assert made.remains() - {name for name in made.remains() if "/checks" in name} == tidy
