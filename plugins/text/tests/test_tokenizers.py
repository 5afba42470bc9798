"""Bytes, characters and BPE."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.context import Run
from nlpkernel.errors import DataError
from nlpkernel.plan.train import Train
from nlpkernel_text.reading import plain
from nlpkernel_text.reading.plain import cut
from nlpkernel_text.tokenizers.components import Bpe
from nlpkernel_text.tokenizers.encoders import ByteTokenizer, CharacterTokenizer
from nlpkernel_text.tokenizers.library import LibraryTokenizer
from nlpkernel_text.tokenizers.training import sample, train_bpe

TEXTS = [
    "the cat sat on the mat\n" * 5,
    "def the_function(the_cat):\n    return the_cat.sat_on(the_mat)\n" * 5,
    "été, naïve, 日本語, \U0001f600\n" * 5,
]


def run_in(folder: Path) -> Run:
    return Run(name="test", folder=folder, cache=folder, train=Train())


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> LibraryTokenizer:
    return train_bpe(Bpe(vocabulary=320), run_in(tmp_path_factory.mktemp("bpe")), lambda: TEXTS)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), max_size=5))
def test_bytes_give_every_text_back(texts: list[str]) -> None:
    tokenizer = ByteTokenizer()
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert tokenizer.encode(text) == ids.tolist()
        assert tokenizer.decode([*ids.tolist(), 256]) == text
        assert tokenizer.byte_lengths[ids].sum() == len(text.encode())


def test_bytes_that_are_no_text_are_decoded_as_replacement() -> None:
    assert ByteTokenizer().decode([0xE6, 0x97]) == "\ufffd"
    assert ByteTokenizer.load(ByteTokenizer().save()).vocabulary == 257


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.booleans())
def test_characters_are_in_the_order_of_code_points_and_give_every_text_back(
    texts: list[str], end: bool
) -> None:
    tokenizer = CharacterTokenizer.train(texts, replace=False, end=end)
    assert tokenizer.characters == "".join(sorted(set("".join(texts))))
    assert tokenizer.vocabulary == len(tokenizer.characters) + end
    again = CharacterTokenizer.load(tokenizer.save())
    for text, ids in zip(texts, again.encode_batch(texts), strict=True):
        assert tokenizer.encode(text) == ids.tolist()
        assert tokenizer.decode(ids.tolist() + ([tokenizer.end] if end else [])) == text


def test_an_unknown_character_is_an_error_or_replaced() -> None:
    strict = CharacterTokenizer.train(["abc"], replace=False, end=False)
    with pytest.raises(DataError, match=r"TXT008 the character 'é' \(U\+00E9\) is not in the vocabulary"):
        strict.encode_batch(["ab", "cé"])
    lenient = CharacterTokenizer.train(["abc"], replace=True, end=True)
    assert lenient.characters == "abc\ufffd"
    assert (lenient.vocabulary, lenient.end) == (5, 4)
    assert lenient.decode(lenient.encode("aéb\U0001f600")) == "a\ufffdb\ufffd"
    assert lenient.byte_lengths is None


def test_an_unknown_character_in_a_file_is_an_error_with_its_place(
    write: Callable[[str, str], Path], open_text: Callable[..., object]
) -> None:
    from nlpkernel_text.tokenizers.components import Characters

    known, other = write("a.txt", "abc \n"), write("b.txt", "ab\nc\nab\u03b1c\n")
    with pytest.raises(DataError, match=r"b\.txt:3:3: TXT008 the character 'α' \(U\+03B1\)"):
        open_text(known, validation_paths=(other,), tokenizer=Characters())


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_bpe_gives_every_text_back(bpe: LibraryTokenizer, text: str) -> None:
    ids = bpe.encode(text)
    assert bpe.encode_batch([text])[0].tolist() == ids
    assert bpe.decode(ids) == text
    assert bpe.byte_lengths[ids].sum() == len(text.encode())
    assert bpe.end not in ids


def test_the_name_of_the_end_in_a_text_is_text(bpe: LibraryTokenizer) -> None:
    again = LibraryTokenizer.load(bpe.save(), "<|end|>")
    for tokenizer in (bpe, again):
        ids = tokenizer.encode("a<|end|>b")
        assert tokenizer.end == 0
        assert 0 not in ids
        assert tokenizer.encode_batch(["a<|end|>b"])[0].tolist() == ids
        assert tokenizer.decode([0, *ids, 0]) == "a<|end|>b"


def test_bpe_says_where_the_text_gives_fewer_entries(tmp_path: Path, heard: object) -> None:
    run = run_in(tmp_path)
    from nlpkernel.events import Event

    run.bus.on(Event, heard.events.append)  # type: ignore[attr-defined]
    made = train_bpe(Bpe(vocabulary=5000), run, lambda: TEXTS)
    assert 257 < made.vocabulary < 5000
    assert heard.notices == [  # type: ignore[attr-defined]
        f"the text gives {made.vocabulary} entries, fewer than the 5000 of the plan "
        "(pairs that occur 2 times or more)"
    ]


def test_bpe_is_the_same_in_another_process_with_another_number_of_threads(
    bpe: LibraryTokenizer, tmp_path: Path
) -> None:
    code = f"""
import pathlib, sys
from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel_text.tokenizers.training import train_bpe
from nlpkernel_text.tokenizers.components import Bpe
folder = pathlib.Path({str(tmp_path)!r})
run = Run(name="test", folder=folder, cache=folder, train=Train())
sys.stdout.buffer.write(train_bpe(Bpe(vocabulary=320), run, lambda: {TEXTS!r}).save())
"""
    for threads in ("1", "3"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
        assert done.stdout == bpe.save()


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=30), max_size=30), st.integers(1, 200))
def test_a_sample_is_bounded_and_spread_evenly(texts: list[str], wanted: int) -> None:
    total = sum(map(len, texts))
    taken = list(sample(texts, total, wanted))
    assert sum(map(len, taken)) <= wanted
    if total <= wanted:
        assert taken == texts
    elif texts:
        # No more is missing than one text is long.
        assert sum(map(len, taken)) >= wanted - 30


def test_bpe_trains_on_a_sample_only(tmp_path: Path) -> None:
    texts = ["aaaa " * 100, "zzzz " * 100]
    made = train_bpe(Bpe(vocabulary=400, sample=500), run_in(tmp_path), lambda: texts)
    assert made.encode("aaaa") != made.encode("zzzz")
    assert len(made.encode("aaaa")) < 4
    assert len(made.encode("zzzz")) == 4


@pytest.mark.parametrize("saved", [b"\xff", b"{}", b"[1]", b'{"kind": "other"}'])
def test_a_saved_tokenizer_that_is_none_is_refused(saved: bytes) -> None:
    loaders: list[Callable[[bytes], object]] = [
        ByteTokenizer.load,
        CharacterTokenizer.load,
        lambda given: LibraryTokenizer.load(given, "<|end|>"),
    ]
    for load in loaders:
        with pytest.raises(DataError, match="TXT012 the saved tokenizer"):
            load(saved)


def test_a_saved_bpe_without_the_end_of_the_plan_is_refused(bpe: LibraryTokenizer) -> None:
    with pytest.raises(DataError, match="TXT012 the saved tokenizer has no token '</s>'"):
        LibraryTokenizer.load(bpe.save(), "</s>")


@given(
    st.lists(
        st.sampled_from(
            ["word", "it's", " ", "  ", "\n", "\n\n", "\r\n", "\t", "42", "日本", "\u2028", "!?", "\x1c"]
        ),
        max_size=80,
    )
)
def test_pieces_of_a_long_text_give_the_tokens_of_the_whole(bpe: LibraryTokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "PIECE", 5)
        pieces = cut(text)
    tokens = [number for ids in bpe.encode_batch(pieces) for number in ids.tolist()]
    assert tokens == bpe.encode(text)
