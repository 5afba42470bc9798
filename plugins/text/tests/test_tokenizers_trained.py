"""BPE, WordPiece and Unigram: what they keep, what they never split, and that they are the same each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.context import Run
from nlpkernel.errors import DataError
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel.plan.train import Train
from nlpkernel_text.reading import plain
from nlpkernel_text.reading.plain import cut
from nlpkernel_text.tokenizers.bytelevel import alphabet
from nlpkernel_text.tokenizers.components import Bpe, Unigram, WordPiece
from nlpkernel_text.tokenizers.library import LibraryTokenizer
from nlpkernel_text.tokenizers.unigram import settled

SPECIAL = ("<drug>", "[gene x]", "naïve", "ab", "abc")
TEXTS = [
    "the cat sat on the mat, and the <drug> was not abc; a naïve cat\n" * 5,
    "def the_function(the_cat):\n\treturn the_cat.sat_on(the_mat)\n" * 5,
    "été, naïve, 日本語 の 日本, [gene x]; Straße \U0001f600\n" * 5,
    "running runs run ran, walking walks walk walked. unthinkable thinking\n" * 5,
]
MAKERS: dict[str, Callable[[], Any]] = {
    "bpe": lambda: Bpe(vocabulary=400, special=SPECIAL),
    "bpe-lower": lambda: Bpe(vocabulary=400, special=SPECIAL, lowercase=True, unicode="nfkc"),
    "wordpiece": lambda: WordPiece(vocabulary=260, special=SPECIAL),
    "unigram": lambda: Unigram(vocabulary=400, special=SPECIAL),
    "unigram-characters": lambda: Unigram(vocabulary=160, special=SPECIAL, level="characters"),
}
LOSSLESS = ("bpe", "unigram")
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60)
#: Texts that look like those that were trained on, with special and control tokens in them.
LIKELY = st.lists(
    st.sampled_from(
        [
            *SPECIAL,
            "<|end|>",
            "[UNK]",
            "<unk>",
            "the",
            "cat",
            " ",
            "  ",
            "\n",
            "\r\n",
            "\t",
            "é",
            "\u2581",
            "a",
            "bc",
        ]
    )
    | TEXT,
    max_size=12,
).map("".join)


def cut_out(text: str) -> str:
    """A text without special tokens, as they are read: the longer one first."""
    return re.sub("|".join(map(re.escape, sorted(SPECIAL, key=len, reverse=True))), "", text)


def run_in(folder: Path) -> Run:
    return Run(name="test", folder=folder, cache=folder, train=Train())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LibraryTokenizer]:
    run = run_in(tmp_path_factory.mktemp("trained"))
    return {name: make().create_tokenizer(run, lambda: TEXTS) for name, make in MAKERS.items()}


@given(LIKELY)
def test_byte_level_tokenizers_give_every_text_back(trained: dict[str, LibraryTokenizer], text: str) -> None:
    for name in LOSSLESS:
        tokenizer = trained[name]
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.byte_lengths is not None
        assert tokenizer.byte_lengths[ids].sum() == len(text.encode())
        assert tokenizer.unknown is None


@given(st.lists(LIKELY, max_size=4))
def test_all_ways_to_encode_agree_and_no_text_holds_an_end(
    trained: dict[str, LibraryTokenizer], texts: list[str]
) -> None:
    for tokenizer in trained.values():
        ids, sizes = tokenizer.encode_flat(texts)
        each = [tokenizer.encode(text) for text in texts]
        assert [found.tolist() for found in tokenizer.encode_batch(texts)] == each
        assert (ids.tolist(), sizes.tolist()) == (
            [number for found in each for number in found],
            list(map(len, each)),
        )
        assert tokenizer.end not in ids
        assert all(0 <= number < tokenizer.vocabulary for number in ids.tolist())


@given(TEXT, TEXT, st.sampled_from([token for token in SPECIAL if token != "ab"]))
def test_a_special_token_is_one_id_in_any_surrounding(
    trained: dict[str, LibraryTokenizer], before: str, after: str, token: str
) -> None:
    for tokenizer in trained.values():
        (number,) = tokenizer.encode(token)
        # None of the others can begin before it and end within it.
        assert tokenizer.encode(before + token + after).count(number) >= 1
        assert tokenizer.piece(number) == token
        assert tokenizer.decode([number]) == token


def test_of_two_special_tokens_the_longer_one_is_read(trained: dict[str, LibraryTokenizer]) -> None:
    for tokenizer in trained.values():
        assert [tokenizer.piece(number) for number in tokenizer.encode("abcabab")] == ["abc", "ab", "ab"]


@given(LIKELY)
def test_a_saved_tokenizer_is_the_same_one(trained: dict[str, LibraryTokenizer], text: str) -> None:
    for name, tokenizer in trained.items():
        saved = tokenizer.save()
        again = MAKERS[name]().load_tokenizer(None, saved)
        assert again.save() == saved
        assert (again.vocabulary, again.end, again.pad) == (
            tokenizer.vocabulary,
            tokenizer.end,
            tokenizer.pad,
        )
        assert again.unknown == tokenizer.unknown
        assert again.encode(text) == tokenizer.encode(text)
        assert again.decode(again.encode(text)) == tokenizer.decode(tokenizer.encode(text))
        assert (again.byte_lengths is None) == (tokenizer.byte_lengths is None)


@given(LIKELY)
def test_normalisation_is_all_that_a_normalised_byte_level_tokenizer_loses(
    trained: dict[str, LibraryTokenizer], text: str
) -> None:
    tokenizer = trained["bpe-lower"]
    decoded = tokenizer.decode(tokenizer.encode(text))
    assert tokenizer.byte_lengths is None
    if not any(token in text for token in SPECIAL):
        # The library's lower case goes by each character alone, which is Python's but for a final sigma.
        expected = "".join(map(str.lower, unicodedata.normalize("NFKC", text)))
        assert decoded == expected


@given(LIKELY)
def test_what_the_character_level_loses_are_unknown_characters_and_the_sign_for_a_space(
    trained: dict[str, LibraryTokenizer], text: str
) -> None:
    tokenizer = trained["unigram-characters"]
    ids = tokenizer.encode(text)
    outside = cut_out(text)
    if set(outside) <= set(cut_out("".join(TEXTS))):
        assert tokenizer.unknown not in ids
        assert tokenizer.decode(ids) == text
    elif "\u2581" not in outside:
        assert tokenizer.unknown in ids


def test_wordpiece_loses_white_space_case_and_words_with_unknown_characters(
    trained: dict[str, LibraryTokenizer],
) -> None:
    tokenizer = trained["wordpiece"]
    assert tokenizer.decode(tokenizer.encode("The  CAT\n\nsat")) == "the cat sat"
    ids = tokenizer.encode("the caω cat")
    assert ids.count(tokenizer.unknown) == 1
    assert tokenizer.decode(ids) == "the [UNK] cat"
    assert tokenizer.encode("日本語") == [
        *tokenizer.encode("日"),
        *tokenizer.encode("本"),
        *tokenizer.encode("語"),
    ]
    assert tokenizer.unknown not in tokenizer.encode("unwalking cats")


def test_the_vocabulary_is_never_larger_than_the_plan_says(tmp_path: Path) -> None:
    many = ["".join(map(chr, range(0x3400, 0x3C00))) + " the cat"] * 3
    for make in (
        lambda: WordPiece(vocabulary=64),
        lambda: Unigram(vocabulary=300),
        lambda: Bpe(vocabulary=300, special=("x y",)),
    ):
        made = make().create_tokenizer(run_in(tmp_path), lambda: many)
        assert made.vocabulary <= make().vocabulary
        assert make().estimate(Facts()).vocabulary == make().vocabulary


def test_the_most_frequent_characters_are_kept(tmp_path: Path) -> None:
    made = WordPiece(vocabulary=32).create_tokenizer(
        run_in(tmp_path), lambda: ["abc " * 50 + "xyz" + "defgh " * 20]
    )
    assert made.unknown not in made.encode("abc gab")
    assert made.encode("z") == [made.unknown]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("texts", [[], [""], ["<drug>"], [" a"]])
def test_next_to_no_text_gives_a_small_tokenizer(name: str, texts: list[str], tmp_path: Path) -> None:
    made = MAKERS[name]().create_tokenizer(run_in(tmp_path), lambda: texts)
    assert made.vocabulary <= 256 + 2 + len(SPECIAL)
    assert made.decode(made.encode("<drug>")) == "<drug>"


def test_nothing_is_learnt_of_special_tokens(tmp_path: Path) -> None:
    texts = ["<molecule> " * 200 + "the cat"]
    bare = Bpe(vocabulary=300).create_tokenizer(run_in(tmp_path), lambda: texts)
    named = Bpe(vocabulary=300, special=("<molecule>",)).create_tokenizer(run_in(tmp_path), lambda: texts)
    assert any("mol" in bare.piece(number) for number in range(bare.vocabulary))
    assert [named.piece(number) for number in range(named.vocabulary) if "mol" in named.piece(number)] == [
        "<molecule>"
    ]


@pytest.mark.parametrize(
    ("made", "problems"),
    [
        (lambda: Bpe(vocabulary=300, special=("a", "a")), [("special", "the token 'a' is there twice")]),
        (lambda: Bpe(special=("<|end|>",)), [("special", "the token '<|end|>' is there twice")]),
        (lambda: WordPiece(special=("[UNK]",)), [("special", "the token '[UNK]' is there twice")]),
        (
            lambda: Bpe(special=("a\nb",)),
            [("special", "a special token cannot go over the end of a line, as 'a\\nb' does")],
        ),
        (
            lambda: Bpe(special=(" ",)),
            [("special", "a special token has to hold something that can be seen, unlike ' '")],
        ),
        (
            lambda: Bpe(vocabulary=260, special=tuple(map(str, range(10)))),
            [("vocabulary", "267 entries are needed for what the settings name, and there are 260")],
        ),
        (
            lambda: Unigram(vocabulary=256),
            [("vocabulary", "257 entries are needed for what the settings name, and there are 256")],
        ),
        (lambda: Unigram(vocabulary=64, level="characters"), []),
        (lambda: Bpe(special=("<a>", "<b>")), []),
    ],
)
def test_special_tokens_that_cannot_be_are_problems(
    made: Callable[[], Any], problems: list[tuple[str, str]]
) -> None:
    assert list(made().check_settings()) == problems


def test_a_special_token_that_is_the_librarys_name_for_a_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="TXT017 'é' cannot be a special token of this vocabulary"):
        Bpe(vocabulary=300, special=("é",)).create_tokenizer(run_in(tmp_path), lambda: TEXTS)


def test_every_kind_is_the_same_in_other_processes_with_other_numbers_of_threads(
    trained: dict[str, LibraryTokenizer], tmp_path: Path
) -> None:
    code = f"""
import hashlib, pathlib
from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel_text.tokenizers.components import Bpe, Unigram, WordPiece
folder = pathlib.Path({str(tmp_path)!r})
run = Run(name="test", folder=folder, cache=folder, train=Train())
texts = {TEXTS!r}
for make in (WordPiece(vocabulary=260, special={SPECIAL!r}), Unigram(vocabulary=400, special={SPECIAL!r}),
             Unigram(vocabulary=160, special={SPECIAL!r}, level="characters")):
    print(hashlib.sha256(make.create_tokenizer(run, lambda: texts).save()).hexdigest())
"""
    from hashlib import sha256

    names = ("wordpiece", "unigram", "unigram-characters")
    expected = [sha256(trained[name].save()).hexdigest() for name in names]
    for threads in ("1", "3"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
        assert done.stdout.decode().split() == expected


@given(st.permutations(["ab", "cd", "x", "y", "z"]), st.floats(-1e-11, 1e-11))
def test_a_unigram_model_is_settled_whatever_the_order_and_the_last_digits(
    order: list[str], noise: float
) -> None:
    scores = {"ab": -2.5 + noise, "cd": -3.1234567 - noise, "x": -9.0, "y": -9.0 + 1e-4, "z": -9.0 + 2e-4}
    unneeded = sorted(scores[each] for each in "xyz")
    dealt = dict(zip([each for each in order if each in "xyz"], unneeded, strict=True))
    model = {
        "type": "Unigram",
        "vocab": [["<unk>", 0.0], *([each, (scores | dealt)[each]] for each in order)],
    }
    assert settled(model, "<unk>")["vocab"] == [
        ["<unk>", -1e6],
        ["ab", -2.5],
        ["cd", -3.12346],
        ["x", -8.9998],
        ["y", -8.9999],
        ["z", -9.0],
    ]


@given(
    st.lists(
        st.sampled_from(["word", "it's", " ", "  ", "\n", "\r\n", "\t", "42", "日本", "<drug>", "!?"]),
        max_size=60,
    )
)
def test_pieces_of_a_long_text_give_the_tokens_of_the_whole(
    trained: dict[str, LibraryTokenizer], parts: list[str]
) -> None:
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "PIECE", 5)
        pieces = cut(text)
    for tokenizer in trained.values():
        assert tokenizer.encode_flat(pieces)[0].tolist() == tokenizer.encode(text)


@pytest.mark.parametrize("name", MAKERS)
def test_a_saved_tokenizer_that_is_cut_off_or_another_is_refused(
    trained: dict[str, LibraryTokenizer], name: str
) -> None:
    saved = trained[name].save()
    other = trained["wordpiece" if name != "wordpiece" else "bpe"].save()
    for wrong in (saved[: len(saved) // 2], saved[:-1], b"", b"\xff\xfe", b"[]", b'{"model": {}}', other):
        with pytest.raises(DataError, match="TXT012 the saved tokenizer"):
            MAKERS[name]().load_tokenizer(None, wrong)


def test_the_alphabet_is_that_of_the_library() -> None:
    from tokenizers import pre_tokenizers

    assert set(alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(alphabet().values()) == list(range(256))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for character, number in alphabet().items():
        if number < 128:
            assert level.pre_tokenize_str(chr(number))[0][0] == character
