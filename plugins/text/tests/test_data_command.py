"""`nlpkernel data`: what becomes of documents, looked at, built, removed, traced and written."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.cli import main

#: Stages in a single file, as a user's own.
STAGES = '''
from nlpkernel import component, hookimpl, setting
from nlpkernel.hookspecs.stage import Outcome


class _Upper:
    ordered = False

    def apply(self, documents):
        return Outcome(
            texts=[text.upper() for text in documents.texts],
            dropped={n: "says no" for n, text in enumerate(documents.texts) if "no" in text},
            notes={n: f"{len(text)} characters" for n, text in enumerate(documents.texts)},
        )

    def finish(self, folder):
        return ["all upper"]


class _Once(_Upper):
    ordered = True

    def __init__(self):
        self.seen = {}

    def apply(self, documents):
        dropped = {}
        for n, (text, name) in enumerate(zip(documents.texts, documents.names)):
            if text in self.seen:
                dropped[n] = "seen before"
            self.seen.setdefault(text, name)
        return Outcome(dropped=dropped, notes={n: f"the first is {self.seen[documents.texts[n]]}" for n in dropped})


@component
class Upper:
    """Large letters."""

    @hookimpl
    def create_stage(self):
        return _Upper()


@component
class Once:
    """Each text once."""

    @hookimpl
    def create_stage(self):
        return _Once()
'''

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in a folder with a plan of six documents, two of which stay away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NLPKERNEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "stages.py").write_text(STAGES)
    texts = ["one text", "a second", "no text", "one text", "a third\nof two lines", "the last"]
    rows = [{"body": text, "y": n % 2, "lang": "en"} for n, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan: dict[str, Any] = {
        "train": {"steps": 1, "batch": 2},
        "data": {
            "use": "text",
            "paths": ["a.jsonl"],
            "fields": {"text": "body", "label": "y", "language": "lang"},
            "stages": [{"use": "stages.py:Upper"}, {"use": "stages.py:Once"}],
            "pack": "rows",
            "window": 16,
            "validation": 0.0,
        },
        "model": {"use": "gpt", "layers": 1, "width": 8, "heads": 2},
        "optimizer": {"use": "adamw", "lr": 0.01},
        "checkpoint": {"use": "store"},
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))

    def call(*words: object, plan: str = "plan.json") -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["data", plan, *map(str, words)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_statistics_account_for_every_document(command: Command) -> None:
    code, out, err = command()
    assert code == 0, err
    lines = [line.rstrip() for line in out.splitlines()]
    assert "Upper        6 documents came, 1 dropped, 5 changed" in lines
    assert "             1 says no" in lines
    assert "Once         5 documents came, 1 dropped" in lines
    assert "             Upper: all upper" in lines
    assert any(line.startswith("train        4 documents, ") for line in lines)
    assert "             label '0': 2" in lines
    assert "epoch        3 steps" in lines
    found = json.loads(command("--json")[1])["stats"]
    assert [stage["came"] for stage in found["stages"]] == [6, 5]
    assert found["splits"]["train"]["documents"] == 4
    assert found["splits"]["train"]["labels"] == {"0": 2, "1": 2}
    assert 0 < found["splits"]["train"]["padding"] < 1


def test_show_gives_rows_with_their_place_and_label(command: Command) -> None:
    code, out, err = command("--show", 2)
    assert code == 0, err
    first, *rest = out.splitlines()
    assert first.startswith("a.jsonl:")
    assert "label '" in first
    assert any(line.startswith("    ") for line in rest)
    rows = json.loads(command("--show", 5, "--json")[1])["show"]
    assert len(rows) == 5
    assert {row["text"] for row in rows} <= {"ONE TEXT", "A SECOND", "A THIRD\nOF TWO LI", "INES", "THE LAST"}
    assert command("--show", 0)[0] == 2


def test_build_fills_the_cache_and_clean_empties_it(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("--build")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[:2]] == ["documents", "tokens"]
    assert out.count("  built  ") == 2
    assert command("--build")[1].count("  was there  ") == 2
    assert "removed" in command("--clean")[1]
    assert [path for path in (tmp_path / "cache" / "text").iterdir() if not path.name.startswith(".")] == []
    assert command("--clean")[1] == "removed 0 B from the cache\n"


def test_trace_says_what_each_stage_did(command: Command) -> None:
    code, out, _ = command("--trace", "a.jsonl:5")
    assert code == 0
    assert out.splitlines()[:8] == [
        "document  a.jsonl:5",
        "  label: 0",
        "  language: 'en'",
        "Upper  changed (20 characters)",
        "    -a third",
        "    -of two lines",
        "    +A THIRD",
        "    +OF TWO LINES",
    ]
    assert "Once  kept" in out
    assert "split     train" in out
    assert "tokens    21: 'A' ' ' 'T'" in out
    _, out, _ = command("--trace", "a.jsonl:3")
    assert "Upper  dropped: says no (7 characters)" in out
    assert "Once" not in out
    assert "tokens" not in out
    _, out, _ = command("--trace", "a.jsonl:4")
    assert "Once  dropped: seen before (the first is a.jsonl:1)" in out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("b.jsonl:1", "no file of the plan is called 'b.jsonl'"),
        ("a.jsonl", "no file of the plan is called"),
        ("a.jsonl:99", "there is no document at a.jsonl:99"),
    ],
)
def test_a_document_that_is_not_there_is_named(command: Command, name: str, said: str) -> None:
    code, _, err = command("--trace", name)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_write_gives_the_cleaned_documents_with_their_fields(
    command: Command, tmp_path: Path, name: str
) -> None:
    code, out, err = command("--write", name)
    assert code == 0, err
    assert out == f"4 documents in {name}\n"
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "rt") as file:
        rows = [json.loads(line) for line in file]
    assert rows[0] == {"text": "ONE TEXT", "label": 0, "language": "en", "source": "a.jsonl:1"}
    assert [row["source"] for row in rows] == ["a.jsonl:1", "a.jsonl:2", "a.jsonl:5", "a.jsonl:6"]
    code, _, err = command("--write", name)
    assert code == 2
    assert "TXT027 the file is there already" in err
    assert command("--write", name, "--overwrite")[0] == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("out.txt", "names no format that can be written"),
        ("out.csv", "the reader 'csv' cannot write"),
        ("out.parquet.gz", "files of the format 'parquet' are not packed as a whole"),
        ("out.tfrecord.zst", "files of the format 'tfrecord' are not packed as a whole"),
    ],
)
def test_a_format_that_cannot_be_written_is_refused(command: Command, name: str, said: str) -> None:
    code, _, err = command("--write", name)
    assert code == 2
    assert said in err


def test_write_refuses_a_field_whose_name_it_needs(command: Command, tmp_path: Path) -> None:
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["data"]["fields"] = {"text": "body", "name": "lang"}
    plan["data"]["stages"] = []
    (tmp_path / "named.json").write_text(json.dumps(plan))
    assert command("--write", "out.jsonl", plan="named.json")[0] == 0
    row = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert row == {"text": "one text", "name": "en", "source": "a.jsonl:1"}
    plan["data"]["fields"] = {"text": "body", "source": "lang"}
    (tmp_path / "named.json").write_text(json.dumps(plan))
    code, _, err = command("--write", "new.jsonl", plan="named.json")
    assert code == 2
    assert "the plan has a field 'source'" in err
    assert not (tmp_path / "new.jsonl").exists()


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_write_gives_all_sources_the_same_fields(command: Command, tmp_path: Path, name: str) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("nlpkernel_formats.columnar")
    plan = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "b.jsonl").write_text('{"body": "bare"}\n')
    del plan["data"]["paths"]
    plan["data"] |= {
        "stages": [],
        "fields": {"text": "body"},
        "sources": [
            {"paths": ["b.jsonl"]},
            {"paths": ["a.jsonl"], "fields": {"text": "body", "label": "y"}},
        ],
    }
    (tmp_path / "mixed.json").write_text(json.dumps(plan))
    code, _, err = command("--write", name, plan="mixed.json")
    assert code == 0, err
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        rows = pq.read_table(tmp_path / name).to_pylist()
    else:
        rows = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
    assert [row["label"] for row in rows] == [None, 0, 1, 0, 1, 0, 1]
    assert list(rows[0]) == ["text", "label", "source"]


def test_a_plan_that_is_wrong_or_of_other_data_is_refused(command: Command, tmp_path: Path) -> None:
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["data"]["stages"][0]["use"] = "stages.py:Uper"
    plan["data"]["sampling"] = "shufle"
    (tmp_path / "bad.json").write_text(json.dumps(plan))
    code, _, err = command(plan="bad.json")
    assert code == 2
    assert "did you mean 'shuffle'" in err.replace("shuffle?", "'shuffle'")


def test_a_stream_is_described_and_neither_read_nor_built(command: Command, tmp_path: Path) -> None:
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["data"] |= {"stream": {"buffer": 4}, "stages": [], "fields": {"text": "body"}}
    (tmp_path / "stream.json").write_text(json.dumps(plan))
    code, out, err = command(plan="stream.json")
    assert code == 0, err
    assert out == "stream       1 files, 270 B, read as training goes on\nvocabulary   257\n"
    assert "one text" in command("--show", 6, plan="stream.json")[1]
    code, _, err = command("--build", plan="stream.json")
    assert code == 2
    assert "TXT035 a stream is not built" in err


def test_a_warning_is_told_once(command: Command, tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("{oh\n")
    code, _, err = command("--set", "data.on_error=skip")
    assert code == 0
    assert err.count("records were left out") == 1
