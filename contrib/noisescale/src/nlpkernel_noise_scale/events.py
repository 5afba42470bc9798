"""What the component tells. Light."""

from __future__ import annotations

import attrs

from nlpkernel.events import Event
from nlpkernel.progress import Progress


@attrs.frozen(kw_only=True)
class NoiseScaleEstimated(Event):
    """The noise scale as it is known at a log.

    scale: noise / signal, in samples; None where the signal or the noise is not above 0. noise: running mean of the
    trace of the covariance of one sample's gradient. signal: running mean of the squared norm of the true gradient.
    batch: samples of the window at hand. compare: which gradients are compared, "workers" or "windows".
    """

    progress: Progress
    scale: float | None
    noise: float
    signal: float
    batch: float
    compare: str
