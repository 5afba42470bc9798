"""`verify-resume` proves that a plan resumes bit for bit, and finds the component that does not."""

from __future__ import annotations

import json

import pytest

from nlpkernel.cli import main

#: A data component whose rows follow a count that it keeps to itself: a resumed run would see other rows.
FORGETFUL = '''
from nlpkernel import component, hookimpl
from nlpkernel_sdk.tiny import TinyData


@component
class Forgetful(TinyData):
    """Rows that move on with each window asked for, and no state."""

    @hookimpl
    def open_data(self, run):
        opened = super().open_data(run)
        windows, batches, self.asked = opened.window, opened.microbatch, 0

        def window(step):
            self.asked += 1
            return windows(self.asked - 1)

        opened.window = window
        opened.microbatch = lambda step, index: batches(self.asked - 1, index)
        return opened
'''


def written(bench, **sections):
    values = bench.values(
        **{
            "train": {"steps": 40, "batch": 8, "micro": 3, "log": {"every": 4}},
            "model": {"hidden": 8, "dropout": 0.5},
            "checkpoint": bench.use("Shelf"),
            **sections,
        }
    )
    path = bench.folder / "plan.json"
    path.write_text(json.dumps(values))
    return str(path)


def test_a_plan_is_run_killed_resumed_and_compared(bench, capsys, monkeypatch):
    monkeypatch.chdir(bench.folder)
    plan = written(bench)
    assert main(["verify-resume", plan, "--steps", "15", "--kills", "1", "--seed", "3", "--json"]) == 0
    proof = json.loads(capsys.readouterr().out)
    assert proof["holds"] is True
    assert proof["steps"] == 15
    assert [part["killed"] for part in proof["parts"]] == [True, False]
    assert proof["parts"][-1]["told"] == 15
    numbers = {row["what"]: row["number"] for row in proof["rows"]}
    assert numbers["losses and norms of steps"] >= 15
    assert {"state: model", "state: optimizer", "state: random", "state: run"} <= numbers.keys()
    assert sorted(path.name for path in bench.folder.iterdir()) == ["plan.json"], "both runs are removed"


def test_what_does_not_resume_is_named_with_the_first_number_that_differs(bench, capsys):
    (bench.folder / "own.py").write_text(FORGETFUL)
    plan = written(bench, data={"use": "./own.py:Forgetful"})
    kept = bench.folder / "kept"
    assert (
        main(["verify-resume", plan, "--steps", "10", "--kills", "1", "--seed", "5", "--keep", str(kept)])
        == 1
    )
    shown = capsys.readouterr()
    assert "NK508" in shown.err
    assert "losses and norms of steps: step" in shown.err
    assert "in the unbroken run" in shown.err
    rows = [line for line in shown.out.splitlines() if line.startswith("state: model")]
    assert rows[0].endswith("NO")
    assert "elements differ, by at most" in shown.out
    assert {"broken", "unbroken"} <= {path.name for path in kept.iterdir()}


def test_a_run_that_fails_by_itself_is_said_to(bench, capsys):
    plan = written(bench, data={"poisoned": [0]}, train={"steps": 9, "batch": 8})
    assert main(["verify-resume", plan, "--steps", "4"]) == 1
    error = capsys.readouterr().err
    assert "NK509 the unbroken run failed by itself" in error
    assert "is not finite" in error


def test_a_plan_without_a_checkpoint_has_nothing_to_prove(bench, capsys):
    values = bench.values(train={"steps": 4})
    (bench.folder / "plan.json").write_text(json.dumps(values))
    assert main(["verify-resume", str(bench.folder / "plan.json")]) == 2
    assert "NK304" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--steps", "1"), ("--kills", "0")])
def test_numbers_that_prove_nothing_are_refused(bench, capsys, option, value):
    assert main(["verify-resume", written(bench), option, value]) == 2
    assert "must be at least" in capsys.readouterr().err
