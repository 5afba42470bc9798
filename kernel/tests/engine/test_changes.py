"""A resumed run is refused where it would not compute what the unbroken run would have; what is allowed happens."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nlpkernel
from nlpkernel import runs
from nlpkernel.cli import main
from nlpkernel.errors import UsageError
from nlpkernel.events import Logged, Notice, StepCompleted
from nlpkernel.plan import Plan
from nlpkernel_sdk import tiny_values


def plan(bench, **sections: Any) -> dict[str, Any]:
    train = {"steps": 4, "batch": 8, **sections.pop("train", {})}
    return {"train": train, "checkpoint": bench.use("Shelf"), **sections}


@pytest.fixture
def began(bench):
    """A run of two steps out of four."""
    bench.run(bench.use("Script", at={"2": "STOP"}), **plan(bench))
    return bench


CHANGED: dict[str, tuple[dict[str, Any], str, str]] = {
    "seed": ({"train": {"seed": 2}}, "train.seed", "train.seed was 0 and is 2"),
    "batch": ({"train": {"batch": 4}}, "train.batch", "train.batch was 8 and is 4"),
    "micro": ({"train": {"micro": 4}}, "train.micro", "train.micro was not there and is 4"),
    "rate": ({"optimizer": {"lr": 0.5}}, "optimizer.lr", "optimizer.lr was 0.01 and is 0.5"),
    "threads": ({"train": {"threads": 2}}, "threads", "threads was 1 and is 2"),
}


@pytest.mark.parametrize(("changed", "name", "text"), CHANGED.values(), ids=list(CHANGED))
def test_case_p7_what_would_make_it_another_run_is_named_and_refused_and_can_be_allowed(
    began, changed, name, text
):
    refused = began.run(resume="newest", **plan(began, **changed))
    assert isinstance(refused.error, UsageError)
    problems = {problem.message: problem for problem in refused.error.problems}
    problem = problems[f"{text} since the version was made"]
    assert problem.code == "NK505"
    assert f"--allow {name}" in str(problem)
    names = [each.hint.split()[1] for each in refused.error.problems]
    allowed = began.run(resume="newest", allow=names, **plan(began, **changed))
    assert allowed.error is None
    assert allowed.report.progress.step == 4
    assert any(text in event.message for event in allowed.of(Notice))


def test_all_that_changed_is_named_in_one_go_and_a_section_allows_all_of_it(began):
    changed = plan(began, train={"seed": 2, "batch": 4}, optimizer={"lr": 0.5, "kind": "sgd"})
    refused = began.run(resume="newest", **changed)
    assert {each.hint.split()[1] for each in refused.error.problems} == {
        "train.seed",
        "train.batch",
        "optimizer.lr",
        "optimizer.kind",
    }
    partly = began.run(resume="newest", allow=["train"], **changed)
    assert {each.hint.split()[1] for each in partly.error.problems} == {"optimizer.lr", "optimizer.kind"}


def test_what_changes_no_number_may_change(began):
    free = plan(began, train={"steps": 6, "log": {"every": 1}})
    longer = began.run(began.use("Draws"), resume="newest", **free)
    assert longer.error is None
    assert longer.report.progress.step == 6
    assert any("train.steps was 4 and is 6" in event.message for event in longer.of(Notice))


def test_a_rate_that_is_allowed_to_change_takes_effect(began):
    changed = plan(began, optimizer={"lr": 0.5}, train={"log": {"every": 1}})
    ran = began.run(resume="newest", allow=["optimizer.lr"], **changed)
    assert {event.metrics["rate"] for event in ran.of(Logged)} == {0.5}


def test_a_name_that_allows_nothing_is_refused(began):
    ran = began.run(resume="newest", allow=["train.sede"], **plan(began))
    assert isinstance(ran.error, UsageError)
    assert "nothing under 'train.sede' has changed" in str(ran.error)


@pytest.mark.parametrize(
    ("field", "text"), [("release", "was release 9.9 and is"), ("content", "has other sources")]
)
def test_another_release_of_a_plugin_and_other_sources_are_named(began, monkeypatch, field, text):
    from nlpkernel import lock

    plain = lock.Lock.plain

    def other(self: Any) -> dict[str, Any]:
        found = plain(self)
        for each in found["activated"]["components"]:
            if each["distribution"] == "nlpkernel-sdk":
                each[field] = "9.9"
        return found

    monkeypatch.setattr(lock.Lock, "plain", other)
    began.run(began.use("Script", at={"2": "STOP"}), **plan(began), name="other")
    monkeypatch.undo()
    refused = began.run(resume="newest", name="other", **plan(began))
    (problem,) = refused.error.problems
    assert text in problem.message
    assert problem.message.endswith("(used by data, model, optimizer) since the version was made")
    assert began.run(resume="newest", name="other", allow=["nlpkernel-sdk"], **plan(began)).error is None


def test_another_content_of_the_data_is_refused(began, monkeypatch):
    changed = plan(began, data={"rows": 32})
    refused = began.run(resume="newest", **changed)
    assert any("the content of the data is another" in each.message for each in refused.error.problems)
    assert began.run(resume="newest", allow=["data"], **changed).error is None


def test_the_command_takes_changes_from_the_command_line_and_keeps_the_plan(began, capsys):
    folder = str(began.folder / "tiny")
    assert main(["resume", folder, "--set", "train.seed=7", "-q"]) == 2
    assert "NK505 train.seed was 0 and is 7" in capsys.readouterr().err
    assert Plan.load(f"{folder}/{runs.PLAN}").train.seed == 0, "a refused plan is not written"
    assert main(["resume", folder, "--set", "train.seed=7", "--allow", "train.seed", "-q"]) == 0
    assert Plan.load(f"{folder}/{runs.PLAN}").train.seed == 7


def test_a_locked_run_is_refused_for_every_difference(bench, monkeypatch, capsys):
    monkeypatch.chdir(bench.folder)
    (bench.folder / "a.json").write_text(json.dumps(tiny_values(train={"steps": 2})))
    assert main(["lock", "a.json"]) == 0
    assert "wrote a.lock" in capsys.readouterr().out
    assert sorted(path.name for path in bench.folder.iterdir()) == ["a.json", "a.lock"]
    assert main(["run", "a.json", "--locked", "-q"]) == 0
    assert main(["run", "a.json", "--locked", "-q", "--set", "name=b", "--set", "train.log.every=3"]) == 2
    error = capsys.readouterr().err
    assert "NK506 name was 'tiny' and is 'b' since the lock was written" in error
    assert "NK506 train.log" in error
    assert not (bench.folder / "runs/b").exists()
    lock = json.loads((bench.folder / "a.lock").read_text())
    lock["lock"]["activated"]["python"] = "3.0.0"
    (bench.folder / "other.lock").write_text(json.dumps(lock))
    assert main(["run", "a.json", "--overwrite", "--locked", "other.lock"]) == 2
    assert "python was 3.0.0" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "", "{}", '{"lock": {}, "plan": 1}', "[]"])
def test_a_file_that_is_no_lock_is_refused(bench, monkeypatch, capsys, content):
    monkeypatch.chdir(bench.folder)
    (bench.folder / "a.json").write_text(json.dumps(tiny_values(train={"steps": 2})))
    if content is not None:
        (bench.folder / "a.lock").write_text(content)
    assert main(["run", "a.json", "--locked"]) == 2
    error = capsys.readouterr().err
    assert "NK312" in error
    assert "nlpkernel lock plan.toml" in error


def test_python_takes_the_same_names(began):
    changed = Plan.of(began.values(**plan(began, train={"seed": 3})))
    with pytest.raises(UsageError, match=r"train\.seed was 0 and is 3"):
        nlpkernel.run(changed, runs_folder=began.folder, resume="newest")
    report = nlpkernel.run(changed, runs_folder=began.folder, resume="newest", allow=["train.seed"])
    assert report.progress.step == 4


def test_another_distribution_behind_the_same_name_is_named():
    from nlpkernel.changes import changes

    def lock(distribution: str) -> dict[str, Any]:
        part = {
            "address": "optimizer",
            "use": "adamw",
            "distribution": distribution,
            "release": "1",
            "content": "a",
        }
        same = {"kernel": "1", "torch": "2", "python": "3", "platform": "x", "threads": 1}
        return {"activated": {"components": [part], **same}, "opened": {}}

    (change,) = changes("", lock("acme"), "", lock("evil"))
    assert (change.name, change.free) == ("evil", False)
    assert change.text == "adamw was of acme and is of evil (used by optimizer)"


def test_state_is_not_taken_up_by_another_component_at_its_place(bench):
    stopping = {"use": "early-stopping", "patience": 50}
    bench.run(bench.use("Script", at={"2": "STOP"}), **plan(bench, train={"policy": [stopping]}))
    other = plan(bench, train={"policy": [{"use": "budget", "tokens": 10**9}]})
    refused = bench.run(resume="newest", **other)
    assert "NK505 train.policy[0].use was 'early-stopping' and is 'budget'" in str(refused.error)
    partly = bench.run(resume="newest", allow=["train.policy[0].use"], **other)
    assert "NK503 the version holds state of component/train.policy[0]" in str(partly.error)
    allowed = bench.run(resume="newest", allow=["train.policy"], **other)
    assert allowed.error is None
    assert allowed.report.progress.step == 4


def test_a_report_of_an_earlier_process_does_not_outlive_a_resume(began):
    script = began.use("Script", at={"3": "STOP"})
    values, report = Plan.of(began.values(script, **plan(began))), began.folder / "tiny" / runs.REPORT
    assert report.exists()
    events = nlpkernel.train(values, runs_folder=began.folder, resume="newest")
    assert [report.exists() for event in events if isinstance(event, StepCompleted)] == [False]
    assert report.exists()


def test_two_policies_that_changed_places_do_not_take_up_each_other_s_state(bench):
    first, second = ({"use": "early-stopping", "metric": f"validation/{name}"} for name in ("loss", "rows"))
    bench.run(bench.use("Script", at={"2": "STOP"}), **plan(bench, train={"policy": [first, second]}))
    ran = bench.run(resume="newest", **plan(bench, train={"policy": [second, first]}))
    assert "NK504 the state of component/train.policy[0] does not fit" in str(ran.error)
    assert "it is of the metric validation/loss, and this policy watches validation/rows" in str(ran.error)


@pytest.mark.parametrize("option", [["--locked"], ["--restarts", "2"], ["--overwrite"]])
def test_a_dry_run_ignores_no_option_in_silence(bench, capsys, option):
    path = bench.folder / "a.json"
    path.write_text(json.dumps(tiny_values(train={"steps": 2})))
    assert main(["run", str(path), "--dry-run", *option]) == 2
    assert f"NK313 --dry-run does not go with {option[0]}" in capsys.readouterr().err
