"""The library's models of images and texts: a tower for each, and one space for what they give."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nlpkernel.errors import PlanError, fail
from nlpkernel.hookspecs.data import DataInfo
from nlpkernel.hookspecs.model import Outputs
from nlpkernel_hf.codes import OWNER
from nlpkernel_hf.networks import Network, last

#: The task that these do.
TASK = "image-text"
#: Values of a configuration that are those of the two towers.
PARTS = TEXT, IMAGE = "text_config", "vision_config"
#: Parts of a model that works as CLIP does.
_NEEDED = ("text_model", "vision_model", "text_projection", "visual_projection", "logit_scale")
#: The largest scale of likeness (Radford et al., 2021).
_MOST = 100.0


def has_towers(config: Any) -> bool:
    """Whether a configuration, or a class of them, is of two towers."""
    return all(name in (getattr(config, "sub_configs", None) or {}) for name in PARTS)


def text_of(config: Any) -> Any:
    """The configuration of what reads texts: a tower's, or all of it."""
    return config.text_config if has_towers(config) else config


def parts_of(config: Any) -> list[Any]:
    """A configuration, and those of its towers."""
    return [config, *(getattr(config, name) for name in PARTS if has_towers(config))]


def embedding_of(model: Any) -> Any:
    """The embedding of tokens."""
    return (model.text_model if has_towers(model.config) else model).get_input_embeddings()


def works_as_clip(model: Any) -> bool:
    """Whether a model's vectors are the states of an end and of an image, projected, and a scale is learnt."""
    return all(hasattr(model, name) for name in _NEEDED)


def fit_images(config: Any, info: DataInfo) -> None:
    """Raise PlanError (HFM011) for images of another size than the model's, and for none."""
    size = config.vision_config.image_size
    if size != info.image:
        given = "the data has none" if info.image is None else f"the data's have {info.image}"
        raise fail(
            PlanError,
            "HFM011",
            f"the model reads images of {size} pixels a side, and {given}",
            owner=OWNER,
            hint=f"write `images = {{ size = {size} }}` in [data]",
        )


class ImageText(Network):
    """Gives a vector for a text and for an image, both projected into one space."""

    def __init__(self, model: nn.Module, context: int, first: int | None) -> None:
        super().__init__(model, context, first)
        # Of one element and not of none, since layouts that divide parameters know no scalars.
        self.model.logit_scale = nn.Parameter(self.model.logit_scale.detach().reshape(1))

    def forward(self, tokens: Tensor, lengths: Tensor | None = None, *, image: Tensor) -> Outputs:
        """Hidden [rows, 2, projection] of texts, tokens [rows, positions] of which `lengths` [rows] are no padding, and
        of images, normalised, [rows, 3, side, side]; not normalised. `head` is the scale that is learnt.

        The library takes the state of a text's end, which it knows by its id; here it is that of the last token,
        whatever its id."""
        states = self.model.text_model(**self.reads(tokens, lengths)).last_hidden_state
        said = self.model.text_projection(last(states, lengths))
        seen = self.model.visual_projection(self.model.vision_model(pixel_values=image).pooler_output)
        scale = self.model.logit_scale.exp().clamp(max=_MOST).squeeze(0)
        return Outputs(hidden=torch.stack((said, seen), dim=1), head=scale)
