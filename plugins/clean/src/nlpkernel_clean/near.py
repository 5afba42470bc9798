"""Near-duplicates: candidates by bands of their signatures, then by what the whole signatures say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_clean.bands import bands_for, estimate
from nlpkernel_clean.outcome import Work
from nlpkernel_clean.signatures import Signer, band_keys, shortened
from nlpkernel_clean.table import Column, Names, Table

if TYPE_CHECKING:
    from nlpkernel_clean.components.duplicates import NearDuplicates


class Near:
    """The stage `near-duplicates`. Of a document that stays it keeps 8 bits of each number, and its bands."""

    ordered = True

    def __init__(self, settings: NearDuplicates) -> None:
        self.bands = bands_for(settings.permutations, settings.threshold, settings.recall)
        self._signer = Signer(settings.permutations, settings.shingle, settings.size)
        self._table = Table()
        self._kept = Column(np.uint8, settings.permutations)
        self._names = Names()

    @property
    def bytes(self) -> int:
        """Memory of the tables, without names."""
        return self._table.bytes + self._kept.bytes

    def apply(self, documents: Documents) -> Outcome:
        """Drop what is nearly the same as an earlier document that stays."""
        work = Work(documents)
        if not documents.texts:
            return work.outcome()
        signatures = self._signer.sign(documents.texts)
        keys = band_keys(signatures, self.bands.bands, self.bands.rows)
        short = shortened(signatures)
        earlier = self._earlier(keys)
        shared = _shared(keys)
        #: Documents of this batch that stay, by the bands that they share with others of it.
        buckets: dict[int, list[int]] = {}
        for index in sorted(earlier.keys() | set(np.flatnonzero(shared.any(axis=1)).tolist())):
            mine = keys[index][shared[index]].tolist()
            here = {other for each in mine for other in buckets.get(each, ())}
            found = self._best(short, index, sorted(here), sorted(earlier.get(index, ())))
            if found is None:
                for each in mine:
                    buckets.setdefault(each, []).append(index)
                continue
            similar, known, at = found
            name = self._names[at] if known else documents.names[at]
            work.drop(
                index, "near-duplicate", f"nearly the same as {name}: Jaccard index about {similar:.2f}"
            )
        self._keep(documents, keys, short, work.dropped.keys())
        return work.outcome()

    def finish(self, folder: Path) -> Sequence[str]:
        """Nothing more to say."""
        return ()

    def _earlier(self, keys: Any) -> dict[int, set[int]]:
        """Candidates of earlier batches, by index."""
        where, numbers = self._table.find(keys.reshape(-1))
        candidates: dict[int, set[int]] = {}
        for at, number in zip((where // self.bands.bands).tolist(), numbers.tolist(), strict=True):
            candidates.setdefault(at, set()).add(number)
        return candidates

    def _best(
        self, short: Any, index: int, here: list[int], earlier: list[int]
    ) -> tuple[float, bool, int] | None:
        """The most similar candidate, the first of several: (estimate, of an earlier batch?, number or index)."""
        best: tuple[float, bool, int] | None = None
        for known, numbers, rows in ((True, earlier, self._kept), (False, here, short)):
            if numbers:
                agreeing = (rows[numbers] == short[index]).sum(axis=1)
                at = int(agreeing.argmax())
                similar = estimate(int(agreeing[at]) / short.shape[1])
                if agreeing[at] >= self.bands.agreeing and (best is None or similar > best[0]):
                    best = similar, known, numbers[at]
        return best

    def _keep(self, documents: Documents, keys: Any, short: Any, dropped: Any) -> None:
        stays = np.ones(len(keys), dtype=bool)
        stays[list(dropped)] = False
        first = len(self._kept)
        numbers = np.arange(first, first + int(stays.sum()))
        self._table.add(keys[stays].reshape(-1), np.repeat(numbers, self.bands.bands))
        self._kept.append(short[stays])
        self._names.append([documents.names[at] for at in np.flatnonzero(stays).tolist()])


def _shared(keys: Any) -> Any:
    """True for each key that another document of the batch has, too."""
    _, inverse, counts = np.unique(keys.reshape(-1), return_inverse=True, return_counts=True)
    return (counts > 1)[inverse].reshape(keys.shape)
