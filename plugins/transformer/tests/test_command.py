"""The command `generate`, over a model that is put in place of an opened run."""

from __future__ import annotations

import argparse
import io
import json
from typing import Any

import attrs
import pytest
import torch

from nlpkernel.errors import UsageError
from nlpkernel_transformer import command


@attrs.define(kw_only=True)
class Opened:
    """What `open_model` gives, as far as the command uses it."""

    model: Any
    codec: Any
    device: torch.device = attrs.field(factory=lambda: torch.device("cpu"))
    version: str = "step-3"


@pytest.fixture
def opened(make: Any, codec: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Put a tiny model in place; returns what the command asked to open."""
    model = make("gpt", layers=1, heads=2, width=16, vocabulary=257, window=16).module.eval()
    asked: list[tuple[Any, ...]] = []

    def open_model(run: str, *, version: str | None, device: str) -> Opened:
        asked.append((run, version, device))
        return Opened(model=model, codec=codec)

    monkeypatch.setattr("nlpkernel.open_model", open_model, raising=False)
    return asked


def _run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    return command.execute(parser.parse_args(words))


def test_text_goes_on_from_the_prompt(opened: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("runs/x", "--prompt", "ab", "--tokens", "5", "--version", "step-3", "--device", "cpu") == 0
    out = capsys.readouterr().out
    assert out.startswith("ab")
    assert out.endswith("\n")
    assert opened == [("runs/x", "step-3", "cpu")]


def test_json_has_one_object_for_each_prompt(opened: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["runs/x", "--prompt", "ab", "--prompt", "ab", "--tokens", "5", "--seed", "7", "--json"]
    assert _run(*words) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["seed"] for row in rows] == [7, 8]
    assert rows[0]["text"] != rows[1]["text"]
    assert set(rows[0]) == {"prompt", "text", "tokens", "ended", "seed", "version"}
    assert (rows[0]["prompt"], rows[0]["version"]) == ("ab", "step-3")
    _run(*words[:-2], "8", "--json")
    assert json.loads(capsys.readouterr().out.splitlines()[0])["text"] == rows[1]["text"]


def test_json_and_plain_text_say_the_same(opened: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    _run("runs/x", "--prompt", "ab", "--tokens", "9")
    plain = capsys.readouterr().out
    _run("runs/x", "--prompt", "ab", "--tokens", "9", "--json")
    text = "ab" + json.loads(capsys.readouterr().out)["text"]
    assert plain == (text if text.endswith("\n") else text + "\n")


def test_a_dash_reads_the_prompt_from_standard_input(
    opened: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo"))
    _run("runs/x", "--prompt", "-", "--tokens", "3")
    assert capsys.readouterr().out.startswith("one\ntwo")


def test_without_a_prompt_a_new_text_is_started(
    opened: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    _run("runs/x", "--tokens", "3", "--json")
    assert json.loads(capsys.readouterr().out)["prompt"] == ""


def test_wrong_options_are_refused_before_the_model_is_opened(opened: list[Any]) -> None:
    with pytest.raises(UsageError, match="TRF005"):
        _run("runs/x", "--tokens", "0")
    assert opened == []


def test_a_model_that_cannot_generate_is_named(monkeypatch: pytest.MonkeyPatch, codec: Any) -> None:
    monkeypatch.setattr(
        "nlpkernel.open_model",
        lambda run, **_: Opened(model=torch.nn.Linear(1, 1), codec=codec),
        raising=False,
    )
    with pytest.raises(UsageError, match=r"TRF003 the model of 'runs/x' \(Linear\)"):
        _run("runs/x")
