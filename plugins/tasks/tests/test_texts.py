"""Measures of texts against those of the packages that defined them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel_tasks.texts import counted, signature, valued

TEXTS = [
    ("the cat sat on the mat", "the cat is on the mat"),
    ("A man, a plan: a canal!", "A man and a plan for a canal."),
    ("", "nothing was said"),
    ("Ein Hund läuft über die Wiese.", "Ein brauner Hund rennt über die grüne Wiese."),
    ("x", "x"),
]
words = st.lists(st.sampled_from(["a", "b", "c", "dog", "cat", "the,", "runs.", "12"]), max_size=8).map(
    " ".join
)
pairs = st.lists(st.tuples(words, words.filter(bool)), min_size=1, max_size=6)


def summed(texts: list[tuple[str, str]], *measures: str) -> dict[str, float | None]:
    counts = counted(measures, *(list(each) for each in zip(*texts, strict=True)))  # type: ignore[arg-type]
    return valued({name: value.sum(axis=0) for name, value in counts.items()})


@settings(max_examples=40, deadline=None)
@given(pairs)
def test_bleu_and_chrf_of_summed_counts_are_those_of_sacrebleu(texts: list[tuple[str, str]]) -> None:
    metrics = pytest.importorskip("sacrebleu.metrics")
    for some in (texts, TEXTS):
        said, true = (list(each) for each in zip(*some, strict=True))
        found = summed(some, "bleu", "chrf")
        assert found["bleu"] == pytest.approx(metrics.BLEU().corpus_score(said, [true]).score, abs=1e-9)
        assert found["chrf"] == pytest.approx(metrics.CHRF().corpus_score(said, [true]).score, abs=1e-9)


def test_the_signature_says_how_bleu_was_counted() -> None:
    pytest.importorskip("sacrebleu")
    assert signature().startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


@settings(max_examples=40, deadline=None)
@given(pairs)
def test_rouge_is_that_of_rouge_score(texts: list[tuple[str, str]]) -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rouge2", "rougeL"])
    for some in (texts, TEXTS[:3]):
        found = summed(some, "rouge")
        for ours, theirs in (("rouge_1", "rouge1"), ("rouge_2", "rouge2"), ("rouge_l", "rougeL")):
            each = [scorer.score(true, said)[theirs].fmeasure for said, true in some]
            assert found[ours] == pytest.approx(100 * sum(each) / len(each))


def test_rouge_by_hand() -> None:
    found = summed([("the cat sat", "The cat was fat."), ("", "x")], "rouge")
    # Two of three words and two of four; one of two pairs and one of three; in this order two.
    assert found["rouge_1"] == pytest.approx(100 * (4 / 7) / 2)
    assert found["rouge_2"] == pytest.approx(100 * (2 / 5) / 2)
    assert found["rouge_l"] == pytest.approx(100 * (4 / 7) / 2)


def test_nothing_has_no_value() -> None:
    import numpy as np

    assert valued({"bleu": np.zeros(10), "chrf": np.zeros(18), "rouge": np.zeros(4)}) == dict.fromkeys(
        ["bleu", "chrf", "rouge_1", "rouge_2", "rouge_l"]
    )
