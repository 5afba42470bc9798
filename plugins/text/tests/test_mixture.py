"""Sources of a mixture, labels, weights, and other wordings: what a plan makes of documents that are not all alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import DataError
from nlpkernel.hookspecs.communicator import Requirements
from nlpkernel_text import cache
from nlpkernel_text.reading.components import Auto, Csv, JsonLines
from nlpkernel_text.samplers.components import Balanced, Order, Stratified, Weighted
from nlpkernel_text.settings import Caching, Source

Open = Callable[..., Any]
Write = Callable[[str, str | bytes], Path]
LINES = Auto(documents="line")


def rows(data: Any, first: int, last: int) -> list[str]:
    return [
        data.codec.decode(row["tokens"].tolist())
        for step in range(first, last)
        for index in range(len(data.window(step)))
        for row in data._made.rows[index]
    ]


def names(data: Any, first: int, last: int) -> list[str]:
    return [
        name.rpartition("/")[2]
        for step in range(first, last)
        for index in range(len(data.window(step)))
        for name in data.names(step, index)
    ]


@pytest.fixture
def languages(write: Write) -> list[Source]:
    """Three sources of 400, 80 and 20 documents."""
    return [
        Source(name=name, paths=(write(f"{name}.txt", "".join(f"{name} {n}\n" for n in range(count))),))
        for name, count in (("en", 400), ("de", 80), ("sw", 20))
    ]


def shares(data: Any, steps: int) -> list[float]:
    taken = [name[:2] for name in names(data, 0, steps)]
    return [taken.count(name) / len(taken) for name in ("en", "de", "sw")]


MIXED: dict[str, Any] = {"format": LINES, "pack": "rows", "train": {"batch": 50}}


@pytest.mark.parametrize("pack", ["rows", "joined"])
def test_sources_come_as_large_as_they_are_without_weights(
    open_text: Open, languages: list[Source], pack: str
) -> None:
    data = open_text(sources=languages, **{**MIXED, "pack": pack, "window": 8})
    assert shares(data, data.steps(epochs=1)) == pytest.approx([0.8, 0.16, 0.04], abs=0.03)


def test_weights_are_shares(open_text: Open, languages: list[Source]) -> None:
    weighted = [attrs.evolve(each, weight=w) for each, w in zip(languages, (1.0, 1.0, 2.0), strict=True)]
    data = open_text(sources=weighted, **MIXED)
    assert shares(data, 20) == pytest.approx([0.25, 0.25, 0.5], abs=0.01)
    assert data.steps(epochs=1) == 10


def test_temperature_balances_languages(open_text: Open, languages: list[Source]) -> None:
    data = open_text(sources=languages, temperature=2.0, **MIXED)
    roots = np.sqrt([400, 80, 20])
    assert shares(data, 40) == pytest.approx(roots / roots.sum(), abs=0.01)


def test_sources_may_differ_in_format_fields_and_encoding(write: Write, open_text: Open) -> None:
    sources = [
        Source(paths=(write("a.jsonl", json.dumps({"body": "from json"}) + "\n"),), fields={"text": "body"}),
        Source(paths=(write("b.csv", "from csv,1\n"),), format=Csv(columns=("t", "n")), fields={"text": "t"}),
        Source(paths=(write("c.txt", "größer".encode("cp1252")),), encoding="cp1252"),
    ]
    data = open_text(sources=sources, pack="rows", sampling=Order(), train={"batch": 3})
    assert rows(data, 0, 1) == ["from json", "from csv", "größer"]


def test_a_file_of_two_sources_is_refused(open_text: Open, write: Write) -> None:
    path = write("a.txt", "a")
    with pytest.raises(DataError, match=r"TXT009 .*a\.txt is named by the sources 'x' and '2'"):
        open_text(sources=[Source(name="x", paths=(path,)), Source(paths=(path,))])


def test_a_source_without_documents_that_has_a_weight_is_named(open_text: Open, write: Write) -> None:
    sources = [
        Source(name="empty", paths=(write("a.txt", "\n"),), weight=1.0),
        Source(paths=(write("b.txt", "b b"),), weight=1.0),
    ]
    with pytest.raises(DataError, match="TXT002 no examples in the source 'empty' of the mixture"):
        open_text(sources=sources, **MIXED)


# -- labels ----------------------------------------


def labelled(write: Write, rows: Sequence[tuple[str, Any]], name: str = "a.jsonl") -> Path:
    return write(name, "".join(json.dumps({"text": text, "y": label}) + "\n" for text, label in rows))


LABELS: dict[str, Any] = {
    "format": JsonLines(),
    "fields": {"label": "y"},
    "pack": "rows",
    "sampling": Order(),
}


@pytest.mark.parametrize("kind", [int, str])
def test_case_d8_labels_become_a_stored_map(write: Write, open_text: Open, kind: type) -> None:
    given = [9, 0, 5, 0, 9, 10]
    path = labelled(write, [(f"text {n}", kind(label)) for n, label in enumerate(given)])
    for _ in range(2):  # The second time from the cache.
        data = open_text(path, **LABELS, train={"batch": 6})
        assert data.info.labels == ("0", "5", "9", "10")
        data.window(0)
        assert [row["label"] for row in data._made.rows[0]] == [2, 0, 1, 0, 2, 3]
        assert [data.info.labels[row["label"]] for row in data._made.rows[0]] == list(map(str, given))


def test_labels_that_are_words_are_in_their_order(write: Write, open_text: Open) -> None:
    path = labelled(write, [("a", "spam"), ("b", "ham"), ("c", True), ("d", "007")])
    assert open_text(path, **LABELS).info.labels == ("007", "ham", "spam", "true")


def test_case_d8_a_label_that_is_never_trained_is_an_error_with_its_place(
    write: Write, open_text: Open
) -> None:
    train = labelled(write, [("a", 1), ("b", 2)])
    held = labelled(write, [("c", 1), ("d", 7), ("e", 7)], "held.jsonl")
    with pytest.raises(
        DataError, match=r"held\.jsonl:2:1: TXT033 the label '7' is in the validation split"
    ) as failure:
        open_text(train, validation_paths=(held,), **LABELS)
    assert failure.value.problems[0].hint == "the labels of the training split are: 1, 2"


@pytest.mark.parametrize("column", ["label", "weight"])
@pytest.mark.parametrize("first", ["with", "without"])
def test_a_label_or_weight_is_for_all_documents_or_for_none(
    write: Write, open_text: Open, column: str, first: str
) -> None:
    having = Source(paths=(labelled(write, [("a", 1), ("b", 2)]),), format=JsonLines(), fields={column: "y"})
    lacking = Source(paths=(write("b.txt", "plain"),))
    sources = [having, lacking] if first == "with" else [lacking, having]
    with pytest.raises(
        DataError, match=rf"TXT036 documents of .*b\.txt have no {column}, and those of .*a\.jsonl"
    ):
        open_text(sources=sources, pack="rows")


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (1.5, "is no label, which is a text or a whole number, but 1.5"),
        (None, "is no label, which is a text or a whole number, but null"),
        ("", 'is no label, which is a text or a whole number, but ""'),
        (["a"], r'is no label, which is a text or a whole number, but \["a"\]'),
    ],
)
def test_a_label_that_is_none_is_an_error_with_its_place_or_counted(
    write: Write, open_text: Open, make_run: Any, label: Any, message: str
) -> None:
    path = labelled(write, [("aa", "x"), ("bb", label)])
    with pytest.raises(DataError, match=rf"a\.jsonl:2:1: TXT005 the value of 'y' {message}"):
        open_text(path, **LABELS)
    run = make_run()
    assert open_text(path, run=run, on_error="skip", **LABELS).info.splits["train"].documents == 1
    assert run.counts["data text", "broken records"] == 1


def test_rows_of_padding_have_no_class(write: Write, open_text: Open, make_run: Any) -> None:
    run = make_run(batch=4)

    class Group:
        requires = Requirements(fixed_shapes=True)

    run.group = Group()
    data = open_text(labelled(write, [("a", 1), ("bb", 2)]), run=run, **LABELS)
    data.window(0)
    assert data._made.rows[0].classes.tolist() == [0, 1, -1, -1]


def test_samplers_go_by_the_labels_and_weights_of_the_plan(write: Write, open_text: Open) -> None:
    given = [(f"text {n}", "rare" if n % 10 == 0 else "often") for n in range(200)]
    options = {**LABELS, "train": {"batch": 40, "micro": 20}}
    path = labelled(write, given)
    for sampler, least, most in ((Balanced(), 10, 10), (Stratified(), 1, 3)):
        data = open_text(path, **{**options, "sampling": sampler})
        for step in range(4):
            for rows_of in (data.window(step), data._made.rows)[1]:
                assert least <= [data.info.labels[row["label"]] for row in rows_of].count("rare") <= most
    heavy = write(
        "w.jsonl", "".join(json.dumps({"text": f"t{n}", "w": 1 + 99 * (n < 5)}) + "\n" for n in range(100))
    )
    data = open_text(
        heavy, **{**options, "fields": {"weight": "w"}, "sampling": Weighted(), "train": {"batch": 100}}
    )
    taken = names(data, 0, 20)
    light = sum(int(name.partition(":")[2]) <= 5 for name in taken)
    assert light / len(taken) == pytest.approx(500 / 595, abs=0.03)


# -- augmentation ----------------------------------------


class Keyed:
    """Marks each text with what follows from its key."""

    def apply(self, texts: Sequence[str], keys: Any) -> Sequence[str]:
        return [f"{text}#{int(one) % 1000:03}" for text, one in zip(texts, keys, strict=True)]


@component
class Marking:
    empty: bool = setting(default=False, help="gives nothing")

    @hookimpl
    def create_augmentation(self) -> Any:
        if not self.empty:
            return Keyed()

        class Nothing:
            def apply(self, texts: Sequence[str], keys: Any) -> Sequence[str]:
                return [""] * len(texts)

        return Nothing()


AUGMENTED: dict[str, Any] = {"format": LINES, "pack": "rows", "long": "truncate", "augment": [Marking()]}


def test_a_document_that_comes_often_has_a_wording_each_time(write: Write, open_text: Open) -> None:
    given = [(f"text {n}", "rare" if n == 0 else "often") for n in range(20)]
    options = {**AUGMENTED, **LABELS, "sampling": Balanced(), "train": {"batch": 4}}
    taken = rows(open_text(labelled(write, given), **options), 0, 5)
    rare = [text for text in taken if text.startswith("text 0#")]
    assert len(rare) == 10
    assert len(set(rare)) >= 5


def test_a_wording_is_a_function_of_seed_step_and_sample(write: Write, open_text: Open) -> None:
    path = write("a.txt", "".join(f"document {n}\n" for n in range(20)))

    def wordings(train: dict[str, Any], first: int, last: int) -> list[str]:
        return rows(open_text(path, **AUGMENTED, train={"batch": 10, **train}), first, last)

    first, second = wordings({}, 0, 2), wordings({}, 2, 4)
    bare = [text.partition("#")[0] for text in first]
    assert sorted(bare) == sorted(f"document {n}" for n in range(20))
    assert not set(first) & set(second)
    assert len({text.rpartition("#")[2] for text in first}) > 15
    # Looked up by itself, cut otherwise, and again.
    assert wordings({}, 3, 4) == second[10:]
    assert wordings({"micro": 3}, 0, 4) == first + second
    assert wordings({"seed": 9}, 0, 2) != first


def test_case_d5_augmentations_draw_for_themselves(write: Write, open_text: Open) -> None:
    data = open_text(
        write("a.txt", "document\n" * 64),
        **{**AUGMENTED, "augment": [Marking(), Marking()]},
        train={"batch": 64},
    )
    drawn = [text.split("#")[1:] for text in rows(data, 0, 1)]
    assert len(set(map(tuple, drawn))) == 64
    assert sum(one == two for one, two in drawn) < 3


def test_evaluation_and_labels_keep_the_text_as_it_is(write: Write, open_text: Open) -> None:
    path = labelled(write, [("yes yes", "y"), ("no no", "n")])
    held = labelled(write, [("held", "y")], "held.jsonl")
    data = open_text(
        path, **{**LABELS, **AUGMENTED, "format": JsonLines()}, validation_paths=(held,), train={"batch": 2}
    )
    (batch,) = data.evaluation("validation")
    assert bytes(batch["tokens"][0].tolist()[:4]) == b"held"
    data.window(0)
    assert {data.codec.decode(row["tokens"].tolist())[:2]: row["label"] for row in data._made.rows[0]} == {
        "ye": 1,
        "no": 0,
    }


def test_a_long_wording_is_cut_to_the_window(write: Write, open_text: Open) -> None:
    data = open_text(write("a.txt", "0123456789"), **AUGMENTED, window=11, train={"batch": 1})
    assert rows(data, 0, 1)[0].startswith("0123456789#")
    assert data.window(0)[0].tokens == 11


def test_an_augmentation_that_leaves_nothing_is_an_error(write: Write, open_text: Open) -> None:
    data = open_text(
        write("a.txt", "abc"), **{**AUGMENTED, "augment": [Marking(empty=True)]}, train={"batch": 1}
    )
    with pytest.raises(
        DataError, match="TXT034 an augmentation got 1 texts, and gave 1, of which 1 are empty"
    ):
        data.window(0)


# -- what is kept ----------------------------------------


def test_batches_of_an_evaluation_are_kept_as_long_as_there_is_room(write: Write, open_text: Open) -> None:
    path = write("a.txt", "a" * 1000)
    options = {"window": 10, "split": "tail", "validation": 0.5, "train": {"batch": 10}}
    kept = open_text(path, cache=Caching(batches=1 << 20), **options)
    first, second = (list(kept.evaluation("validation")) for _ in range(2))
    assert all(one is two for one, two in zip(first, second, strict=True))
    size = sum(tensor.numel() * 8 for tensor in first[0].values())
    some = open_text(path, cache=Caching(batches=2 * size), **options)
    list(some.evaluation("validation"))
    assert some._recent.bytes <= 2 * size
    none = open_text(path, **options)
    assert next(iter(none.evaluation("validation"))) is not next(iter(none.evaluation("validation")))
    assert none._recent.bytes == 0


def test_the_cache_on_disk_keeps_to_its_limit_and_lets_the_oldest_go(
    write: Write, open_text: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entries() -> int:
        return sum(not path.name.startswith(".") for path in (tmp_path / "cache" / "text").iterdir())

    paths = [write(f"{n}.txt", f"{n}" * 100_000) for n in range(4)]
    for path in paths[:3]:
        open_text(path, cache=Caching(limit=350_000))
    assert entries() == 3, "whoever took one in the last hour may still be reading"
    monkeypatch.setattr(cache, "FRESH", 0.0)
    open_text(write("again.txt", "again" * 20_000), cache=Caching(limit=350_000))
    assert entries() == 1
    for path in paths[:3]:
        open_text(path, cache=Caching(limit=1_000_000))
    assert entries() == 4
    open_text(paths[0], cache=Caching(limit=1_000_000))
    open_text(paths[3], cache=Caching(limit=600_000))
    assert entries() == 2
    used = sorted((tmp_path / "cache" / "text").glob("*/.used"), key=lambda path: path.stat().st_mtime)
    open_text(paths[0], cache=Caching(limit=1_000_000))
    assert entries() == 2, "the one that was used last is still there"
    assert len(used) == 2
