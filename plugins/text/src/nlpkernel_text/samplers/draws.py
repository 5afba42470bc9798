"""Samplers that draw: rows that begin anywhere, and a share of the samples that grows."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.sampler import Samples
from nlpkernel.sampling import Draws, Part, key, offsets
from nlpkernel_text.samplers.orders import windows

#: Purpose of a key.
_EASY = 0xEA5


class Anywhere:
    """Rows that begin anywhere in the text. Raise DataError (TXT030) where samples begin where documents do."""

    anywhere = True
    dropped = 0

    def __init__(self, samples: Samples) -> None:
        if not samples.starts or any(group.weight for group in samples.groups):
            why = (
                "the sources of the mixture have weights"
                if samples.starts
                else 'pack = "rows" begins rows with documents'
            )
            raise fail(
                DataError,
                "TXT030",
                f'sampling = "random" takes rows that begin anywhere in the text, and {why}',
            )
        self._draws = Draws(samples.seed, samples.batch, samples.starts)
        self._micro = samples.micro
        self._per_epoch = samples.count / samples.batch

    def window(self, step: int) -> list[Part]:
        """The places of window `step`, drawn for the window as a whole, so that micro-batches of another size hold the
        same rows."""
        rows, epoch = self._draws.window(step), int(step / self._per_epoch)
        return [Part(rows[at : at + self._micro], epoch) for at in range(0, len(rows), self._micro)]

    def steps(self, epochs: float) -> int:
        """Windows that hold as many tokens as so many passes would."""
        return max(1, math.ceil(epochs * self._per_epoch - 1e-9))

    def seen(self, step: int) -> int:
        """Rows before window `step`."""
        return step * len(self._draws.window(0))

    def epoch(self, step: int) -> float:
        """Tokens before window `step`, as a multiple of one pass."""
        return step / self._per_epoch


class Competence:
    """Draws from the easiest share of the samples, which grows with the step; then epochs in any order. Raise DataError
    (TXT030) where samples have no weights to go by."""

    anywhere = False

    def __init__(self, samples: Samples, over: int, start: float, by: Literal["length", "weight"]) -> None:
        hardness = samples.lengths if by == "length" else samples.weights
        if hardness is None:
            raise fail(
                DataError,
                "TXT030",
                'sampling = { use = "curriculum", by = "weight" } needs a weight for each sample',
                hint='name the field that holds it: fields = { weight = "..." }',
            )
        self._samples = samples
        self._easiest = np.argsort(hardness, kind="stable")
        self._over, self._start = over, start
        self._then = windows(samples)
        self.dropped = self._then.dropped

    def share(self, step: int) -> float:
        """Share of the samples that step `step` draws from."""
        return min(1.0, math.sqrt(self._start**2 + (1 - self._start**2) * step / self._over))

    def window(self, step: int) -> list[Part]:
        """The micro-batches of window `step`."""
        if step >= self._over:
            return self._then.window(step - self._over)
        samples = self._samples
        among = max(1, math.ceil(self.share(step) * samples.count))
        drawn = self._easiest[offsets(key(samples.seed, _EASY), step, 0, samples.batch, among)]
        return [Part(drawn[at : at + samples.micro], 0) for at in range(0, samples.batch, samples.micro)]

    def steps(self, epochs: float) -> int:
        """Windows that hold as many samples as so many passes."""
        early = self._over * self._samples.batch / self._samples.count
        if epochs <= early:
            return max(1, math.ceil(epochs * self._samples.count / self._samples.batch - 1e-9))
        return self._over + self._then.steps(epochs - early)

    def seen(self, step: int) -> int:
        """Samples before window `step`."""
        return min(step, self._over) * self._samples.batch + self._then.seen(max(0, step - self._over))

    def epoch(self, step: int) -> float:
        """Samples before window `step`, as a multiple of one pass."""
        early = min(step, self._over) * self._samples.batch / self._samples.count
        return early + self._then.epoch(max(0, step - self._over))
