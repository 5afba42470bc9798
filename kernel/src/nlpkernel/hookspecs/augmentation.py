"""The extension point `augmentation`: another wording of a text each time that it is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    import numpy as np

    from nlpkernel.context import Run


class Augmentation(Protocol):
    """Changes texts. What becomes of a text is a function of the text and its key alone."""

    def apply(self, texts: Sequence[str], keys: np.ndarray[Any, np.dtype[np.uint64]]) -> Sequence[str]:
        """Each text, changed or not, never empty. A key is a function of (seed, step, sample, place of the
        augmentation in the plan); draws for a text start from its key (`nlpkernel.sampling.key`, or a generator that
        is seeded with it)."""


@hook("pick")
def create_augmentation(run: Run) -> Augmentation:  # type: ignore[empty-body]
    """Make the augmentation. Raise DataError where what it needs is not there."""


POINT = Point(
    name="augmentation",
    must=("create_augmentation",),
    help="another wording of a text each time that it is trained on",
)
