from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nlpkernel_clean.bands import CHANCE, MOST, bands_for, found
from nlpkernel_clean.components.duplicates import Duplicates, NearDuplicates
from nlpkernel_clean.exact import Exact
from nlpkernel_clean.near import Near
from nlpkernel_clean.signatures import Signer
from nlpkernel_clean.table import Names, Table

from .conftest import Make, documents, left, one

# -- exact ----------------------------------------


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=3)), st.integers(1, 7))
def test_the_first_of_each_text_stays_however_they_come(texts: list[str], batch: int) -> None:
    assert left(Exact(Duplicates()), texts, batch) == list(dict.fromkeys(texts))


def test_a_duplicate_names_the_document_that_it_repeats(make: Make) -> None:
    stage = make(Duplicates)
    here = stage.apply(documents(["x", "y", "x"]))
    assert here.dropped == {2: "duplicate"}
    assert here.notes == {2: "the same as some/texts.jsonl:1"}
    later = stage.apply(documents(["z", "y"], first=3))
    assert later.notes == {1: "the same as some/texts.jsonl:2"}


@pytest.mark.parametrize(
    ("ignore", "texts"),
    [
        (("case",), ["Straße", "STRASSE"]),
        (("space",), ["a  b\n", " a b"]),
        (("punctuation",), ["a, b!", "a b"]),
        (("digits",), ["on 12 May", "on 7 May"]),
        (("case", "space", "punctuation", "digits"), ["A-1  b", "a2, B."]),
    ],
)
def test_what_makes_no_difference_is_ignored(make: Make, ignore: tuple[str, ...], texts: list[str]) -> None:
    assert left(make(Duplicates, ignore=ignore), texts) == texts[:1]
    assert left(make(Duplicates), texts) == texts


def test_repeated_lines_go_and_the_rest_stays(make: Make) -> None:
    stage = make(Duplicates, scope="lines", least=5)
    texts = ["cookie notice\nfirst\n}\n", "second\ncookie notice\n}\nend", "cookie notice", "first\n\nfirst"]
    outcome = stage.apply(documents(texts))
    assert outcome.texts == ["cookie notice\nfirst\n}\n", "second\n}\nend", "", ""]
    assert outcome.counts == {"repeated lines removed": 4}
    assert outcome.notes[1] == "1 lines removed that stand in some/texts.jsonl:1"
    assert left(stage, ["second\nnew line\nfirst"]) == ["new line"]


def test_repeated_paragraphs_go_with_what_stood_before_them(make: Make) -> None:
    stage = make(Duplicates, scope="paragraphs", least=3)
    assert left(stage, ["one\n\ntwo\n \nthree", "four\n\n\ntwo\n\nfive", "two\n\nsix"]) == [
        "one\n\ntwo\n \nthree",
        "four\n\nfive",
        "six",
    ]


@given(
    st.lists(
        st.lists(st.sampled_from(["aaa", "bbb", "ccc", "ddd", ""]), max_size=6).map("\n".join), max_size=8
    )
)
def test_each_line_of_the_whole_is_left_once(texts: list[str]) -> None:
    texts = [text for text in texts if text]
    kept = left(Exact(Duplicates(scope="lines", least=1)), texts, 3)
    lines = [line for text in kept for line in text.split("\n") if line]
    assert sorted(lines) == sorted({line for text in texts for line in text.split("\n") if line})


def test_memory_for_a_document_is_what_the_readme_says() -> None:
    stage = Exact(Duplicates())
    for first in range(0, 60_000, 5000):
        stage.apply(documents([f"text number {at}" for at in range(first, first + 5000)], first))
    assert stage.seen.bytes / 60_000 < 60


# -- tables ----------------------------------------


#: Keys that go to the first slots and the last, and some that share a slot.
KEYS = np.array([0, 1, 2, 3, 4096, 2**32, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1], dtype=np.uint64)


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=20), max_size=5))
def test_a_table_finds_all_that_was_put_into_it(batches: list[list[tuple[int, int]]]) -> None:
    table, plain = Table(), set[tuple[int, int]]()
    for batch in batches:
        pairs = sorted(set(batch) - plain)
        plain |= set(pairs)
        # More than 32 numbers under one key are not kept; another test.
        assume(max(Counter(key for key, _ in plain).values(), default=0) <= 32)
        table.add(KEYS[[key for key, _ in pairs]], np.array([value for _, value in pairs], dtype=np.int64))
    where, what = table.find(KEYS)
    assert sorted(zip(where.tolist(), what.tolist(), strict=True)) == sorted(plain)
    assert len(table) == len(plain)


def test_a_table_grows_and_keeps_everything() -> None:
    table, keys = Table(), np.random.default_rng(1).integers(0, 2**64, 50_000, dtype=np.uint64)
    for first in range(0, 50_000, 7000):
        part = keys[first : first + 7000]
        table.add(part, np.arange(first, first + len(part)))
    where, what = table.find(keys)
    assert len(table) == 50_000
    assert np.array_equal(np.sort(where), np.arange(50_000))
    assert np.array_equal(where, what)


def test_a_number_that_does_not_fit_is_an_error_and_not_another_one() -> None:
    with pytest.raises(OverflowError):
        Table().add(np.array([1], dtype=np.uint64), np.array([1 << 32]))


def test_a_key_that_everybody_shares_stays_quick() -> None:
    table = Table()
    for at in range(2000):
        table.add(np.array([5], dtype=np.uint64), np.array([at]))
    assert len(table) == 32
    assert len(table.find(np.array([5], dtype=np.uint64))[0]) == 32


@given(st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=4)))
def test_names_come_back_by_number(batches: list[list[str]]) -> None:
    names, plain = Names(), []
    for batch in batches:
        names.append(batch)
        plain += [name.replace("\n", " ") for name in batch]
    assert [names[at] for at in range(len(plain))] == plain


# -- near ----------------------------------------


@given(st.sampled_from([16, 64, 128, 256]), st.floats(0.3, 1), st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99]))
def test_bands_and_the_estimate_lose_what_the_recall_allows_and_bands_are_the_longest(
    permutations: int, threshold: float, recall: float
) -> None:
    made = bands_for(permutations, threshold, recall)
    assert made.bands * made.rows <= permutations
    assert made.bands <= MOST
    lost = (1 - recall) / 2
    assert found(threshold, made.bands, made.rows) >= 1 - lost - 1e-9
    longer = made.rows + 1
    if longer <= permutations:
        assert found(threshold, min(MOST, permutations // longer), longer) < 1 - lost


@pytest.mark.parametrize("permutations", [128, 256])
@pytest.mark.parametrize("threshold", [0.6, 0.8, 0.9])
@pytest.mark.parametrize("recall", [0.8, 0.95])
def test_the_recall_is_what_the_exact_probabilities_say(
    permutations: int, threshold: float, recall: float
) -> None:
    made = bands_for(permutations, threshold, recall)
    # Numbers agree where both documents have the same one, or by chance: that is binomial.
    agree = threshold + (1 - threshold) * CHANCE

    def reached(least: int) -> float:
        return sum(
            math.comb(permutations, count) * agree**count * (1 - agree) ** (permutations - count)
            for count in range(least, permutations + 1)
        )

    candidates = found(threshold, made.bands, made.rows)
    assert candidates * reached(made.agreeing) >= recall
    assert candidates * reached(made.agreeing + 1) < recall


def pairs_at(similarity: float, count: int, shingles: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of documents whose sets of three words in a row have this Jaccard index, to a shingle."""
    draw = random.Random(seed)
    common = round(2 * shingles * similarity / (1 + similarity))
    made = []
    for _ in range(count):
        words = [f"w{draw.getrandbits(40):x}" for _ in range(shingles + 2)]
        tail = [f"w{draw.getrandbits(40):x}" for _ in range(shingles - common)]
        made.append((" ".join(words), " ".join(words[: common + 2] + tail)))
    return made


@pytest.mark.parametrize(("shingles", "batch"), [(90, 1), (90, 1000), (450, 64)])
def test_recall_at_jaccard_080_is_at_least_095(make: Make, shingles: int, batch: int) -> None:
    pairs = pairs_at(0.8, 300, shingles, seed=shingles + batch)
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    if batch == 1:
        # All first ones, then all second ones: found through the table.
        kept = left(make(NearDuplicates), first + second, 50)
    else:
        # Side by side: found within the batch.
        kept = left(make(NearDuplicates), [text for pair in pairs for text in pair], batch)
    assert set(first) <= set(kept)
    assert 1 - (len(kept) - 300) / 300 >= 0.95


def test_documents_that_share_half_stay(make: Make) -> None:
    pairs = pairs_at(0.5, 400, 90, seed=5)
    assert len(left(make(NearDuplicates), [text for pair in pairs for text in pair], 100)) == 800


def test_estimates_are_right_on_average_and_as_close_as_theory_says() -> None:
    signer = Signer(128, "words", 3)
    for similarity in (0.3, 0.8):
        pairs = pairs_at(similarity, 300, 60, seed=3)
        estimates = (signer.sign([a for a, _ in pairs]) == signer.sign([b for _, b in pairs])).mean(axis=1)
        common = round(2 * 60 * similarity / (1 + similarity))
        true = common / (2 * 60 - common)
        spread = (true * (1 - true) / 128) ** 0.5
        assert estimates.mean() == pytest.approx(true, abs=4 * spread / 300**0.5)
        assert estimates.std() == pytest.approx(spread, rel=0.15)


def test_a_near_duplicate_names_the_earlier_document_and_the_estimate(make: Make) -> None:
    text = " ".join(f"word{at}" for at in range(100))
    stage = make(NearDuplicates)
    assert not stage.apply(documents(["something else", text])).dropped
    outcome = stage.apply(documents([text + " more"], first=2))
    assert outcome.dropped == {0: "near-duplicate"}
    assert outcome.notes[0].startswith("nearly the same as some/texts.jsonl:2: Jaccard index about 0.9")


def test_what_was_dropped_draws_no_others_after_it(make: Make) -> None:
    """Each is near the one before; only the distance to documents that stay counts."""
    words = [f"w{at}" for at in range(400)]
    texts = [" ".join(words[shift : shift + 200]) for shift in range(0, 120, 20)]
    kept = left(make(NearDuplicates), texts, 2)
    assert kept[0] == texts[0]
    assert 2 <= len(kept) < len(texts)


@pytest.mark.parametrize("shingle", ["words", "characters"])
def test_the_same_text_is_found_whatever_its_length(make: Make, shingle: str) -> None:
    texts = ["...", "a", "ab", "a b", "a b c", "a b c d", "漢字", "🙂🙂"]
    stage = make(NearDuplicates, shingle=shingle, threshold=1)
    assert left(stage, texts, 3) == texts
    assert left(stage, texts) == []


@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=8),
    st.sampled_from(["words", "characters"]),
    st.integers(1, 5),
)
def test_a_signature_depends_on_its_text_alone(texts: list[str], unit: str, size: int) -> None:
    texts = [text or "-" for text in texts]
    together = Signer(16, unit, size).sign(texts)
    for at, text in enumerate(texts):
        assert np.array_equal(Signer(16, unit, size).sign([text])[0], together[at])


@given(
    st.lists(st.sampled_from(["a b c d", "a b c d e", "x y z", "x y", "q"]), max_size=12), st.integers(1, 5)
)
def test_near_duplicates_at_one_are_the_exact_ones(texts: list[str], batch: int) -> None:
    stage = Near(NearDuplicates(threshold=1, permutations=64, size=2))
    assert left(stage, texts, batch) == list(dict.fromkeys(texts))


def test_memory_for_a_near_duplicate_is_what_the_readme_says() -> None:
    stage = Near(NearDuplicates())
    draw = random.Random(2)
    for first in range(0, 6000, 1000):
        texts = [" ".join(f"{draw.getrandbits(30):x}" for _ in range(20)) for _ in range(1000)]
        stage.apply(documents(texts, first))
    assert stage.bytes / 6000 < 800


def test_empty_batches_are_nothing(make: Make) -> None:
    for kind in (Duplicates, NearDuplicates):
        assert left(make(kind), []) == []
        assert one(make(kind), "x")[1].texts is None
