"""Weights of another run, whose model may have another head: `transform = [{ use = "../weights.py:FromRun", ... }]`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import CheckpointError, fail

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.model import Model


@component
class FromRun:
    """The model begins with the weights of another run's newest version. What that one does not have begins new, and
    so does what is named in `new`."""

    run: Path = setting(help="the other run's folder")
    new: tuple[str, ...] = setting(default=(), help="modules that begin new: a head for another task")

    @hookimpl
    def transform_model(self, model: Model, run: Run) -> Model:
        """Fill it otherwise; its structure stays as it is."""
        return attrs.evolve(model, initialise=_Taken(self, model, run))


class _Taken:
    """Fills a model. The other run is opened when the first weight is asked for: a version that is opened for use has
    all of its own, and needs no other run."""

    def __init__(self, settings: FromRun, model: Model, run: Run) -> None:
        self._settings = settings
        self._before = model.initialise
        self._weights = {name for name, _ in model.module.named_parameters()}
        self._run = run
        self._taken: dict[str, Any] | None = None

    def __call__(self, name: str, tensor: Tensor, generator: Generator) -> None:
        found = self._found().get(name) if name in self._weights else None
        if found is None:
            self._before(name, tensor, generator)
            return
        if found.shape != tensor.shape:
            raise fail(
                CheckpointError,
                "MINE001",
                f"{name} is {list(found.shape)} in {str(self._settings.run)!r}, and {list(tensor.shape)} in this model",
                hint="give both plans the same model and tokenizer, or name the module in `new`",
            )
        tensor.copy_(found)

    def _found(self) -> dict[str, Any]:
        if self._taken is None:
            from nlpkernel import open_model

            other = open_model(self._settings.run, device="cpu")
            new = tuple(f"{module}." for module in self._settings.new)
            every = other.model.named_parameters()
            self._taken = {name: each.detach() for name, each in every if not name.startswith(new)}
            begin = sorted(self._weights - self._taken.keys())
            self._run.notice(
                "weights", f"from {other.folder}, {other.version}; new: {', '.join(begin) or 'none'}"
            )
        return self._taken
