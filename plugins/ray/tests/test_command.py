"""The command line, and what a plan becomes on its way to the workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.cli import main
from nlpkernel.errors import PlanError, UsageError
from nlpkernel.plan import Plan
from nlpkernel_ray.command import _echo
from nlpkernel_ray.sealed import sealed
from nlpkernel_ray.work import Work, for_cpus, numbers, planned, sources
from nlpkernel_sdk import tiny_values


def write(path: Path, **sections: Any) -> Plan:
    path.write_text(json.dumps(tiny_values(**sections)))
    return Plan.load(path)


def torchdist(**settings: Any) -> dict[str, Any]:
    pytest.importorskip("nlpkernel_torchdist")
    return {"use": "torchdist", **settings}


def test_the_command_is_light() -> None:
    code = (
        "import sys, nlpkernel_ray.command, nlpkernel_ray.driver, nlpkernel_ray.work\n"
        "print(sorted({'ray', 'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [["--local"], []])
def test_without_ray_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "nlpkernel_ray.raycluster", raising=False)
    write(tmp_path / "plan.json")
    before = dict(os.environ)
    assert main(["ray", str(tmp_path / "plan.json"), *words]) == 2
    told = capsys.readouterr().err
    assert "RAY001 Ray cannot be imported" in told
    assert "`pip install ray`" in told
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("address", "variable", "asks"),
    [
        ("ray://head:10001", None, True),
        ("head:6379", None, True),
        ("10.0.0.7:6379", None, True),
        (None, "ray://[fe80::1]:10001", True),
        (None, None, False),
        ("auto", None, False),
        ("ray://localhost:10001", None, False),
        ("127.0.0.1:6379", None, False),
    ],
)
def test_a_cluster_on_another_machine_needs_a_network_that_is_trusted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    address: str | None,
    variable: str | None,
    asks: bool,
) -> None:
    """Before anything is sent there. Ray itself is not here, which is the next error."""
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "nlpkernel_ray.raycluster", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    words = ["--address", address] if address is not None else []
    for trusted in (False, True):
        settings = {"trusted_network": True} if trusted else {}
        write(tmp_path / "plan.json", communicator=torchdist(workers=1, **settings))
        assert main(["ray", str(tmp_path / "plan.json"), *words]) == 2
        told = capsys.readouterr().err
        assert ("RAY010" if asks and not trusted else "RAY001") in told
        assert ("trusted_network = true" in told) == (asks and not trusted)


def test_restarts_need_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "plan.json")
    assert main(["ray", str(tmp_path / "plan.json"), "--restarts", "1"]) == 2
    assert "RAY004" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--workers", "0"], ["--workers", "3:2"], ["--workers", "2:"], ["--cpus", "0"], ["--wait", "nan"]],
)
def test_options_out_of_range_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    write(tmp_path / "plan.json")
    assert main(["ray", str(tmp_path / "plan.json"), *words]) == 2
    assert f"argument {words[0]}" in capsys.readouterr().err


def test_lines_carry_their_worker_on_the_stream_that_they_came_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _echo(2, "out", "loss 1.5")
    _echo(0, "err", "warning")
    assert capsys.readouterr() == ("[worker-2] loss 1.5\n", "[worker-0] warning\n")


def test_workers_that_do_not_join_are_not_started(tmp_path: Path) -> None:
    plan = write(tmp_path / "plan.json")
    assert planned(plan) == 1
    assert numbers(plan, [], 1, 1) == [1]
    with pytest.raises(UsageError, match="RAY003 2 workers cannot join each other"):
        numbers(plan, [], 1, 2)


def test_the_numbers_of_workers_are_those_that_the_plan_can_be_laid_out_for(tmp_path: Path) -> None:
    plan = write(tmp_path / "plan.json", communicator=torchdist(workers=4, tensor=2), model={"use": "gpt"})
    assert planned(plan) == 4
    assert numbers(plan, [], 1, 6) == [6, 4, 2]
    with pytest.raises(PlanError, match="3 workers cannot be laid out"):
        numbers(plan, [], 3, 3)


def test_a_plan_for_cpus_needs_no_gpu(tmp_path: Path) -> None:
    assert not for_cpus(write(tmp_path / "a.json", communicator=torchdist()))
    assert for_cpus(write(tmp_path / "b.json", communicator=torchdist(device="cpu")))
    assert for_cpus(write(tmp_path / "c.json", communicator=torchdist(backend="gloo")))


def test_a_plan_travels_with_all_that_it_extends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    base, middle, plan = tmp_path / "base.toml", tmp_path / "below/middle.toml", tmp_path / "below/plan.toml"
    base.write_text('name = "n"\n')
    middle.write_text('extends = "../base.toml"\nname = "m"\n')
    plan.write_text('extends = ["middle.toml", "${NLPKERNEL_TEST_BASE}"]\nname = "p"\n')
    monkeypatch.setenv("NLPKERNEL_TEST_BASE", "../base.toml")
    assert sources(plan) == {str(path): path.read_bytes() for path in (plan, middle, base)}


def test_the_work_of_a_plan_holds_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plans").mkdir()
    write(tmp_path / "plans/plan.json")
    plan = Plan.load("plans/plan.json")
    work = Work.of(plan, [], "runs", stored=True, flags=["-q"])
    path = str(tmp_path / "plans/plan.json")
    assert work.words == ("run", path, "--runs", str(tmp_path / "runs"), "--continue", "-q")
    assert (work.folder, list(work.files)) == (str(tmp_path / "plans"), [path])
    other = Work.of(plan, ["train.seed=2"], "/runs", stored=False)
    assert other.words == ("run", path, "--set", "train.seed=2", "--runs", "/runs")
    assert other.folder == str(tmp_path)


def test_a_cluster_of_our_own_has_a_token_that_nobody_else_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    before = dict(os.environ)
    tokens = []
    for _ in range(2):
        with sealed():
            tokens.append(os.environ["RAY_AUTH_TOKEN"])
            assert "RAY_AUTH_TOKEN_PATH" not in os.environ
            assert os.environ["RAY_AUTH_MODE"] == "token"
        assert dict(os.environ) == before
    assert len(set(tokens)) == 2
