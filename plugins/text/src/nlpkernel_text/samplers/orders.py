"""All samples, each epoch once: shuffled, or in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.sampler import Sampler, Samples
from nlpkernel.sampling import Windows
from nlpkernel_text.samplers.shares import mixed

if TYPE_CHECKING:
    from nlpkernel.sampling import Order


class Epochs(Windows):
    """The windows of epochs, as a sampler."""

    anywhere = False


def windows(samples: Samples, *, shuffle: bool = True, order: Order | None = None) -> Epochs:
    """Windows of these samples; `order` is that of each epoch."""
    return Epochs(samples.count, samples.batch, samples.micro, samples.partial, samples.seed, shuffle, order)


def shuffled(samples: Samples) -> Sampler:
    """Another order in each epoch; of a mixture with weights, its shares."""
    if any(group.weight for group in samples.groups):
        return windows(samples, order=mixed(samples))
    return windows(samples)


def in_order(samples: Samples) -> Sampler:
    """As they stand. Raise DataError (TXT030) for a mixture with weights."""
    if any(group.weight for group in samples.groups):
        raise fail(
            DataError,
            "TXT030",
            'sampling = "order" takes all samples as they stand, and the sources of the mixture have weights',
            hint='leave the weights out, or write sampling = "shuffle"',
        )
    return windows(samples, shuffle=False)
