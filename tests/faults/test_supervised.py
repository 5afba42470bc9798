"""Kills of processes that were started as a user starts them: alone, under supervision, and of several workers."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from .lab import STEPS, WITNESS, Lab, Started, differences, until
from .points import Record, place
from .test_kills import NUMBER, SEED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")

_RANKS = Path(__file__).parents[2] / "kernel/tests/supervise/parts/ranks.py"
#: Phases that come again and again, once the run is open.
_PHASES = ("forward", "backward", "update", "evaluation", "snapshot", "writing a pack", "commit", "rotation")


def lay(lab: Lab, traps: Sequence[Sequence[dict[str, Any]]], rank: str = "") -> None:
    """The first process gets the first traps, the one that takes its place the next."""
    (lab.folder / f"traps{rank}").write_text("".join(f"{json.dumps(list(each))}\n" for each in traps))


def cold(lab: Lab, *words: str, traps: Sequence[Sequence[dict[str, Any]]]) -> Started:
    """Start a command as a user does."""
    lay(lab, traps)
    return lab.cold(*words, FAULTS_TRAPS=str(lab.folder / "traps"))


def drawn(record: Record, draw: random.Random, starts: Sequence[int]) -> list[list[dict[str, Any]]]:
    """A kill for each process."""
    found = []
    for start in starts:
        kill = None
        while kill is None:
            kill = place("phase", draw.choice(_PHASES), record, start, draw)
        assert kill.trap is not None
        found.append([kill.trap])
    return found


@pytest.mark.parametrize("number", range(max(1, NUMBER // 50)))
def test_case_k1_a_run_under_supervision_is_killed_twice_and_ends_as_the_unbroken_one(
    lab: Callable[..., Lab], whole: Lab, tidy: set[str], records: tuple[Record, Record], number: int
) -> None:
    made = lab()
    kills = drawn(records[0], random.Random(f"{SEED} supervised {number}"), (5, 12))
    process = cold(made, "run", "plan.json", "-q", "--restarts", "2", traps=kills)
    told = process.end()
    assert told.count("worker-0 was killed by SIGKILL") == 2, f"{kills}: {told}"
    assert len(made.told().began) == 3
    assert made.told().numbers == whole.told().numbers
    assert [line.partition(":")[0] for line in differences(made.load(), whole.load())] == ["run/counts"]
    assert made.remains() - {"runs/small/logs/run.log"} == tidy


@pytest.mark.parametrize("number", range(max(1, NUMBER // 50)))
def test_case_p4_kill_9_of_a_supervisor_leaves_no_process_and_the_run_goes_on_exactly(
    lab: Callable[..., Lab], whole: Lab, tidy: set[str], number: int
) -> None:
    made = lab()
    step = random.Random(f"{SEED} supervisor {number}").randint(4, 20)
    hold = {"what": "hold", "step": step, "file": str(made.folder / "never")}
    process = cold(made, "run", "plan.json", "-q", "--restarts", "1", traps=[[hold]])
    assert until(lambda: made.told().last == step - 1)
    process.kill()
    process.end(-signal.SIGKILL)
    listed = made.versions()
    assert [info.step for info in listed][-1:] >= made.told().steps("saved")[-1:]
    if listed:
        made.do("resume", "runs/small", "-q")
    else:
        made.do("run", "plan.json", "-q", "--overwrite")
    assert made.told().numbers == whole.told().numbers
    assert differences(made.load(), whole.load()) == []
    assert made.remains() - {f"runs/small/logs/{name}" for name in ("run.log", "rank-0.stack")} == tidy


def test_case_k1_a_run_as_a_user_starts_it_is_killed_and_ends_as_the_unbroken_one(
    lab: Callable[..., Lab], whole: Lab, tidy: set[str], records: tuple[Record, Record]
) -> None:
    made = lab()
    kills = drawn(records[0], random.Random(f"{SEED} cold"), (8,))
    cold(made, "run", "plan.json", traps=kills).end(-signal.SIGKILL)
    told = made.cold("resume", "runs/latest").end()
    assert f"steps     {STEPS} of {STEPS}" in told
    assert len(made.told().began) == 2
    assert made.told().numbers == whole.told().numbers
    assert differences(made.load(), whole.load()) == []
    assert made.remains() == tidy


#: Two workers of tiny components.
_TWO: dict[str, Any] = {
    "data": {"use": "tiny"},
    "model": {"use": "tiny", "hidden": 8, "dropout": 0.5},
    # The optimizers of torch import its compiler, which costs each process seconds.
    "optimizer": {"use": f"{_RANKS}:Light"},
    "communicator": {"use": f"{_RANKS}:Ranks", "workers": 2},
    "monitor": [{"use": WITNESS}],
}


def test_case_k1_one_of_two_workers_is_killed_in_a_save_and_then_the_other_after_its_commit(
    lab: Callable[..., Lab],
) -> None:
    create = {"what": "call", "function": "nlpkernel_store.commit:Committer._create", "step": 6}
    commit = {
        "what": "call",
        "function": "nlpkernel_store.catalog:Catalog.commit",
        "step": 9,
        "event": "return",
    }
    kills = {"whole": ([[]], [[]]), "broken": ([[], [commit], []], [[create], [], []])}
    labs = {}
    for name, ranks in kills.items():
        made = labs[name] = lab(name, **_TWO)
        for rank, traps in enumerate(ranks):
            lay(made, traps, f"-{rank}")
        process = made.cold(
            "run", "plan.json", "-q", "--restarts", "2", FAULTS_TRAPS=str(made.folder / "traps")
        )
        told = process.end()
        assert told.count("was killed by SIGKILL") == 2 * (name == "broken"), told
    whole, broken = labs["whole"], labs["broken"]
    for rank in ("-0", "-1"):
        told, wanted = (each.told(each.folder / f"witness{rank}") for each in (broken, whole))
        assert told.numbers == wanted.numbers
        assert len(told.began) == 3
        assert told.began == sorted(told.began)
    assert [info.step for info in broken.versions()] == [info.step for info in whole.versions()]
    assert leaves(broken) == leaves(whole)
    assert broken.remains() == whole.remains()


def leaves(lab: Lab) -> dict[tuple[int, str], object]:
    """Every leaf of the newest version, of each worker: the digest of one in a pack, the bytes of another."""
    with lab.store() as store:
        _, parts = store.catalog.read(store.catalog.head())
    found = {}
    for rank, part in enumerate(parts):
        for leaf in part.leaves:
            if leaf.path != "run/counts":
                found[rank, leaf.path] = getattr(leaf.content, "digest", leaf.content)
    assert {rank for rank, _ in found} == {0, 1}
    return found
