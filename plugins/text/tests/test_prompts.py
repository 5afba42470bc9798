"""Texts behind prompts: what is learnt, and what is only read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nlpkernel
from nlpkernel.cli import main
from nlpkernel.context import Run
from nlpkernel.errors import DataError, PlanError
from nlpkernel.plan import Plan
from nlpkernel.plan.train import Train
from nlpkernel.plan.writer import write_toml

RECORDS = [
    {"question": "2+2?", "answer": "four"},
    {"question": "", "answer": "of nothing"},
    {"question": "who reads a question that is very long?", "answer": "nobody"},
    {"question": "é?", "answer": "ß"},
]


def write(folder: Path, records: list[dict[str, Any]] = RECORDS) -> None:
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    (folder / "asked.jsonl").write_text("".join(lines), encoding="utf-8")


def values(**data: Any) -> dict[str, Any]:
    return {
        "name": "asked",
        "train": {"steps": 2, "batch": 4, "threads": 1},
        "data": {
            "use": "text",
            "paths": ["asked.jsonl"],
            "fields": {"prompt": "{question}\n", "text": "answer"},
            "validation": 0,
            "pack": "rows",
            "long": "truncate",
            "window": 24,
            "sampling": "order",
            **data,
        },
        "model": {"use": "gpt", "preset": "nano", "layers": 1, "width": 16, "heads": 2},
        "optimizer": {"use": "adamw", "lr": 1e-2},
    }


def opened(folder: Path, **data: Any) -> tuple[Any, Run]:
    plan = Plan.of(values(**data), base=folder)
    train = Train(batch=4, steps=1, policy=())
    run = Run(name="asked", folder=folder, cache=folder / "cache", train=train)
    return plan.compose().slot("data").component.open_data(run), run


def learnt(data: Any, codec: Any) -> list[str]:
    """What the counted labels of the first window say, row by row."""
    data.window(0)
    labels = data.microbatch(0, 0)["labels"]
    return [
        codec.decode([each for each in row if each >= 0 and each != codec.end]) for row in labels.tolist()
    ]


def test_only_what_stands_behind_the_prompt_is_learnt(tmp_path: Path) -> None:
    write(tmp_path)
    data, run = opened(tmp_path)
    (described,) = data.window(0)
    batch = data.microbatch(0, 0)
    # Of the second the first token has none before it; the third one's prompt alone fills its row.
    assert learnt(data, data.codec) == ["four", "f nothing", "", "ß"]
    assert described.weights == {"loss": float((batch["labels"] >= 0).sum())}
    assert data.codec.decode(batch["tokens"][0].tolist()).startswith("2+2?\nfour")
    assert run.counts["data text", "documents whose prompt fills the window (train)"] == 1
    data.close()


@pytest.mark.parametrize("pack", ["joined", "isolated"])
def test_packed_rows_know_their_prompts_wherever_they_begin(tmp_path: Path, pack: str) -> None:
    write(tmp_path)
    data, _ = opened(tmp_path, pack=pack, long="split", window=16)
    text = ""
    for step in range(data.steps(epochs=1)):
        for index, described in enumerate(data.window(step)):
            batch = data.microbatch(step, index)
            labels = batch["labels"]
            assert described.weights == {"loss": float((labels >= 0).sum())}
            text += data.codec.decode([each for each in labels.flatten().tolist() if each >= 0])
    for answer in ("four", "of nothing" if pack == "joined" else "f nothing", "nobody", "ß"):
        assert answer in text
    assert "?" not in text
    data.close()


def test_the_tokens_are_those_of_both_parts_with_any_tokenizer(tmp_path: Path) -> None:
    write(tmp_path, [{"question": f"say {n} to", "answer": f"number {n}"} for n in range(40)])
    data, _ = opened(tmp_path, tokenizer={"use": "bpe", "vocabulary": 300}, window=40)
    data.window(0)
    row = data.kept(0, 0)[0]
    codec = data.codec
    assert codec.decode(row["tokens"][: row["prompt"]].tolist()) == "say 0 to\n"
    assert codec.decode(row["tokens"][row["prompt"] :].tolist()).startswith("number 0")
    data.close()


def test_a_plan_with_prompts_trains_and_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    report = nlpkernel.run(Plan.of(values(), base=tmp_path), runs_folder=tmp_path / "runs")
    assert report.status == "finished"
    path = tmp_path / "plan.toml"
    path.write_text(write_toml(values(), lambda path: None), encoding="utf-8")
    assert main(["data", str(path), "--show", "1"]) == 0
    assert "5 of the prompt" in capsys.readouterr().out


def test_a_prompt_that_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, [{"question": 7, "answer": "seven"}])
    with pytest.raises(DataError, match=r"asked\.jsonl:1:1.*'question' is no text but 7"):
        opened(tmp_path, fields={"prompt": "question", "text": "answer"})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"augment": [{"use": "swap"}]}, "would move the end of its `prompt`"),
        ({"split": "tail", "validation": 0.5}, "has `prompt` cannot be cut in two"),
        ({"fields": {"prompt": "question", "tags": "t"}, "task": "tokens"}, "`tags` or `prompt`"),
    ],
)
def test_what_does_not_go_with_prompts_is_a_mistake_in_the_plan(
    tmp_path: Path, data: dict[str, Any], said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        Plan.of(values(**data), base=tmp_path)
