"""Labels that are probably wrong.

C. Northcutt, L. Jiang and I. Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", Journal of
Artificial Intelligence Research 70, 2021: a document is a suspect where the label in which the model is confident is
another than the one given. It is confident in a label from the mean probability on that the documents given this label
have for it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_clean.columns import column_of
from nlpkernel_clean.outcome import Work
from nlpkernel_clean.table import Names

if TYPE_CHECKING:
    from nlpkernel_clean.components.labels import LabelNoise

OWNER = "label-noise of nlpkernel-plugin-clean"
#: Characters of a text that the report shows.
_SHOWN = 120


#: Of the folds and the model: the same in every run, as what stages make is kept without the run's seed.
_SEED = 1


class Noise:
    """The stage. Until the end it keeps of each document its hashed features, label, name and the text's start."""

    ordered = True

    def __init__(self, settings: LabelNoise) -> None:
        # The library draws from Python's generator when it is imported, and a run's numbers must not depend on it.
        drawn = random.getstate()
        try:
            from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
                HashingVectorizer,
            )
        except ImportError as error:
            raise fail(
                DataError,
                "CLN006",
                f"label-noise needs scikit-learn, which cannot be imported: {error}",
                owner=OWNER,
                hint='pip install "nlpkernel-plugin-clean[labels]"',
            ) from error
        finally:
            random.setstate(drawn)
        self.settings = settings
        self._known = _read(settings.drop) if settings.drop is not None else frozenset[str]()
        self._vectorizer = HashingVectorizer(
            ngram_range=(1, 2),
            n_features=settings.features,
            alternate_sign=False,
            norm=None,
            dtype=np.float32,
        )
        self._features: list[Any] = []
        self._labels: list[int] = []
        self._numbers: dict[str, int] = {}
        self._names, self._starts = Names(), Names()

    def apply(self, documents: Documents) -> Outcome:
        """Remember. Raises DataError where there is no such column, or a document without a label."""
        work = Work(documents)
        labels = column_of(documents, self.settings.column, "label-noise")
        kept = []
        for index, (name, label) in enumerate(zip(documents.names, labels, strict=True)):
            if name in self._known:
                work.drop(index, "suspect label", f"label {label!r} is in {self.settings.drop}")
                continue
            if label is None or label == "":
                raise fail(
                    DataError,
                    "CLN007",
                    f"{name}: no label in column {self.settings.column!r}",
                    owner=OWNER,
                    hint="the stage `filter` with this column keeps documents that have one",
                )
            kept.append(index)
            self._labels.append(self._numbers.setdefault(str(label), len(self._numbers)))
        if kept:
            texts = [documents.texts[index] for index in kept]
            self._features.append(self._vectorizer.transform(texts))
            self._names.append([documents.names[index] for index in kept])
            self._starts.append([text[:_SHOWN] for text in texts])
        return work.outcome()

    def finish(self, folder: Path) -> Sequence[str]:
        """Predict, compare, and write suspects.jsonl, the worst first. Raises DataError where labels are too few."""
        if not self._labels:
            return ()
        given = np.array(self._labels)
        called = list(self._numbers)
        rare = [called[at] for at, count in Counter(self._labels).items() if count < self.settings.folds]
        if len(called) < 2 or rare:
            raise fail(
                DataError,
                "CLN008",
                f"label {rare[0]!r} has fewer documents than there are folds ({self.settings.folds})"
                if rare
                else f"all documents have the label {called[0]!r}",
                owner=OWNER,
                hint="leave the stage out, drop the label with `filter`, or write fewer folds",
            )
        chances = self._predicted(given)
        rows, labels = suspects(chances, given)
        with (folder / "suspects.jsonl").open("w", encoding="utf-8") as file:
            for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
                line = {
                    "name": self._names[row],
                    "given": called[given[row]],
                    "predicted": called[label],
                    "score": round(float(chances[row, given[row]]), 4),
                    "score_predicted": round(float(chances[row, label]), 4),
                    "text": self._starts[row],
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        share = len(rows) / len(given)
        lines = [f"{len(rows)} of {len(given)} labels are probably wrong ({share:.1%}): suspects.jsonl"]
        pairs = Counter(zip(given[rows].tolist(), labels.tolist(), strict=True)).most_common(3)
        lines += [f"{count} given {called[a]!r} look like {called[b]!r}" for (a, b), count in pairs]
        return lines

    def _predicted(self, given: Any) -> Any:
        """Probabilities of each label, for each document by a model that has not seen it."""
        from scipy.sparse import vstack  # type: ignore[import-untyped]
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.linear_model import SGDClassifier  # type: ignore[import-untyped]
        from sklearn.model_selection import (  # type: ignore[import-untyped]
            StratifiedKFold,
            cross_val_predict,
        )
        from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]

        features = vstack(self._features).tocsr()
        documents = np.bincount(features.indices, minlength=features.shape[1])
        # What one document alone holds tells nothing about another, and is most of the columns.
        shared = np.flatnonzero(documents > 1)
        folds = StratifiedKFold(self.settings.folds, shuffle=True, random_state=_SEED)
        # Logistic regression by stochastic descent: as good here as an exact one, in a twentieth of the time.
        model = make_pipeline(
            TfidfTransformer(sublinear_tf=True),
            SGDClassifier(loss="log_loss", alpha=1e-5, random_state=_SEED),
        )
        columns = features[:, shared] if shared.size else features
        return cross_val_predict(model, columns, given, cv=folds, method="predict_proba")


def suspects(chances: Any, given: Any) -> tuple[Any, Any]:
    """Rows whose confident label is not the one given, the least likely first, and that label.

    `chances` is float [documents, labels], `given` whole numbers [documents].
    """
    counts = np.bincount(given, minlength=chances.shape[1])
    own = chances[np.arange(len(given)), given]
    confident = np.bincount(given, weights=own, minlength=chances.shape[1]) / np.maximum(1, counts)
    # Of several labels that reach their bound, the most likely; -1 where none does.
    reached = np.where(chances >= confident, chances, -1.0)
    labels = reached.argmax(axis=1)
    rows = np.flatnonzero((reached.max(axis=1) >= 0) & (labels != given))
    margin = own[rows] - chances[rows, labels[rows]]
    rows = rows[np.argsort(margin, kind="stable")]
    return rows, labels[rows]


def _read(path: Path) -> frozenset[str]:
    """Names in a report."""
    try:
        with path.open(encoding="utf-8") as file:
            names = [(number, json.loads(line)) for number, line in enumerate(file, 1)]
    except (OSError, ValueError) as error:
        raise fail(DataError, "CLN009", f"{path} cannot be read: {error}", owner=OWNER, hint=_HINT) from error
    for number, row in names:
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            message = "the line has no `name`"
            raise fail(
                DataError, "CLN009", message, place=Place(str(path), number, 1), owner=OWNER, hint=_HINT
            )
    return frozenset(row["name"] for _, row in names)


_HINT = "it is the suspects.jsonl that this stage wrote in an earlier build"
