"""A communicator that keeps a part of the optimizer's state to itself until it is asked."""

from __future__ import annotations

import torch

from nlpkernel import component, hookimpl
from nlpkernel.engine.group import SingleGroup
from nlpkernel.hookspecs.communicator import WorkersChanged


@component
class Elsewhere:
    """One process."""

    @hookimpl
    def open_group(self, run):
        return Keeping(run)


class Keeping(SingleGroup):
    """See `Elsewhere`."""

    def __init__(self, run):
        super().__init__(torch.device("cpu"))
        self._run = run

    def gather(self, work):
        with (self._run.folder / "gathered").open("a") as file:
            file.write(str(self._run.progress.step))
        for state in work.optimizer.state.values():
            state["elsewhere"] = torch.tensor(float(self._run.progress.step))


@component
class Several:
    """One process that acts as the first of three workers, two of which are gone by the first evaluation."""

    @hookimpl
    def open_group(self, run):
        return Losing(run)


class Losing(SingleGroup):
    """Its updates tell the terms of all three: three times those of this one."""

    def __init__(self, run):
        super().__init__(torch.device("cpu"))
        self._run = run
        self._left = 2

    @property
    def present(self):
        return (0,) if self._run.progress.step < 4 else ()

    def update(self, work, number, sums):
        done = super().update(work, number, sums)
        return done._replace(sums={name: 3 * value for name, value in sums.items()})

    def merge(self, counts):
        assert "terms" not in counts, "the updates have told them"
        if self._left:
            self._left -= 1
            raise WorkersChanged
        return counts
