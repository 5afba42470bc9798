"""Documents, their splits, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.bus import Bus
from nlpkernel.context import Run, Task
from nlpkernel.errors import DataError
from nlpkernel.plan.train import Train
from nlpkernel_text.component import Text
from nlpkernel_text.corpus import Corpus
from nlpkernel_text.reading.components import Auto
from nlpkernel_text.reading.faults import Faults

from .conftest import COMPONENTS

Write = Callable[[str, str | bytes], Path]
Open = Callable[..., object]


def split(faults: Faults | None = None, **settings: Any) -> dict[str, list[str]]:
    """The documents of each split, in their order."""
    text = Text(**{**COMPONENTS, **settings})
    assert not list(text.check_settings())
    run = Run(name="test", folder=Path(), cache=Path(), train=Train())
    corpus = Corpus(text, run)
    corpus.measure(faults or Faults(text.on_error == "skip"), Task(Bus(), "measuring", None, ""))
    documents: dict[str, list[str]] = {"train": [], "validation": []}
    still: dict[str, bool] = {"train": False, "validation": False}
    for name, _, chunk in corpus.pieces():
        first, *rest = chunk.texts
        if still[name] and not chunk.opens:
            documents[name][-1] += first
        else:
            documents[name].append(first)
        documents[name] += rest
        still[name] = not chunk.closes
    return documents


def test_a_tenth_of_the_documents_is_held_out_from_all_over(write: Write) -> None:
    path = write("a.txt", "".join(f"line {number}\n" for number in range(200)))
    documents = split(paths=(path,), format=Auto(documents="line"))
    assert len(documents["validation"]) == 20
    held = [int(line.split()[1]) for line in documents["validation"]]
    assert held == sorted(held)
    assert held[0] < 40
    assert held[-1] >= 160
    assert len({*documents["train"], *documents["validation"]}) == 200


@given(count=st.integers(2, 40), share=st.floats(0.01, 0.99))
def test_both_splits_have_a_document(
    tmp_path_factory: pytest.TempPathFactory, count: int, share: float
) -> None:
    path = tmp_path_factory.mktemp("split") / "a.txt"
    path.write_text("".join(f"{number}\n" for number in range(count)))
    documents = split(paths=(path,), format=Auto(documents="line"), validation=share)
    assert documents["train"]
    assert documents["validation"]
    assert sorted(map(int, documents["train"] + documents["validation"])) == list(range(count))


@pytest.mark.parametrize("kind", ["file", "line", "blank"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.93])
def test_the_tail_is_the_last_characters(write: Write, kind: str, share: float) -> None:
    paths = tuple(write(f"{name}.txt", f"{name} one\n\n{name} two\n\n{name} three") for name in "abc")
    everything = split(paths=paths, format=Auto(documents=kind), validation=0.0)["train"]
    documents = split(paths=paths, format=Auto(documents=kind), validation=share, split="tail")
    joined = "".join(everything)
    at = int(len(joined) * (1 - share))
    assert "".join(documents["train"]) == joined[:at]
    assert "".join(documents["validation"]) == joined[at:]


def test_files_of_their_own_are_the_validation_split(write: Write) -> None:
    documents = split(paths=(write("a.txt", "train"),), validation_paths=(write("b.txt", "held out"),))
    assert documents == {"train": ["train"], "validation": ["held out"]}


def test_a_file_cannot_be_trained_on_and_validated_on(write: Write) -> None:
    path = write("a.txt", "x")
    with pytest.raises(DataError, match=r"TXT009 .* is named by `paths` and by `validation_paths`"):
        split(paths=(path,), validation_paths=(path,))


def test_one_document_cannot_be_split_by_document(write: Write) -> None:
    with pytest.raises(DataError, match=r'TXT009 there is one document .*; write split = "tail"'):
        split(paths=(write("a.txt", "one document"),))


def test_case_d3_a_file_that_is_skipped_is_counted_once_and_gives_nothing(write: Write) -> None:
    good, bad = write("a.txt", "good"), write("b.txt", b"begins well\n" * 10 + b"\xff")
    faults = Faults(True)
    documents = split(faults, paths=(good, bad), on_error="skip", validation=0.0)
    assert documents["train"] == ["good"]
    assert faults.counts == {"files that are not UTF-8": 1}


def test_case_d6_no_examples_is_an_error_that_counts_what_was_found(write: Write, open_text: Open) -> None:
    path = write("empty.txt", "\n\n \n")
    with pytest.raises(DataError, match=r"TXT002 no examples in .*empty.txt; found: 3 blank lines"):
        open_text(path, format=Auto(documents="line"))
    with pytest.raises(DataError, match=r"TXT002 no examples in .*none.txt; found: 1 empty files"):
        open_text(write("none.txt", ""))


def test_case_d3_what_was_skipped_is_in_the_report_also_from_the_cache(
    write: Write, open_text: Open, make_run: Callable[..., Run], heard: object
) -> None:
    path = write("a.jsonl", json.dumps({"text": "good"}) + "\n{broken\n\n" + json.dumps({"text": "fine"}))
    for _ in range(2):
        run = make_run()
        open_text(path, run=run, on_error="skip")
        assert run.counts == {("data text", "broken records"): 1, ("data text", "blank lines"): 1}
    notices = heard.notices  # type: ignore[attr-defined]
    assert len(notices) == 2
    assert "a.jsonl:2:2: TXT004 no JSON" in notices[0]
