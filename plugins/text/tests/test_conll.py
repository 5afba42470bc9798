"""CoNLL files, and what belongs to a text: tags of its words, and a second text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel.hookspecs.task import Term
from nlpkernel_text.data import TextData
from nlpkernel_text.reading.components import ConllFile, JsonLines
from nlpkernel_text.reading.conll import Conll
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.reading.files import File
from nlpkernel_text.tokenizers.components import Bytes

Write = Callable[[str, str | bytes], Path]


def read(path: Path, columns: list[str], faults: Faults | None = None, **options: Any) -> list[Any]:
    reader = Conll(options.pop("names", ("word", "tag")), options.pop("comments", False))
    found: list[Any] = []
    for records in reader.read(File.at(path, "conll", shown=path.name), columns, faults or Faults(False)):
        found += zip(records.places, *(records.columns[name] for name in columns), strict=True)
    return found


def test_sentences_come_with_their_lines_and_columns(write: Write) -> None:
    path = write("a.conll", "-DOCSTART- O\n\nAnna B-PER\r\nwent O\n\n\n\nhome\tO")
    assert read(path, ["word", "tag"]) == [(3, ["Anna", "went"], ["B-PER", "O"]), (8, ["home"], ["O"])]
    assert read(path, ["tag"]) == [(3, ["B-PER", "O"]), (8, ["O"])]


def test_conll_u_without_its_comments_and_ranges(write: Write) -> None:
    path = write(
        "a.conllu", "# text = im Haus\n1-2\tim\tX\n1\tin\tADP\n2\tdem\tDET\n2.1\t-\tX\n3\t# Haus\tNOUN\n"
    )
    found = read(path, ["form", "pos"], names=("id", "form", "pos"), comments=True)
    assert found == [(3, ["in", "dem", "# Haus"], ["ADP", "DET", "NOUN"])]


def test_case_d3_a_line_with_other_columns_breaks_its_sentence_alone(write: Write) -> None:
    path = write("a.conll", "a O\n\nb O O\nc O\n\nd O\n")
    with pytest.raises(
        DataError, match=r"a\.conll:3:1: TXT004 the line has 3 columns and `columns` names 2: 'b O O"
    ):
        read(path, ["word"])
    faults = Faults(True)
    assert read(path, ["word"], faults) == [(1, ["a"]), (6, ["d"])]
    assert faults.counts == {"broken records": 1}


def test_a_column_that_is_not_named_is_refused(write: Write) -> None:
    with pytest.raises(DataError, match=r"TXT006 there is no column 'ner'; the columns are: word, tag"):
        read(write("a.conll", "a O\n"), ["ner"])


words = st.lists(
    st.tuples(st.text("abc#é", min_size=1, max_size=3), st.sampled_from(["O", "B-X"])), min_size=1, max_size=4
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, max_size=5))
def test_what_was_written_comes_back(write: Write, sentences: list[list[tuple[str, str]]]) -> None:
    text = "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)
    found = read(write("a.conll", text), ["word", "tag"])
    assert [list(zip(*each[1:], strict=True)) for each in found] == sentences


class Keeping:
    """A task that keeps the rows."""

    name, main, truth = "keeping", ("loss", "min"), frozenset[str]()

    def batch(self, rows: Any) -> Any:
        return list(rows)

    def weights(self, rows: Any) -> dict[str, float]:
        return {"loss": 1.0}

    def inputs(self, batch: Any) -> Any:
        return {}

    def loss(self, outputs: Any, batch: Any) -> list[Term]:
        return []


class Keeper:
    """Its component."""

    def create_task(self) -> Any:
        return Keeping()


def test_tags_stand_at_the_first_token_of_each_word(write: Write, open_text: Callable[..., TextData]) -> None:
    path = write("a.conll", "ab B-X\nc O\n\nd O\n")
    data = open_text(
        path,
        format=ConllFile(),
        fields={"text": "word", "tags": "tag"},
        pack="rows",
        long="truncate",
        window=8,
        sampling="order",
        train={"batch": 2},
        task=Keeper(),
    )
    assert data.info.labels == ("B-X", "O")
    first, second = data.microbatch(0, 0)  # type: ignore[misc]
    assert bytes(first["tokens"][:-1].tolist()) == b"ab c"
    assert first["tags"].tolist() == [0, -1, 1, -1, -1]
    assert second["tags"].tolist() == [1, -1]
    assert first["tokens"][-1] == data.codec.end


def test_second_texts_go_with_their_first_ones_in_any_order(
    write: Write, open_text: Callable[..., TextData]
) -> None:
    lines = "".join(
        f'{{"a": "{number:02}", "b": "{"x" * (number % 5 + 1)}{number}"}}\n' for number in range(40)
    )
    data = open_text(
        write("a.jsonl", lines),
        format=JsonLines(),
        fields={"text": "a", "target": "b"},
        tokenizer=Bytes(),
        pack="rows",
        long="truncate",
        window=8,
        train={"batch": 8},
        task=Keeper(),
    )
    seen = []
    for step in range(5):
        for row in data.microbatch(step, 0):
            number = int(data.codec.decode(row["tokens"][:-1].tolist()))  # type: ignore[index]
            target = data.codec.decode(row["target"][:-1].tolist())  # type: ignore[index]
            assert target == "x" * (number % 5 + 1) + str(number)
            assert row["target"][-1] == data.codec.end  # type: ignore[index]
            seen.append(number)
    assert sorted(seen) == list(range(40))
    block, sizes = data.kept(0, 0).targets or (np.zeros(0), np.zeros(0))
    assert block.shape == (8, sizes.max())


def test_a_text_without_its_second_one_is_left_out_and_counted(
    write: Write, open_text: Callable[..., TextData], make_run: Callable[..., Any]
) -> None:
    run = make_run(batch=1)
    lines = '{"a": "x", "b": "y"}\n{"a": "x", "b": ""}\n{"a": "x", "b": null}\n'
    options = {"fields": {"text": "a", "target": "b"}, "pack": "rows", "long": "truncate", "window": 8}
    path = write("a.jsonl", lines)
    with pytest.raises(DataError, match=r"a\.jsonl:3:1: TXT005 the value of 'b' is no text but null"):
        open_text(path, format=JsonLines(), task=Keeper(), run=run, **options)
    data = open_text(path, format=JsonLines(), task=Keeper(), run=run, on_error="skip", **options)
    assert data.info.splits["train"].samples == 1
    assert run.counts["data text", "records with an empty text"] == 1


def test_what_does_not_go_with_tags_or_targets_is_said(open_text: Callable[..., TextData]) -> None:
    from nlpkernel_text.component import Text

    def wrong(**values: Any) -> list[str]:
        return [message for _, message in Text(paths=(Path("a"),), **values).check_settings()]

    assert "belongs to a text that is one row" in wrong(fields={"target": "b"})[0]
    rows = {"pack": "rows", "long": "truncate"}
    assert not wrong(fields={"target": "b"}, **rows)
    assert "`tags` or `label`, not both" in wrong(fields={"tags": "t", "label": "l"}, **rows)[0]
    assert "cannot be cut in two" in wrong(fields={"target": "b"}, split="tail", **rows)[0]
    assert "are not changed" in wrong(fields={"tags": "t"}, stages=[object()], **rows)[0]
