"""The task of telling which of many images belongs to a text: vectors of both in one space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nlpkernel_tasks.pairs import Pairing
from nlpkernel_tasks.rows import need_images

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import Batch
    from nlpkernel.hookspecs.task import Row


class ImagePairing(Pairing):
    """Each row is a text and its image. The loss and the metrics are those of `Pairing`, with the image in the place of
    the second text (Radford et al., 2021).

    A batch has "tokens", int64 [rows, width], and "lengths", int64 [rows], tokens that are no padding; "image", uint8
    [rows, 3, side, side]; "first", int64 [rows], the first row with the same image; in an evaluation "number". The
    model gets images as float32, normalised.
    """

    name = "image-text"

    def __init__(
        self,
        temperature: float,
        candidates: int,
        main: str,
        mean: tuple[float, float, float],
        std: tuple[float, float, float],
    ) -> None:
        """mean, std: of red, green and blue, whose values are from 0 to 1."""
        super().__init__(temperature, candidates, main)
        factors = torch.tensor([1 / (255 * each) for each in std])
        self._factors = factors.view(3, 1, 1)
        self._offsets = torch.tensor([-low / each for low, each in zip(mean, std, strict=True)]).view(3, 1, 1)

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to host tensors. A row has "tokens" and "image", and may have a "number"."""
        images = np.ascontiguousarray(need_images(rows))
        seen: dict[bytes, int] = {}
        first = [seen.setdefault(image.tobytes(), number) for number, image in enumerate(images)]
        return {
            **self._first(rows),
            "image": torch.from_numpy(images),
            "first": torch.tensor(first, dtype=torch.int64),
        }

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """The text, and the image: its values from 0 to 1, less the mean, over the standard deviation."""
        image = batch["image"]
        if self._factors.device != image.device:
            self._factors, self._offsets = self._factors.to(image.device), self._offsets.to(image.device)
        return {
            "tokens": batch["tokens"],
            "lengths": batch["lengths"],
            "image": image.float() * self._factors + self._offsets,
        }

    def _same(self, batch: Batch) -> Tensor:
        """Rows with the same text or the same image."""
        texts = (batch["tokens"][:, None] == batch["tokens"][None]).all(dim=2)
        return texts | (batch["first"][:, None] == batch["first"][None])

    def _answers(self, vectors: Tensor) -> Sequence[Mapping[str, Any]]:
        """Likeness, and both vectors, of length 1."""
        found = zip(super()._answers(vectors), vectors.tolist(), strict=True)
        return [{**likeness, "text": text, "image": image} for likeness, (text, image) in found]
