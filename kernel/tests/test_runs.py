"""Run folders: made, found, listed, replaced; and what a run leaves in one."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import nlpkernel
from nlpkernel import runs
from nlpkernel.cli import main
from nlpkernel.errors import ComponentFailure, NlpkernelError, PluginError, UsageError
from nlpkernel.events import RunEnded, StepCompleted
from nlpkernel.progress import Progress
from nlpkernel.report import Count, Report
from nlpkernel_sdk import tiny_plan, tiny_values

if TYPE_CHECKING:
    from conftest import Shop

REPORT = Report(
    name="first",
    folder="runs/first",
    status="finished",
    reason="",
    progress=Progress(step=4, updates=3, samples=32, tokens=128, epoch=0.5),
    length=4,
    metrics={"validation/loss": 0.25, "validation/rows": None},
    main="validation/loss",
    best=0.25,
    best_step=4,
    counts=(Count(source="engine", what="windows skipped: empty", number=1),),
    detached=("watch of acme 2.5: 3 failed events",),
    version="step-4",
    seconds=1.5,
)


def make(folder: Path, report: Report | str | None = None) -> Path:
    """A run folder as a run leaves it."""
    (folder / "logs").mkdir(parents=True)
    (folder / "plan.toml").write_text("", encoding="utf-8")
    if isinstance(report, Report):
        report.write(folder / "report.json")
    elif report is not None:
        (folder / "report.json").write_text(report, encoding="utf-8")
    return folder


def refusal(caught: pytest.ExceptionInfo[NlpkernelError]) -> tuple[str, str | None]:
    (problem,) = caught.value.problems
    return problem.code, problem.hint


# -- folders --------------------------------------------------------------------------------------------------------


def test_a_run_never_writes_over_another_unless_told(tmp_path: Path) -> None:
    folder = make(tmp_path / "runs/first")
    (folder / "old").touch()
    with pytest.raises(UsageError) as caught:
        runs.create(folder)
    code, hint = refusal(caught)
    assert code == "NK301"
    assert f"`nlpkernel resume {folder}` continues it, --overwrite replaces it" in (hint or "")
    assert caught.value.exit_code == 2
    assert (folder / "old").exists()
    runs.create(folder, overwrite=True)
    assert [path.name for path in folder.iterdir()] == ["logs"]


@pytest.mark.parametrize("inside", [("thesis.tex",), ("plan.toml", "notes.md"), ("logs/a.log",)])
def test_overwrite_removes_no_folder_that_is_no_run(tmp_path: Path, inside: tuple[str, ...]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for name in inside:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine", encoding="utf-8")
    before = sorted(folder.rglob("*"))
    with pytest.raises(UsageError, match="NK302"):
        runs.create(folder, overwrite=True)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("inside", [(), ("logs/",), ("logs/", ".owned", ".owned.json", ".plan.toml.new")])
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_folder_in_which_no_run_began_yet_is_taken(
    tmp_path: Path, inside: tuple[str, ...], overwrite: bool
) -> None:
    """A process that is killed that early leaves it."""
    folder = tmp_path / "runs/first"
    folder.mkdir(parents=True)
    for name in inside:
        if name.endswith("/"):
            (folder / name).mkdir()
        else:
            (folder / name).touch()
    runs.create(folder, overwrite=overwrite)
    assert {path.name for path in folder.iterdir()} == {"logs", *(name.rstrip("/") for name in inside)}
    assert [path.name for path in folder.parent.iterdir()] == ["first"]
    runs.still_new(folder)
    (folder / "plan.toml").touch()
    with pytest.raises(UsageError, match="NK301"):
        runs.still_new(folder)


def test_what_is_left_of_a_run_whose_removal_was_killed_goes_with_the_next_one(tmp_path: Path) -> None:
    make(tmp_path / ".first.gone")
    assert list(runs.each(tmp_path)) == []
    runs.create(tmp_path / "first")
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_a_file_of_a_run_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.toml"
    runs.write(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"NK305 .* cannot be written: No space left"):
        runs.write(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["plan.toml"]


def test_overwrite_follows_no_link_and_removes_no_file(tmp_path: Path) -> None:
    real = make(tmp_path / "elsewhere")
    link = tmp_path / "first"
    link.symlink_to(real)
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    (tmp_path / "file").touch()
    for name in ("first", "dangling", "file"):
        with pytest.raises(UsageError, match="NK302"):
            runs.create(tmp_path / name, overwrite=True)
    assert (real / "plan.toml").exists()
    assert link.is_symlink()
    assert (tmp_path / "file").exists()


def test_a_folder_that_cannot_be_made_is_told_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        UsageError, match=r"NK305 the run folder '.*file/first' cannot be made: Not a directory"
    ):
        runs.create(tmp_path / "file" / "first")


def test_latest_is_the_newest_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    first, second = make(tmp_path / "first"), make(tmp_path / "second")
    for folder in (first, second):
        runs.point_latest(folder)
        assert runs.find(tmp_path / "latest") == folder.resolve()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "latest", "second"]
    assert os.readlink(tmp_path / "latest") == "second"


def test_a_link_that_was_never_named_latest_goes_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / ".latest-12345").symlink_to("gone")
    runs.point_latest(make(tmp_path / "first"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "latest"]


def test_a_real_folder_called_latest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    runs.point_latest(make(tmp_path / "first"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "latest"]
    assert not (tmp_path / "latest").is_symlink()


def test_a_run_is_found_by_its_folder_and_suggested_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        runs.find("runs/first")
    assert refusal(caught) == ("NK303", "start one with `nlpkernel run plan.toml`")
    make(tmp_path / "runs/first")
    assert runs.find("runs/first") == Path("runs/first")
    assert runs.find("runs/first/") == Path("runs/first")
    for wrong in ("runs/frist", "first", "runs/first/logs"):
        with pytest.raises(UsageError) as caught:
            runs.find(wrong)
        assert "runs/first" in (refusal(caught)[1] or ""), wrong


def test_runs_are_listed_oldest_first_and_nothing_else_is(tmp_path: Path) -> None:
    for number, name in enumerate(("b", "c", "a")):
        os.utime(make(tmp_path / name) / "plan.toml", (number, number))
    runs.point_latest(tmp_path / "a")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/plan.toml").touch()
    (tmp_path / "file").touch()
    assert [path.name for path in runs.each(tmp_path)] == ["b", "c", "a"]
    assert list(runs.each(tmp_path / "gone")) == []


# -- reports --------------------------------------------------------------------------------------------------------


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    REPORT.write(path)
    assert Report.read(path) == REPORT
    odd = attrs.evolve(
        REPORT, metrics={"a": math.inf, "b": -math.inf}, best=None, best_step=None, version=None
    )
    odd.write(path)
    assert Report.read(path) == odd
    attrs.evolve(REPORT, metrics={"a": math.nan}, best=math.nan).write(path)
    plain = json.loads(path.read_text("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert plain["metrics"] == {"a": "NaN"}
    read = Report.read(path)
    assert math.isnan(read.metrics["a"] or 0.0)
    assert math.isnan(read.best or 0.0)


def test_a_report_tells_everything_that_was_left_out() -> None:
    lines = REPORT.text().splitlines()
    assert lines[0] == "run first: finished"
    assert "  steps     4 of 4, 3 updates, epoch 0.50" in lines
    assert "  validation/rows        nothing to count" in lines
    assert lines[-2:] == [
        "           1 windows skipped: empty (engine)",
        "  detached: watch of acme 2.5: 3 failed events",
    ]
    assert "  skipped, dropped or repaired: nothing" in attrs.evolve(REPORT, counts=()).text()


@pytest.fixture
def folder_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, (name, report) in enumerate(
        {"first": REPORT, "killed": None, "cut": '{"name": "cu', "other": '{"name": "other"}'}.items()
    ):
        os.utime(make(tmp_path / "runs" / name, report) / "plan.toml", (number, number))
    return tmp_path / "runs"


def test_a_broken_report_breaks_no_list(folder_of_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows[2:]] == [
        ["first", "finished"],
        ["killed", "open"],
        ["cut", "damaged"],
        ["other", "damaged"],
    ]
    assert "4/4    validation/loss 0.2500" in rows[2]
    assert main(["runs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["status"] for each in listed] == ["finished", "open", "damaged", "damaged"]


def test_a_report_is_shown_for_people_and_machines(
    folder_of_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.point_latest(folder_of_runs / "first")
    assert main(["report", "runs/latest"]) == 0
    assert capsys.readouterr().out == REPORT.text() + "\n"
    assert main(["report", "runs/first", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["progress"]["step"] == 4
    for name, code in (("killed", "NK306"), ("cut", "NK310"), ("gone", "NK303")):
        assert main(["report", f"runs/{name}"]) == 2
        said = capsys.readouterr()
        assert said.err.startswith(f"error: {code} ")
        assert said.out == ""


# -- runs -----------------------------------------------------------------------------------------------------------


def test_a_run_leaves_a_folder_that_can_be_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tiny_plan(name="first")
    report = nlpkernel.run(plan, runs_folder=tmp_path / "runs")
    folder = tmp_path / "runs/first"
    assert {"plan.toml", "lock.json", "report.json", "logs"} <= {path.name for path in folder.iterdir()}
    assert Report.read(folder / "report.json") == report
    assert nlpkernel.Plan.load(folder / "plan.toml").text() == plan.text()
    assert main(["plan", "diff", str(folder / "plan.toml"), str(tmp_path / "runs/latest/plan.toml")]) == 0
    with pytest.raises(UsageError, match="NK301"):
        nlpkernel.run(plan, runs_folder=tmp_path / "runs")
    (folder / "old").touch()
    nlpkernel.run(plan, runs_folder=tmp_path / "runs", overwrite=True)
    assert not (folder / "old").exists()
    assert (tmp_path / "runs/latest").resolve() == folder.resolve()


def test_the_command_refuses_replaces_and_keeps_nothing_of_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(json.dumps(tiny_values(name="first")), encoding="utf-8")
    assert main(["run", "plan.json", "--dry-run"]) == 0
    assert "nothing was kept" in capsys.readouterr().out
    assert not Path("runs").exists()
    assert main(["run", "plan.json"]) == 0
    assert capsys.readouterr().out.startswith("run first: finished\n")
    assert main(["run", "plan.json"]) == 2
    assert "error: NK301 the run folder 'runs/first' exists" in capsys.readouterr().err
    assert main(["run", "plan.json", "--overwrite", "--quiet", "--set", "train.steps=1"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["run", "plan.json", "--set", "name=second", "--runs", "more"]) == 0
    assert Path("more/second/report.json").is_file()


WATCH = """
from nlpkernel import component, hookimpl, setting


@component
class Watch:
    token: str = setting(secret=True)
    fails: bool = setting(default=False)

    @hookimpl
    def subscribe(self, run, bus):
        assert self.token == "hunter2"
        from nlpkernel.events import Event, StepCompleted
        self.file = open(run.folder / "events.txt", "w")
        bus.on(Event, lambda event: self.file.write(repr(event)))
        bus.on(StepCompleted, self.step)

    def step(self, event):
        if self.fails:
            raise ValueError("no screen")

    @hookimpl
    def close(self):
        self.file.close()
"""


def watched(shop: Shop, *, fails: bool = False, strict: bool = False) -> nlpkernel.Plan:
    shop.write("watch.py", WATCH)
    monitor = {"use": "./watch.py:Watch", "token": "${TOKEN}", "fails": fails}
    return tiny_plan(base=shop.folder, name="watched", monitor=[monitor], train={"strict": strict})


def test_a_secret_is_in_no_file_of_a_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    events = list(nlpkernel.train(watched(shop), runs_folder=shop.folder / "runs"))
    assert isinstance(events[-1], RunEnded)
    assert "hunter2" not in repr(events)
    files = [path for path in (shop.folder / "runs").rglob("*") if path.is_file()]
    assert {"plan.toml", "lock.json", "report.json", "events.txt"} <= {path.name for path in files}
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert b"${TOKEN}" in (shop.folder / "runs/watched/plan.toml").read_bytes()


def test_a_local_component_is_found_again_from_the_run_folder(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    nlpkernel.run(watched(shop), runs_folder=shop.folder / "elsewhere/runs")
    again = nlpkernel.Plan.load(shop.folder / "elsewhere/runs/watched/plan.toml")
    assert [placed.found.target for placed in again.compose().placed if placed.found.local] == [
        f"{shop.folder}/watch.py:Watch"
    ]


def test_a_detached_observer_stands_in_the_report(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    report = nlpkernel.run(watched(shop, fails=True), runs_folder=shop.folder / "runs")
    assert report.status == "finished"
    (line,) = report.detached
    assert line.startswith(f"Watch of {shop.folder}/watch.py ")
    assert line.endswith(": 3 failed events")


def test_in_a_strict_run_a_failing_observer_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    with pytest.raises(ComponentFailure) as caught:
        nlpkernel.run(watched(shop, fails=True, strict=True), runs_folder=shop.folder / "runs")
    text = "NK060 it failed on StepCompleted of step 1: ValueError: no screen [Watch of "
    assert str(caught.value).startswith(text)
    assert Report.read(shop.folder / "runs/watched/report.json").status == "failed"


# -- P5, P6 ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lay: Callable[..., None]
) -> Callable[[str, str], None]:
    """Installs a monitor under the module's name."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def install(module: str, source: str) -> None:
        groups = {"nlpkernel.monitor.v1": {module.replace("_", "-"): f"{module}:Watch"}}
        lay(site, f"acme-{module}", groups, {module: source}, "2.5")

    return install


STARTING = """
from nlpkernel import component, hookimpl

@component
class Watch:
    @hookimpl
    def subscribe(self):
        raise OSError("no such device")
"""


def test_case_p5_a_plugin_that_fails_to_start_ends_the_run_before_its_first_step(
    installed: Callable[[str, str], None], tmp_path: Path
) -> None:
    installed("p5_starting", STARTING)
    events: list[Any] = []
    with pytest.raises(ComponentFailure) as caught:
        events += nlpkernel.train(tiny_plan(monitor=[{"use": "p5-starting"}]), runs_folder=tmp_path / "runs")
    assert not any(isinstance(event, StepCompleted) for event in events)
    assert str(caught.value) == (
        "NK060 subscribe failed: OSError: no such device [p5-starting of acme-p5-starting 2.5]"
    )
    assert isinstance(caught.value.__cause__, OSError)


def test_case_p5_a_plugin_that_cannot_be_imported_ends_the_run_before_it_has_a_folder(
    installed: Callable[[str, str], None], tmp_path: Path
) -> None:
    installed("p5_importing", "raise OSError('no such device')")
    with pytest.raises(PluginError) as caught:
        nlpkernel.run(tiny_plan(monitor=[{"use": "p5-importing"}]), runs_folder=tmp_path / "runs")
    text = str(caught.value)
    assert "OSError: no such device" in text
    assert "[p5-importing of acme-p5-importing 2.5]" in text
    assert not (tmp_path / "runs").exists()


def test_case_p6_a_run_imports_only_what_its_plan_names(
    installed: Callable[[str, str], None], tmp_path: Path
) -> None:
    installed("p6_unnamed", "raise OSError('imported')")
    report = nlpkernel.run(tiny_plan(), runs_folder=tmp_path / "runs")
    assert report.status == "finished"
    assert "p6_unnamed" not in sys.modules


def test_an_overwrite_that_does_not_begin_leaves_the_old_run_as_it_was(tmp_path: Path) -> None:
    plan = tiny_plan(name="first", train={"steps": 2})
    nlpkernel.run(plan, runs_folder=tmp_path)
    before = (tmp_path / "first/report.json").read_bytes()
    bad = tiny_plan(name="first", train={"steps": 2}, communicator={"use": "single", "device": "cuda:7"})
    with pytest.raises(NlpkernelError):
        nlpkernel.run(bad, runs_folder=tmp_path, overwrite=True)
    assert (tmp_path / "first/report.json").read_bytes() == before
    assert nlpkernel.run(plan, runs_folder=tmp_path, overwrite=True).status == "finished"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "latest"]


def test_what_an_overwrite_set_aside_comes_back_where_its_process_was_killed(tmp_path: Path) -> None:
    folder = make(tmp_path / "first", REPORT)
    runs.create(folder, overwrite=True)
    assert not (folder / "report.json").exists()
    with pytest.raises(UsageError, match="NK301"):
        runs.create(folder)
    assert Report.read(folder / "report.json") == REPORT


def test_nobody_comes_in_between_two_workers_of_a_supervisor(tmp_path: Path) -> None:
    folder = make(tmp_path / "first", REPORT)
    with runs.watch(folder):
        with runs.claim(folder, watched=True):
            pass
        for way in (lambda: runs.claim(folder).__enter__(), lambda: runs.create(folder, overwrite=True)):
            with pytest.raises(UsageError, match=f"NK311 .* is in use by process {os.getpid()}"):
                way()
    with runs.claim(folder):
        pass
