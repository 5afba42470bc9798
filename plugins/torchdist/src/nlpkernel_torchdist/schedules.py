"""The order of forwards and backwards in a window, by `torch.distributed.pipelining`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from nlpkernel_torchdist.wire import empty

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Order = Literal["gpipe", "1f1b", "interleaved"]

#: Names, shapes and types of what a micro-batch gives to the model.
Signature = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]

#: Descriptions of what each stage of a worker receives and sends, as `wire.describe` gives them.
Shapes = dict[int, tuple[list[int], list[int]]]

#: Each schedule has a buffer for every hidden state that a window sends and for its gradient; those used last are kept.
_KEPT = 4


@attrs.frozen
class Place:
    """Where a worker stands in a pipe of `size` workers, and which of the `count` stages are its own."""

    size: int
    count: int
    mine: Sequence[int]
    group: ProcessGroup | None
    device: torch.device


class Schedules:
    """Those of one worker. `run_round(stage, received, place)` is the forward of a stage for the micro-batch at a place
    of the window: it gives the hidden state, or on the last stage the loss."""

    def __init__(
        self, order: Order, place: Place, run_round: Callable[[int, Tensor | None, int], Tensor]
    ) -> None:
        self._order, self._place = order, place
        self._stages = {stage: _Stage(stage, run_round) for stage in place.mine}
        self._kept: OrderedDict[tuple[Signature, int], Any] = OrderedDict()
        self._shapes: OrderedDict[Signature, Shapes] = OrderedDict()

    def length(self, rounds: int) -> int:
        """How many micro-batches the schedule takes for so many: interleaved, they must divide into rounds."""
        if self._order == "interleaved":
            while rounds % max(1, rounds // self._place.size):
                rounds += 1
        return rounds

    def run(self, signature: Signature, length: int, probe: Callable[[], Shapes]) -> None:
        """Run a window of `length` micro-batches with inputs like `signature`. `probe` finds what the stages send, and
        is asked of all workers of the pipe at the same windows."""
        # The micro-batches are found by their places; the places are what torch cuts into pieces.
        places = torch.arange(length)
        try:
            self._schedule(signature, length, probe).step(place=places, target=places, return_outputs=False)
        except RuntimeError:
            # torch wraps what a stage raises into its own report of all arguments.
            raised = [error for stage in self._stages.values() if (error := stage.raised) is not None]
            if raised:
                raise raised[0] from None
            raise
        finally:
            for stage in self._stages.values():
                stage.raised = None

    def _schedule(self, signature: Signature, length: int, probe: Callable[[], Shapes]) -> Any:
        key = signature, length
        if key not in self._kept:
            if signature not in self._shapes:
                self._shapes[signature] = probe()
            self._kept[key] = self._build(self._shapes[signature], length)
        self._kept.move_to_end(key)
        self._shapes.move_to_end(signature)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        while len(self._shapes) > _KEPT:
            self._shapes.popitem(last=False)
        return self._kept[key]

    def _build(self, shapes: Shapes, length: int) -> Any:
        place = self._place
        stages = [
            PipelineStage(
                module,
                stage,
                place.count,
                place.device,
                # Told all shapes, torch sends no descriptions, which would be pickled.
                input_args=(_meta(shapes[stage][0]),) if stage else (),
                output_args=(_meta(shapes[stage][1]),),
                group=place.group,
            )
            for stage, module in self._stages.items()
        ]
        options: dict[str, Any] = {"loss_fn": _same, "scale_grads": False}
        if self._order == "interleaved":
            return ScheduleInterleaved1F1B(list(stages), length, **options)
        # With fewer micro-batches than stages 1F1B, which torch then refuses, would do what GPipe does.
        kind = ScheduleGPipe if self._order == "gpipe" or length < place.count else Schedule1F1B
        return kind(stages[0], length, **options)


class _Stage(nn.Module):
    """What torch's pipelining calls: a stage, with what it received. It has no parameters, so that nobody but the group
    touches those of the model. raised: what ended it."""

    def __init__(self, stage: int, run_round: Callable[[int, Tensor | None, int], Tensor]) -> None:
        super().__init__()
        self._stage, self._run_round = stage, run_round
        self.raised: Exception | None = None

    def forward(self, *received: Tensor, place: Tensor) -> Tensor:
        try:
            return self._run_round(self._stage, received[0] if received else None, int(place))
        except Exception as error:
            self.raised = error
            raise


def _same(loss: Tensor, place: Tensor) -> Tensor:
    """The last stage gives the loss itself."""
    return loss


def _meta(description: Sequence[int]) -> Tensor:
    return empty(description, torch.device("meta")).requires_grad_()
