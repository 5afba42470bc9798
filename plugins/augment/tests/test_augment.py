from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.context import Run
from nlpkernel.errors import DataError
from nlpkernel.hookspecs.augmentation import Augmentation
from nlpkernel.plan.train import Train
from nlpkernel_augment.changing import Deleting, Inserting, Replacing, Swapping
from nlpkernel_augment.component import Delete, Insert, Swap, Synonyms, Typos
from nlpkernel_augment.draws import Draws, Picked
from nlpkernel_augment.typing_errors import Mistyping, neighbours
from nlpkernel_augment.words import as_written, cut

KNOWN = {"a": ("b", "c"), "dog": ("hound", "mutt")}
MAKERS: dict[str, Callable[[float], Augmentation]] = {
    "synonyms": lambda strength: Replacing(strength, KNOWN),
    "insert": Inserting,
    "insert synonyms": lambda strength: Inserting(strength, KNOWN),
    "delete": Deleting,
    "swap": Swapping,
    "swap near": lambda strength: Swapping(strength, 1),
    "typos": lambda strength: Mistyping(strength, "qwerty", 2),
}

texts = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=40),
        st.lists(
            st.sampled_from(["dog", "Dog", "a", "don't", " ", "  ", "\n", ", ", "x-y", "漢字", "_"]),
            min_size=1,
        ).map("".join),
    ),
    max_size=5,
)
strengths = st.sampled_from([0.05, 0.3, 0.8, 1.0])
seeds = st.integers(0, 2**64 - 1)


def keys(*values: int) -> Any:
    return np.array(values, dtype=np.uint64)


def many(count: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


# -- what holds for all ----------------------------------------


@pytest.mark.parametrize("name", MAKERS)
@given(texts=texts, seed=seeds)
def test_strength_zero_is_the_identity(name: str, texts: list[str], seed: int) -> None:
    assert list(MAKERS[name](0.0).apply(texts, keys(*[seed] * len(texts)))) == texts


@pytest.mark.parametrize("name", MAKERS)
@given(texts=texts, seed=seeds, strength=strengths)
def test_a_text_is_a_function_of_itself_and_its_key_and_never_empty(
    name: str, texts: list[str], seed: int, strength: float
) -> None:
    own = keys(*[(seed + 7 * at) % 2**64 for at in range(len(texts))])
    together = list(MAKERS[name](strength).apply(texts, own))
    alone = [MAKERS[name](strength).apply([text], own[at : at + 1])[0] for at, text in enumerate(texts)]
    assert together == alone
    assert all(together)
    assert len(together) == len(texts)


@pytest.mark.parametrize("name", MAKERS)
def test_another_key_gives_another_text(name: str) -> None:
    text = " ".join(["a dog that barks at a dog"] * 20)
    made = MAKERS[name](0.3).apply([text] * 50, many(50))
    assert len(set(made)) == 50


@given(st.text())
def test_a_cut_text_joins_to_itself_and_its_words_are_words(text: str) -> None:
    parts = cut(text)
    assert "".join(parts) == text
    assert len(parts) % 2 == 1
    assert all(re.fullmatch(r"[^\W_].*", word, re.DOTALL) for word in parts[1::2])


# -- strength ----------------------------------------


@pytest.mark.parametrize("strength", [0.01, 0.1, 0.5, 0.9])
def test_each_word_is_picked_with_the_probability_and_on_its_own(strength: float) -> None:
    texts, words = 2000, 50
    picked = np.zeros((texts, words), dtype=bool)
    for text, which in Picked(many(texts), [words] * texts, strength):
        picked[text, which] = True
    spread = (strength * (1 - strength)) ** 0.5
    assert picked.mean() == pytest.approx(strength, abs=4 * spread / (texts * words) ** 0.5)
    # Each place, and the number in a text: as binomial as independent words are.
    assert abs(picked.mean(axis=0) - strength).max() < 5 * spread / texts**0.5
    assert picked.sum(axis=1).var() == pytest.approx(words * spread**2, rel=0.15)
    together = (picked[:, :-1] & picked[:, 1:]).mean()
    assert together == pytest.approx(strength**2, abs=5 * strength / (texts * words) ** 0.5)


@given(st.lists(st.integers(0, 5), max_size=8), seeds)
def test_all_are_picked_at_one(counts: list[int], seed: int) -> None:
    found = dict(Picked(keys(*range(seed % 1000, seed % 1000 + len(counts))), counts, 1.0))
    assert found == {at: list(range(count)) for at, count in enumerate(counts) if count}


def test_draws_are_uniform() -> None:
    counts = Counter(Draws(each).below(7, 3) for each in many(7000))
    assert set(counts) == set(range(7))
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 25


def changes(augmentation: Augmentation, text: str, count: int = 400) -> list[list[str]]:
    return [cut(each)[1::2] for each in augmentation.apply([text] * count, many(count))]


def near(share: float, right: float, draws: int) -> bool:
    return abs(share - right) < 4.5 * (right * (1 - right) / draws) ** 0.5


def test_the_share_of_words_that_change_is_the_strength() -> None:
    text = " ".join(["dog"] * 40)
    assert near(
        np.mean([[word != "dog" for word in words] for words in changes(Replacing(0.2, KNOWN), text)]),
        0.2,
        16_000,
    )
    assert near(np.mean([len(words) / 40 - 1 for words in changes(Inserting(0.2), text)]), 0.2, 16_000)
    assert near(np.mean([1 - len(words) / 40 for words in changes(Deleting(0.2), text)]), 0.2, 16_000)
    # A doubled g, say, is no other word than with letters hit beside, but always another than the given one.
    typed = changes(Mistyping(0.2, "qwerty", 2), " ".join(["dogs"] * 40))
    assert near(np.mean([[word != "dogs" for word in words] for words in typed]), 0.2, 16_000)


def test_a_swap_moves_two_words() -> None:
    words = [f"w{at}" for at in range(40)]
    alone = [made for made in changes(Swapping(0.01), " ".join(words)) if made != words]
    # One of 40 is picked in most of those that change at all.
    two = [made for made in alone if sum(a != b for a, b in zip(made, words, strict=True)) == 2]
    assert len(two) > 0.7 * len(alone)
    assert near(len(alone) / 400, 1 - 0.99**40, 400)


# -- synonyms ----------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(name="test", folder=tmp_path, cache=tmp_path, train=Train())


def made(run: Run, kind: type, texts: Sequence[str], count: int = 60, **settings: Any) -> list[set[str]]:
    """All that becomes of each text."""
    augmentation = run.ask(kind(**settings), "create_augmentation")
    return [set(augmentation.apply([text] * count, many(count))) for text in texts]


def test_synonyms_come_from_wordnet_in_the_same_capitals(run: Run, wordnet: Path) -> None:
    texts = ["buy", "Buy", "BUY", "car", "quickly", "unknown", "house", "in"]
    assert made(run, Synonyms, texts, strength=1, path=wordnet) == [
        {"purchase"},
        {"Purchase"},
        {"PURCHASE"},
        {"auto", "automobile"},
        {"rapidly", "speedily"},
        {"unknown"},
        {"house"},
        {"in"},
    ]


def test_senses_parts_phrases_and_kept_words_are_settings(run: Run, wordnet: Path) -> None:
    def of(word: str, **settings: Any) -> set[str]:
        return made(run, Synonyms, [word], strength=1, path=wordnet, **settings)[0]

    assert of("quick") == {"speedy"}
    assert of("quick", senses=2) == {"speedy", "agile", "nimble"}
    # The first noun sense has phrases alone; the verb's stay.
    assert of("dog") == {"chase", "tail"}
    assert of("dog", parts=("noun",)) == {"dog"}
    assert of("dog", parts=("noun",), senses=2) == {"frank"}
    assert of("dog", parts=("noun",), senses=2, phrases=True) == {
        "domestic dog",
        "Canis familiaris",
        "frank",
        "hot dog",
    }
    assert of("galore") == {"plenty"}
    assert of("Buy", keep=("BUY",)) == {"Buy"}


def test_what_stands_between_words_stays(run: Run, wordnet: Path) -> None:
    (found,) = made(run, Synonyms, ["\tBuy,  a (quick)\n\ncar!"], strength=1, path=wordnet)
    assert found == {"\tPurchase,  a (speedy)\n\nauto!", "\tPurchase,  a (speedy)\n\nautomobile!"}


@pytest.mark.parametrize(
    ("model", "word", "right"),
    [
        ("Dog", "hot dog", "Hot dog"),
        ("DOG", "hound", "HOUND"),
        ("dog", "Canis", "Canis"),
        ("I", "one", "One"),
    ],
)
def test_capitals_are_kept(model: str, word: str, right: str) -> None:
    assert as_written(model, word) == right


def test_a_missing_wordnet_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"AUG001 there is no WordNet in .*: data.noun cannot be read"):
        run.ask(Synonyms(path=tmp_path), "create_augmentation")


@pytest.mark.parametrize("file", ["data.verb", "index.verb"])
def test_a_damaged_wordnet_is_named_with_the_line(run: Run, tmp_path: Path, file: str) -> None:
    from .conftest import write_wordnet

    folder = write_wordnet(tmp_path / "dict")
    text = (folder / file).read_text()
    (folder / file).write_text(text + "purchase v\n")
    with pytest.raises(DataError, match=rf"{file}:\d+:1: AUG002"):
        run.ask(Synonyms(path=folder), "create_augmentation")


# -- insert, delete, swap ----------------------------------------


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=20), seeds, strengths)
def test_inserted_words_are_of_the_text_and_the_rest_stays_in_order(
    words: list[str], seed: int, strength: float
) -> None:
    text = Inserting(strength).apply([" ".join(words)], keys(seed))[0].split(" ")
    assert set(text) == set(words)
    rest = iter(text)
    assert all(word in rest for word in words)


def test_inserted_synonyms_are_of_words_that_have_some(run: Run, wordnet: Path) -> None:
    settings = {"strength": 1, "source": "synonyms", "path": wordnet}
    assert made(run, Insert, ["car in"], **settings)[0] == {
        f"car {one} in {two}" for one in ("auto", "automobile") for two in ("auto", "automobile")
    }
    assert made(run, Insert, ["nothing known"], **settings)[0] == {"nothing known"}


@pytest.mark.parametrize(
    ("text", "gone", "right"),
    [
        ("Hello big, wide world", [1], "Hello, wide world"),
        ("Hello big, wide world", [0], "big, wide world"),
        ("Hello big, wide world", [3], "Hello big, wide"),
        ("Hello big, wide world", [0, 1], ", wide world"),
        ("Hello big, wide world", [1, 2, 3], "Hello,"),
        ("(one two)", [0], "( two)"),
        ("  one two", [0], " two"),
    ],
)
def test_a_deleted_word_takes_the_space_before_it(text: str, gone: list[int], right: str) -> None:
    assert Deleting(0.5).change(cut(text), gone, Draws(1)) == right


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=20), seeds, strengths)
def test_what_deletion_leaves_is_in_order_and_one_word_at_least(
    words: list[str], seed: int, strength: float
) -> None:
    left = Deleting(strength).apply([" ".join(words)], keys(seed))[0].split(" ")
    assert left != [""]
    rest = iter(words)
    assert all(word in rest for word in left)


def test_when_all_go_each_word_is_as_likely_to_stay(run: Run) -> None:
    counts = Counter(run.ask(Delete(strength=1), "create_augmentation").apply(["a b c"] * 900, many(900)))
    assert set(counts) == {"a", "b", "c"}
    assert min(counts.values()) > 240


@given(texts, seeds, strengths, st.sampled_from([None, 1, 3]))
def test_swapped_words_are_the_same_words_in_the_same_frame(
    texts: list[str], seed: int, strength: float, reach: int | None
) -> None:
    for text, other in zip(
        texts, Swapping(strength, reach).apply(texts, keys(*[seed] * len(texts))), strict=True
    ):
        before, after = cut(text), cut(other)
        assert sorted(before[1::2]) == sorted(after[1::2])
        assert before[::2] == after[::2]


def test_a_swap_stays_within_reach_and_reaches_all(run: Run) -> None:
    words = [f"w{at}" for at in range(30)]
    near = run.ask(Swap(strength=0.02, reach=2), "create_augmentation").apply(
        [" ".join(words)] * 300, many(300)
    )
    far = run.ask(Swap(strength=0.5), "create_augmentation").apply(["a b c d"] * 2000, many(2000))
    for text in near:
        moved = [at for at, word in enumerate(text.split()) if word != words[at]]
        if len(moved) == 2:
            assert moved[1] - moved[0] <= 2
    assert len(set(far)) == 24


# -- typos ----------------------------------------


@pytest.mark.parametrize(
    ("keyboard", "letter", "right"),
    [
        ("qwerty", "g", "bfhtvy"),
        ("qwerty", "Q", "AW"),
        ("qwertz", "y", "asx"),
        ("azerty", "a", "qz"),
        ("qwerty", "p", "lo"),
    ],
)
def test_neighbours_lie_beside_each_other(keyboard: str, letter: str, right: str) -> None:
    assert neighbours(keyboard)[letter] == right


def distance(a: str, b: str) -> int:
    """Edits between two words: letters put in, left out, exchanged, or two beside each other swapped."""
    rows = [list(range(len(b) + 1))]
    for i, left in enumerate(a, 1):
        row = [i]
        for j, right in enumerate(b, 1):
            row.append(min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (left != right)))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                row[-1] = min(row[-1], rows[-2][j - 2] + 1)
        rows.append(row)
    return rows[-1][-1]


@given(st.text(alphabet="abcdefgABCß1é", min_size=1, max_size=12), seeds)
def test_a_mistyped_word_is_one_edit_away(word: str, seed: int) -> None:
    mistyped = Mistyping(1, "qwerty", 3).apply([word], keys(seed))[0]
    assert distance(word, mistyped) <= 1
    if sum(map(str.isalpha, word)) < 3:
        assert mistyped == word


def test_short_words_and_the_kinds_of_errors(run: Run) -> None:
    assert made(run, Typos, ["to 12 at"], strength=1)[0] == {"to 12 at"}
    found = Counter(run.ask(Typos(strength=1), "create_augmentation").apply(["abcdef"] * 2000, many(2000)))
    kinds = Counter(
        "out"
        if len(word) < 6
        else "double"
        if len(word) > 6
        else "swap"
        if sorted(word) == list("abcdef")
        else "beside"
        for word in found.elements()
    )
    assert all(near(count / 2000, 0.25, 2000) for count in kinds.values())
    assert len(kinds) == 4
