"""Case K1 in whole runs: killed at seeded points, taken up, killed again; at the end nothing of it shows.

FAULTS_KILLS is the number of kills (30), FAULTS_SEED draws them (1). A failure names the command that repeats it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from .lab import STEPS, Lab, Told, differences
from .points import Kill, Record, missing, place, wishes

NUMBER = int(os.environ.get("FAULTS_KILLS", "30"))
SEED = int(os.environ.get("FAULTS_SEED", "1"))
#: Kills of one test.
_EACH = 5
_TESTS = -(-NUMBER // _EACH)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")


class Chain:
    """A run that is killed and taken up again, and what must be true after each kill and at the end."""

    def __init__(self, lab: Lab, whole: Lab, tidy: set[str], records: tuple[Record, Record]) -> None:
        self.lab, self.whole, self.tidy, self.records = lab, whole, tidy, records
        self.kills: list[dict[str, Any]] = []
        # The step after which the next process begins, as the versions say, and how many have begun.
        self.start = self.began = 0
        self.words: tuple[str, ...] = ("run", "plan.json")

    def kill(self, kind: str, phase: str, draw: random.Random) -> bool:
        """Let the run go on and kill it, as wished for; tells whether that came, or its end before."""
        record = self.records[self.words[0] == "resume"]
        kill = place(kind, phase, record, self.start, draw)
        if kill is None and not self.start:
            # Nothing of the kind comes before there is a version to take up.
            assert self.kill("phase", "rotation", draw)
            return self.kill(kind, phase, draw)
        traps = [kill.trap] if kill is not None and kill.trap is not None else []
        process = self.lab.start(*self.words, "-q", traps=traps)
        if kill is not None and kill.trap is None:
            time.sleep(kill.seconds)
            if process.running():
                process.kill()
        process.end(None)
        if process.code == 0:
            self.ended()
            return False
        numbers = (-signal.SIGKILL, -signal.SIGXFSZ)
        assert process.code in numbers, f"{kill}: it failed by itself with {process.code}: {process.told}"
        assert kill is not None
        self.killed(kill)
        return True

    def killed(self, kill: Kill) -> None:
        """Whatever is listed is whole, and nothing that was told to be saved is lost."""
        told = self._told()
        listed = self.lab.versions()
        newest = listed[-1].step if listed else 0
        assert newest >= max(told.steps("saved"), default=0), f"{kill}: a version that was told of is lost"
        assert newest >= self.start, f"{kill}: the run had taken up step {self.start}"
        self.kills.append(
            {"kind": kill.kind, "where": kill.where, "from": newest, "lost": told.last - newest}
        )
        self.start = newest
        self.words = ("resume", "runs/small") if listed else ("run", "plan.json", "--overwrite")

    def ended(self) -> None:
        """The run is what the unbroken one is, in every number and bit, and nothing else is left of it."""
        lab, whole = self.lab, self.whole
        told, wanted = self._told(), whole.told()
        assert told.numbers == wanted.numbers
        listed = lab.versions()
        assert listed[-1].step == STEPS
        assert differences(lab.load(), whole.load()) == []
        assert lab.report() == whole.report()
        # A process that has nothing to do saves nothing, and nothing is removed without a save: what another one that
        # was killed after the last commit had yet to remove stays.
        idle = told.began[-1] == STEPS
        assert {info.step for info in listed} - ({15, 18} if idle else set()) == {12, 21, 24}
        assert lab.remains() == self.tidy
        # A write that is cut short leaves half a line, and the next one begins anew.
        lines = (lab.run / "events.jsonl").read_text().splitlines()
        assert sum(not line.endswith("}") for line in lines) <= sum(
            each["kind"] == "torn" for each in self.kills
        )

    def _told(self) -> Told:
        """What was told so far; the last process went on from the newest version, if it came so far."""
        told = self.lab.told()
        assert told.began[self.began :] in ([], [self.start])
        self.began = len(told.began)
        return told


@pytest.mark.parametrize("number", range(_TESTS))
def test_case_k1_killed_at_seeded_points_a_run_ends_as_the_unbroken_one(
    number: int,
    lab: Callable[..., Lab],
    whole: Lab,
    tidy: set[str],
    records: tuple[Record, Record],
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    mine = wishes(SEED, NUMBER)[number::_TESTS]
    draw = random.Random(f"{SEED} {number}")
    done: list[dict[str, Any]] = []
    attempts = 0
    chain = None
    try:
        while mine:
            chain = chain or Chain(lab(f"run-{attempts}"), whole, tidy, records)
            attempts += 1
            assert attempts < 10 * _EACH, f"it is not killed: {mine}"
            if chain.kill(*mine[0], draw):
                mine.pop(0)
            else:
                done += chain.kills
                chain = None
        if chain is not None:
            process = chain.lab.start(*chain.words, "-q")
            process.end()
            chain.ended()
            done += chain.kills
    except AssertionError as error:
        again = f"FAULTS_SEED={SEED} FAULTS_KILLS={NUMBER} python -m pytest '{request.node.nodeid}'"
        raise AssertionError(f"{error}\nagain: {again}\nkills so far: {chain and chain.kills}") from error
    record_property("kills", done)


def test_every_phase_of_a_run_has_a_point(records: tuple[Record, Record]) -> None:
    assert missing(records) == []


@pytest.mark.parametrize("number", range(max(3, NUMBER // 20)))
def test_case_k1_killed_while_it_replaces_another_run_the_next_one_begins_and_nothing_else_is_left(
    number: int, lab: Callable[..., Lab], whole: Lab, tidy: set[str], records: tuple[Record, Record]
) -> None:
    made = lab()
    made.do("run", "plan.json", "-q")
    made.witness.unlink()
    draw = random.Random(f"{SEED} replaced {number}")
    trap = {"what": "disk", "turn": draw.randint(1, 2 * records[0].changes[0])}
    made.do("run", "plan.json", "-q", "--overwrite", code=-signal.SIGKILL, traps=[trap])
    made.do("run", "plan.json", "-q", "--overwrite")
    assert made.told().numbers == whole.told().numbers, f"{trap}"
    assert differences(made.load(), whole.load()) == []
    assert made.remains() == tidy, f"{trap}"


@pytest.mark.parametrize("what", ["disk", "torn"])
def test_case_k1_killed_at_each_change_of_the_disk_while_it_is_taken_up_a_run_goes_on_all_the_same(
    what: str, lab: Callable[..., Lab], whole: Lab, tidy: set[str], records: tuple[Record, Record]
) -> None:
    """The files of a run that are written anew each time are the only ones that a process has to lose."""
    made = lab()
    made.do("run", "plan.json", "-q")
    record = records[1]
    number = (record.changes if what == "disk" else record.opened)[0]
    assert number > 4
    for turn in range(1, number + 1):
        trap = {"what": what, "turn": turn, "bytes": 7}
        code = -signal.SIGKILL if what == "disk" else -signal.SIGXFSZ
        made.do("resume", "runs/small", "-q", "--from", "21", code=code, traps=[trap])
    made.do("resume", "runs/small", "-q", "--from", "21")
    assert made.told().numbers == whole.told().numbers
    assert differences(made.load(), whole.load()) == []
    assert made.remains() == tidy
