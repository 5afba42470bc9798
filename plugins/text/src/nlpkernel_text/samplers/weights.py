"""Classes, sources or samples by weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.sampler import Sampler, Samples
from nlpkernel.sampling import offsets
from nlpkernel_text.samplers.classes import members
from nlpkernel_text.samplers.orders import windows
from nlpkernel_text.samplers.shares import by_share

Ids = np.ndarray[Any, np.dtype[Any]]


def weighted(samples: Samples, weights: Mapping[str, float]) -> Sampler:
    """By the weights of classes or sources, or else of samples. Raise DataError (TXT030) where a name is neither, and
    where there is nothing to go by."""
    if not weights:
        return _each(samples)
    sources = {group.name: np.arange(group.start, group.stop) for group in samples.groups}
    kinds: dict[str, Ids] = sources
    if not weights.keys() <= sources.keys() and samples.labels is not None:
        kinds = dict(zip(samples.classes, members(samples, "weighted"), strict=True))
    for name in weights:
        if name not in kinds:
            there = ", ".join(map(repr, kinds)) or "none"
            raise fail(
                DataError,
                "TXT030",
                f"`weights` of the sampler names {name!r}, and the classes or sources are: {there}",
            )
        if not len(kinds[name]):
            raise fail(DataError, "TXT030", f"{name!r} has a weight and no training samples")
    return windows(
        samples, order=by_share(samples, list(weights.values()), [kinds[name] for name in weights])
    )


def _each(samples: Samples) -> Sampler:
    if samples.weights is None:
        raise fail(
            DataError,
            "TXT030",
            'sampling = "weighted" needs weights, of classes, sources or samples',
            hint='write sampling = { use = "weighted", weights = { NAME = 2.0, ... } }, or fields = { weight = "..." }',
        )
    reach = np.cumsum(samples.weights)

    def order(epoch: int, places: Ids) -> Ids:
        # 53 bits of a draw, as a fraction of all weights.
        drawn = offsets(samples.seed, epoch, int(places[0]), len(places), 1 << 53) / (1 << 53)
        rows: Ids = np.minimum(np.searchsorted(reach, drawn * reach[-1], side="right"), samples.count - 1)
        return rows

    return windows(samples, order=order)
