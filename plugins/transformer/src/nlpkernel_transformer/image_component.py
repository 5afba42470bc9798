"""The component `image-text`. Light: no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import PlanError, fail
from nlpkernel_transformer import presets
from nlpkernel_transformer.codes import OWNER
from nlpkernel_transformer.image_shape import ImageTextShape
from nlpkernel_transformer.network import Network, bias_setting
from nlpkernel_transformer.shape import IMAGE_TEXT, Pool

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import DataInfo
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import Model


@component(presets=presets.IMAGE_TEXT)
class ImageText(Network):
    """Two towers like CLIP's: an encoder of texts, and a Vision Transformer of the same width (Radford et al., 2021;
    Dosovitskiy et al., 2021). Each gives a vector; the scale of their likeness is learnt, from 1/0.07 on, at most
    100."""

    patch: int = setting(default=8, ge=1, help="pixels of a side of the patches that an image is cut into")
    image_layers: int | None = setting(
        default=None,
        ge=1,
        help="blocks of the image tower; left out: as many as `layers`, those of the text tower",
    )
    projection: int | None = setting(
        default=None,
        ge=1,
        help="width of the space that both vectors are projected into; left out: the width",
    )
    pool: Pool = setting(
        default="mean",
        help="how a text's states become one: their mean, the first, or their maximum; an image's is that of a "
        "position of its own",
    )
    bias: bool = bias_setting(True)

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        yield from super().check_settings()
        most = self.image_layers or self.layers
        if not isinstance(self.checkpointing, str) and most < self.checkpointing <= self.layers:
            yield (
                "checkpointing",
                f"checkpointing is {self.checkpointing}, and the image tower has {most} blocks",
            )

    def shape(self, vocabulary: int, window: int, image: int) -> ImageTextShape:
        """The model's shape for rows of at most `window` + 1 tokens and images of so many pixels a side. Raise
        PlanError where `context` is shorter than the rows (TRF001), and where the images do not divide into patches
        (TRF007)."""
        if wrong := self._uncut(image):
            raise fail(
                PlanError, "TRF007", wrong, owner=OWNER, hint="write a `patch` that divides `images.size`"
            )
        return ImageTextShape(
            logits="full",
            causal=False,
            image=image,
            patch=self.patch,
            image_layers=self.image_layers or self.layers,
            projection=self.projection or self.width,
            pool=self.pool,
            **self._sizes(vocabulary, window + 1),
        )

    @hookimpl
    def create_model(self, info: DataInfo) -> Model:
        """Build the structure, its anatomy, and the rule that fills it. Raise PlanError for another task (TRF006) and
        for data without images (TRF007)."""
        from nlpkernel_transformer.build import build

        if info.task != IMAGE_TEXT:
            raise fail(
                PlanError,
                "TRF006",
                f"a model of images and texts has no head for the task {info.task!r}, only for {IMAGE_TEXT!r}",
                owner=OWNER,
                hint=f'write the task "{IMAGE_TEXT}" in [data], or choose another model',
            )
        if info.image is None:
            raise fail(
                PlanError,
                "TRF007",
                "the rows of the data have no images",
                owner=OWNER,
                hint="write `fields = { image = ... }` and `images = { size = 32 }` in [data]",
            )
        return build(self.shape(info.vocabulary, info.window, info.image))

    @hookimpl
    def misfits(self, facts: Facts) -> Sequence[tuple[str, str]]:
        """A patch that images do not divide into."""
        wrong = None if facts.image is None else self._uncut(facts.image)
        return [] if wrong is None else [("patch", wrong)]

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Parameters and bytes, in float32, as far as vocabulary, window and the size of images are known."""
        if facts.task not in (None, IMAGE_TEXT):
            message = f"the task is {facts.task}, for which a model of images and texts has no head: the run will stop"
            facts = attrs.evolve(facts, notes=(*facts.notes, message))
        image, window = facts.image, None if facts.window is None else facts.window + 1
        if image is None or self._uncut(image):
            # Nothing can be said of the size, and the rest is said of no vocabulary.
            known = attrs.evolve(facts, vocabulary=None)
            facts = attrs.evolve(
                self._estimated(
                    known, window, lambda entries, rows: self.shape(entries, rows - 1, self.patch)
                ),
                vocabulary=facts.vocabulary,
            )
        else:
            facts = self._estimated(facts, window, lambda entries, rows: self.shape(entries, rows - 1, image))
        return attrs.evolve(facts, blocks=self.layers + (self.image_layers or self.layers))

    def _uncut(self, image: int) -> str | None:
        if image % self.patch == 0:
            return None
        return f"images of {image} pixels a side do not divide into patches of {self.patch}"
