"""Metrics of a classification from counts that add up: the same for any batches and any number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

#: Bins of confidence, of equal width, each with its upper end (Guo et al., 2017).
BINS = 15


def scores(counts: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics of rows that have one class each. The expected calibration error is the mean distance of confidence
    and accuracy, bin by bin. None for all where there was nothing to count."""
    values = of_confusion(counts)
    correct, confidence = np.array(counts["bin_correct"]), np.array(counts["bin_confidence"])
    rows = np.array(counts["bin_rows"]).sum()
    values["calibration_error"] = float(np.abs(correct - confidence).sum() / rows) if rows else None
    return values


def of_confusion(counts: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics that "loss_sum" and "confusion" tell. None for all where there was nothing to count.

    F1 of a class that occurs neither among labels nor answers is 0, and so is Matthews' coefficient where it is not
    defined.
    """
    flat = np.array(counts["confusion"], dtype=np.float64)
    confusion = flat.reshape(round(len(flat) ** 0.5), -1)
    rows = confusion.sum()
    names = ("loss", "accuracy", "f1_micro", "f1_macro", "matthews")
    if not rows:
        return dict.fromkeys(names)
    right, true, said = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    accuracy = right.sum() / rows
    f1 = 2 * right / np.maximum(true + said, 1)
    values = (
        counts["loss_sum"] / rows,
        accuracy,
        # With one label and one answer to each row, precision and recall over all of them are the accuracy.
        accuracy,
        f1.mean(),
        _matthews(right.sum(), rows, true, said),
    )
    return dict(zip(names, map(float, values), strict=True))


def of_sets(counts: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics of rows that have any number of labels. None for all where there was nothing to count. F1 of a label
    that occurs neither in truth nor answers is 0."""
    rows = float(counts["set_rows"])
    right, true, said = np.array(counts["sets"], dtype=np.float64).reshape(3, -1)
    names = ("loss", "accuracy", "f1_micro", "f1_macro")
    if not rows:
        return dict.fromkeys(names)
    values = (
        counts["loss_sum"] / (rows * len(true)),
        counts["set_right"] / rows,
        2 * right.sum() / max((true + said).sum(), 1),
        (2 * right / np.maximum(true + said, 1)).mean(),
    )
    return dict(zip(names, map(float, values), strict=True))


def _matthews(right: float, rows: float, true: Any, said: Any) -> float:
    """The correlation of labels and answers (Gorodkin, 2004)."""
    spread = (rows**2 - (said**2).sum()) * (rows**2 - (true**2).sum())
    return float((right * rows - (true * said).sum()) / spread**0.5) if spread > 0 else 0.0
