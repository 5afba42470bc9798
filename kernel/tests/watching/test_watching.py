"""`plugins order`, `trace` and `bisect`, and `run --profile-plugins`: through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.cli import main
from nlpkernel.plan.writer import write_toml
from nlpkernel_sdk import tiny_values

PARTS = Path(__file__).with_name("parts.py")


def plan(folder: Path, *monitors: str, **sections: Any) -> str:
    values = tiny_values(train={"steps": 60, "evaluate": {"every": 20}}, **sections)
    values["monitor"] = [{"use": f"{PARTS}:{name}"} for name in monitors]
    path = folder / "plan.toml"
    path.write_text(write_toml(values, lambda path: None), encoding="utf-8")
    return str(path)


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


# -- order ------------------------------------------------------------------------------------------


def test_order_says_who_answers_a_hook_first_to_last(tmp_path: Path, capsys: Any) -> None:
    path = plan(tmp_path, "Slow", "Idle")
    (question,) = asked(capsys, "plugins", "order", path, "--hook", "subscribe")
    assert question["kind"] == "collect"
    assert [answer["address"] for answer in question["answers"]] == ["monitor[0]", "monitor[1]"]
    assert question["answers"][0]["owner"].startswith("Slow of ")


def test_order_shows_every_hook_and_the_component_of_every_slot(tmp_path: Path, capsys: Any) -> None:
    assert main(["plugins", "order", plan(tmp_path, "Meddling")]) == 0
    text = capsys.readouterr().out
    assert "create_optimizer (pick)\n  1. optimizer: tiny of nlpkernel-sdk" in text
    assert "gradients_ready (observe)\n  1. monitor[0]: Meddling of" in text


def test_a_hook_that_there_is_not_is_refused(tmp_path: Path, capsys: Any) -> None:
    assert main(["plugins", "order", plan(tmp_path), "--hook", "decdie"]) == 2
    assert "did you mean 'decide'?" in capsys.readouterr().err


# -- trace ------------------------------------------------------------------------------------------


def test_trace_shows_each_call_in_order_with_its_time(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = plan(tmp_path, "Slow", "Idle")
    calls = asked(capsys, "plugins", "trace", path, "--steps", "3")
    assert [each["start"] for each in calls] == sorted(each["start"] for each in calls)
    what = [(call["what"], call["owner"].partition(" ")[0]) for call in calls]
    assert what.index(("subscribe", "Slow")) < what.index(("open_data", "tiny"))
    slow = [call for call in calls if call["what"] == "StepCompleted" and call["owner"].startswith("Slow")]
    assert [call["phase"] for call in slow] == ["opening and step 1", "step 2", "step 3"]
    assert all(call["own"] >= 0.004 for call in slow)
    assert list(tmp_path.iterdir()) == [tmp_path / "plan.toml"]


def test_the_own_time_of_a_call_leaves_out_what_was_asked_within(tmp_path: Path, capsys: Any) -> None:
    calls = asked(
        capsys, "plugins", "trace", plan(tmp_path, data={"use": "tiny-text"}, model={"use": "tiny-text"})
    )
    outer = next(call for call in calls if call["what"] == "open_data")
    inner = [call for call in calls if call["depth"] == 1 and call["what"].startswith("create_")]
    assert inner
    assert outer["own"] <= outer["seconds"] - max(call["seconds"] for call in inner)
    assert main(["plugins", "trace", plan(tmp_path, "Idle")]) == 0
    table = capsys.readouterr().out
    assert "-- step 2" in table
    assert "own ms" in table


# -- bisect -----------------------------------------------------------------------------------------


def test_bisect_names_the_observers_that_change_result_and_speed(tmp_path: Path, capsys: Any) -> None:
    path = plan(tmp_path, "Idle", "Slow", "Drawing", "Meddling")
    found = asked(capsys, "plugins", "bisect", path, "--steps", "12", "--turns", "1", code=1)
    assert found["differs"] == []
    idle, slow, drawing, meddling = found["arms"]
    assert idle["changes"] == slow["changes"] == []
    assert drawing["changes"] == ["random"]
    assert "model" in meddling["changes"]
    assert found["whole"]["seconds"][0] - slow["seconds"][0] > 0.003


def test_bisect_says_why_a_plan_does_not_run(tmp_path: Path, capsys: Any) -> None:
    assert main(["plugins", "bisect", plan(tmp_path, "Failing"), "--turns", "1"]) != 0
    said = capsys.readouterr().err
    assert "NK408" in said
    assert "it has no paper" in said


# -- profile ----------------------------------------------------------------------------------------


def test_a_profile_says_where_the_time_of_steps_went(tmp_path: Path, capsys: Any) -> None:
    path = plan(tmp_path, "Slow")
    folder = tmp_path / "runs"
    assert main(["run", path, "--runs", str(folder), "--profile-plugins"]) == 0
    text = capsys.readouterr().out
    (run,) = [each for each in folder.iterdir() if not each.is_symlink()]
    found = json.loads((run / "profile.json").read_text(encoding="utf-8"))
    steps = [share for share in found["shares"] if share["phase"] == "step"]
    assert str(PARTS) in steps[0]["owner"]
    assert steps[0]["function"] == "Slow._step"
    # 60 steps of 4 ms each, of which looks from beside see nearly all.
    assert 0.15 < steps[0]["seconds"] < 1.0
    assert "most in Slow._step" in text
    assert found["looks"] > 20


def test_a_dry_run_is_not_profiled(tmp_path: Path, capsys: Any) -> None:
    assert main(["run", plan(tmp_path), "--dry-run", "--profile-plugins"]) == 2
    assert "--dry-run does not go with --profile-plugins" in capsys.readouterr().err


def test_a_profile_of_a_run_that_may_be_started_again_is_refused(tmp_path: Path, capsys: Any) -> None:
    assert main(["run", plan(tmp_path), "--restarts", "1", "--profile-plugins"]) == 2
    assert "--profile-plugins does not go with --restarts" in capsys.readouterr().err
