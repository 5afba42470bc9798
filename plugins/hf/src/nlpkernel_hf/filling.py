"""The rule that fills a model: from a folder, and by the library's first values where the folder has none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from torch import Generator, Tensor

from nlpkernel.context import Run
from nlpkernel.errors import CheckpointError, Place, fail
from nlpkernel_hf.codes import OWNER
from nlpkernel_hf.stored import Stored
from nlpkernel_hf.values import FirstValues

#: Where the library's model is in ours.
PREFIX = "model."
_NAMED = 6


def from_nothing(model: Any) -> Callable[[str, Tensor, Generator], None]:
    """The rule of a model that begins anew."""
    first = FirstValues(model)

    def initialise(name: str, tensor: Tensor, generator: Generator) -> None:
        first.fill(name.removeprefix(PREFIX), tensor, generator)

    return initialise


class FromFolder:
    """The rule of a model from a folder. The files are looked at when the first weight is asked for: a version that is
    opened for use has all weights, and needs no folder."""

    def __init__(self, model: Any, folder: Path, run: Run, blocks: Sequence[str], fresh: bool) -> None:
        """blocks: their paths; what is missing in one is an error, and elsewhere begins new. fresh: the head of the
        folder is for other classes, and is not taken."""
        self._first = FirstValues(model)
        self._model, self._folder, self._run, self._fresh = self._first._model, folder, run, fresh
        self._blocks = tuple(f"{block.removeprefix(PREFIX)}." for block in blocks)
        self._kept = frozenset(self._model.state_dict())
        self._stored: Stored | None = None
        self._new: frozenset[str] = frozenset()
        names: dict[int, list[str]] = {}
        for name, tensor in self._model.named_parameters(remove_duplicate=False):
            names.setdefault(id(tensor), []).append(name)
        self._alike = {name: alike for alike in names.values() for name in alike}

    def __call__(self, name: str, tensor: Tensor, generator: Generator) -> None:
        """Fill one parameter or buffer. Raise CheckpointError (HFM007) for weights that are not this model's, and
        PlanError (HFM002) for a folder without any that are read."""
        name = name.removeprefix(PREFIX)
        if name in self._kept:
            stored = self._opened()
            place = self._place(stored, name)
            if place is not None and name not in self._new:
                tensor.copy_(stored.read(place))
                return
        self._first.fill(name, tensor, generator)

    def _place(self, stored: Stored, name: str) -> str | None:
        """Under which of its names a tensor is in the folder."""
        return next((each for each in self._alike.get(name, [name]) if each in stored), None)

    def _opened(self) -> Stored:
        if self._stored is None:
            stored = Stored(self._folder, self._model)
            self._look(stored)
            self._stored = stored
        return self._stored

    def _look(self, stored: Stored) -> None:
        """What the folder has, and has not."""
        body = "" if self._model.base_model is self._model else f"{self._model.base_model_prefix}."
        weights = dict(self._model.named_parameters())
        missing = [name for name in weights if self._place(stored, name) is None]
        lost = [name for name in missing if name.startswith(self._blocks)]
        if lost or len(missing) == len(weights):
            raise self._not(f"it lacks {_told(lost or missing)}")
        head = {name for name in weights if not name.startswith(body)} if body else set()
        new = {*missing, *(name for name in head if self._fresh and len(self._alike[name]) == 1)}
        for name, weight in weights.items():
            place = self._place(stored, name)
            if name in new or place is None:
                continue
            shape = stored.shape(place)
            # What the library has as a scalar may be one element here.
            if shape is not None and (shape or (1,)) != (tuple(weight.shape) or (1,)):
                if name not in head:
                    raise self._not(f"{name} is {list(shape)} there, and {list(weight.shape)} in the model")
                new.add(name)
        self._new = frozenset(new)
        self._tell(new, sum(weights[name].numel() for name in new), stored.left)

    def _tell(self, new: Collection[str], numbers: int, left: Sequence[str]) -> None:
        if self._run.rank > 0:
            return
        if new:
            told = f"{len(new)} parameters ({numbers:,} numbers) are not in {str(self._folder)!r} and begin new: "
            self._run.notice("hf", told + _told(sorted(new)))
        if left:
            told = f"{len(left)} tensors of {str(self._folder)!r} have no place in this model: "
            self._run.notice("hf", told + _told(left))

    def _not(self, what: str) -> Exception:
        return fail(
            CheckpointError,
            "HFM007",
            f"the folder's weights are not those of its config.json: {what}",
            place=Place(str(self._folder)),
            owner=OWNER,
            hint="save the model again with `save_pretrained`",
        )


def _told(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
