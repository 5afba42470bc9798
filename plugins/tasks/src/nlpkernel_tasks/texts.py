"""How like a text is to the right one, as counts that add up: BLEU, chrF and ROUGE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from nlpkernel.errors import PluginError, fail
from nlpkernel_tasks.codes import OWNER
from nlpkernel_tasks.measures import Measure

#: Longest n-grams of words, for BLEU, and of characters, for chrF.
_WORDS, _CHARACTERS = 4, 6
#: How much recall counts beside precision, in chrF.
_BETA = 2.0
_WORD = re.compile(r"[a-z0-9]+")


def counted(measures: Sequence[Measure], texts: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """The counts of each text, float64 [texts, counts], by measure."""
    each = {"bleu": _bleu, "chrf": _chrf, "rouge": _rouge}
    pairs = list(zip(texts, references, strict=True))
    return {
        measure: np.array([each[measure](*pair) for pair in pairs], dtype=np.float64) for measure in measures
    }


def valued(counts: Mapping[str, Any]) -> dict[str, float | None]:
    """The measures of summed counts, from 0 to 100.

    bleu: as sacrebleu has it, by its tokenizer 13a, with exponential smoothing (Papineni et al., 2002; Post, 2018).
    chrf: chrF2, of n-grams of up to 6 characters without white space (Popović, 2015). rouge_1, rouge_2, rouge_l: the
    mean F1 of a text's words, pairs of words, and longest common subsequence (Lin, 2004), of words of the letters a to
    z and digits, all in small letters, without stemming.
    """
    values: dict[str, float | None] = {}
    if "bleu" in counts:
        values["bleu"] = _bleu_of(np.array(counts["bleu"]))
    if "chrf" in counts:
        values["chrf"] = _chrf_of(np.array(counts["chrf"]))
    if "rouge" in counts:
        *sums, texts = np.array(counts["rouge"]).tolist()
        for name, total in zip(("rouge_1", "rouge_2", "rouge_l"), sums, strict=True):
            values[name] = 100 * total / texts if texts else None
    return values


def signature() -> str:
    """What sacrebleu calls the BLEU of `valued`."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())


def _sacrebleu() -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise fail(
            PluginError,
            "TSK007",
            "BLEU needs the package sacrebleu, which is not installed",
            owner=OWNER,
            hint='pip install "nlpkernel-plugin-tasks[texts]", or take "bleu" out of `measures`',
        ) from error
    # Of single sentences only the counts are wanted.
    return BLEU(effective_order=True)


def _bleu(text: str, reference: str) -> list[float]:
    """Right n-grams and all of them, of each length; lengths of text and reference."""
    score = _sacrebleu().sentence_score(text, [reference])
    return [*score.counts, *score.totals, score.sys_len, score.ref_len]


def _bleu_of(counts: Any) -> float | None:
    if not counts.any():
        return None
    from sacrebleu.metrics.bleu import BLEU

    whole = counts.round().astype(int).tolist()
    right, total = whole[:_WORDS], whole[_WORDS : 2 * _WORDS]
    mine, theirs = whole[2 * _WORDS :]
    return float(BLEU.compute_bleu(right, total, mine, theirs, smooth_method="exp").score)


def _chrf(text: str, reference: str) -> list[float]:
    """Of each length: n-grams of the text, of the reference, and of both. A text whose reference is too short for some
    length counts nothing there."""
    found: list[float] = []
    parts = ["".join(each.split()) for each in (text, reference)]
    for size in range(1, _CHARACTERS + 1):
        said, true = (Counter(each[at : at + size] for at in range(len(each) - size + 1)) for each in parts)
        found += [said.total() if true else 0, true.total(), (said & true).total()]
    return found


def _chrf_of(counts: Any) -> float | None:
    said, true, both = counts.reshape(_CHARACTERS, 3).T
    if not true.any():
        return None
    real = (said > 0) & (true > 0)
    if not real.any():
        return 0.0
    precision, recall = (both[real] / said[real]).mean(), (both[real] / true[real]).mean()
    low = _BETA**2 * precision + recall
    return float(100 * (1 + _BETA**2) * precision * recall / low) if low else 0.0


def _rouge(text: str, reference: str) -> list[float]:
    said, true = (_WORD.findall(each.lower()) for each in (text, reference))
    pairs = [Counter(pairwise(each)) for each in (said, true)]
    alike = [(Counter(said) & Counter(true)).total(), (pairs[0] & pairs[1]).total(), _common(said, true)]
    sizes = [len(said) + len(true), pairs[0].total() + pairs[1].total(), len(said) + len(true)]
    return [*(2 * same / both if same else 0.0 for same, both in zip(alike, sizes, strict=True)), 1.0]


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    before = [0] * (len(second) + 1)
    for word in first:
        row = [0]
        for at, other in enumerate(second):
            row.append(before[at] + 1 if word == other else max(before[at + 1], row[at]))
        before = row
    return before[-1]
