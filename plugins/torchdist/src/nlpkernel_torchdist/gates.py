"""How a stage of a pipeline runs its part of a model's own forward, whatever that forward is.

Every worker keeps the whole module and calls it. Its blocks have gates: a block of an earlier stage is passed over; the
first block of the stage takes what was received in the place of its first argument; and the first block of the next
stage ends the forward, and its first argument is what is sent. So all that lies between the blocks runs where it
belongs, and what lies before the first (masks, positions) runs on every stage.

What other stages own is replaced by stand-ins without memory of their own, which are NaN: the hidden state that they
make before the first own block is thrown away, and if it were used after all, it would be seen.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import Tensor, nn

from nlpkernel.errors import TrainingError, fail
from nlpkernel_torchdist.codes import OWNER

if TYPE_CHECKING:
    from nlpkernel_torchdist.stages import Stages

_HINT = "leave `pipeline` out for this model"

#: What the result of a block looks like: 0 for a tensor, else 1 for a tuple and 2 for a list, and its length.
Result = tuple[int, int]


class _Leave(BaseException):
    """Ends a forward where the next stage begins. No error: what catches those in a model must not catch it."""

    def __init__(self, hidden: Tensor) -> None:
        self.hidden = hidden


@attrs.define(eq=False)
class _Passage:
    """One forward of one stage. at: the block that was reached."""

    stage: int
    received: Tensor | None
    probing: bool
    at: int = -1


@attrs.frozen(eq=False)
class _Call:
    """A call of a block. Its hidden state is its first argument, by place or by name."""

    block: nn.Module
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def hidden(self, path: str) -> Tensor:
        """The first argument."""
        first = self.args[0] if self.args else self.kwargs.get(self._name())
        if not isinstance(first, Tensor):
            raise _unfit(f"the first argument of {path} is no tensor")
        return first

    def taking(self, hidden: Tensor, path: str) -> _Call:
        """The same call with another first argument."""
        self.hidden(path)
        if self.args:
            return attrs.evolve(self, args=(hidden, *self.args[1:]))
        return attrs.evolve(self, kwargs={**self.kwargs, self._name(): hidden})

    def others(self, path: str) -> Iterator[Tensor]:
        """All tensors among the arguments but that one."""
        hidden = self.hidden(path)
        return (each for each in _tensors((self.args, self.kwargs)) if each is not hidden)

    def _name(self) -> str:
        return next(iter(inspect.signature(self.block.forward).parameters), "")


class Gates:
    """The gates of one model. `result`: what its blocks return, as soon as one has been seen or a neighbour told it."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages
        self.result: Result | None = None
        self._passage: _Passage | None = None
        self._first = {stage: stages.stage_of.index(stage) for stage in range(stages.count)}

    def install(self, module: nn.Module) -> None:
        """Put the gates into a module that is otherwise finished. Names and parameters stay as they are."""
        for index, path in enumerate(self.stages.blocks):
            block = module.get_submodule(path)
            if isinstance(block, _Gated):
                raise _unfit(f"{path} is the same module as an earlier block")
            block.__dict__["_gate"] = (self, index)
            block.__class__ = _in_front(_Gated, type(block))
        module.__class__ = _in_front(_Rooted, type(module))

    def run(
        self,
        module: nn.Module,
        stage: int,
        received: Tensor | None,
        inputs: dict[str, Any],
        *,
        probing: bool = False,
    ) -> Any:
        """The hidden state that leaves `stage`, or the outputs of the last one. probing: look closely, at some cost,
        whether the stage needs what it does not have."""
        passage = self._passage = _Passage(stage, received, probing)
        try:
            outputs = module(**inputs)
        finally:
            self._passage = None
        last = stage == self.stages.count - 1
        if passage.at != (len(self.stages.blocks) - 1 if last else self._first[stage + 1]):
            raise _unfit(f"its forward does not call {self.stages.blocks[passage.at + 1]}")
        if probing and any(map(_nan, _tensors(outputs))) and not any(map(_nan, module.parameters())):
            raise self._lacking(stage)
        return outputs

    def through(self, index: int, call: _Call) -> Any:
        """A block was called."""
        passage, path = self._passage, self.stages.blocks[index]
        if passage is None:
            raise _unfit(
                f"{path} was called outside of a forward of its stage (to recompute it, or to generate)"
            )
        if index != passage.at + 1:
            raise _unfit(f"{path} is called out of the order of the anatomy, or more than once")
        passage.at = index
        stage = self.stages.stage_of[index]
        if stage == passage.stage:
            if index == self._first[stage] and passage.received is not None:
                if passage.probing and any(map(_nan, call.others(path))):
                    raise _entangled(path)
                call = call.taking(passage.received, path)
            result = call.function(*call.args, **call.kwargs)
            if self.result is None:
                self.result = _look(result, path)
            return result
        hidden = call.hidden(path)
        if stage < passage.stage:
            return self._like_result(hidden)
        if torch.is_grad_enabled() and any(each.requires_grad for each in call.others(path)):
            raise _entangled(path)
        raise _Leave(hidden)

    def _lacking(self, stage: int) -> Exception:
        stages = self.stages
        others = [
            name
            for name, needed in stages.parameters.items()
            if stage not in needed and not name.startswith(tuple(f"{path}." for path in stages.blocks))
        ]
        told = ", ".join(others[:5]) or "one of a block"
        return _unfit(
            f"stage {stage} needs a parameter that another stage has, maybe {told}",
            "register the parameters of a model in the order in which its forward uses them",
        )

    def _like_result(self, hidden: Tensor) -> Any:
        kind, length = self.result or (0, 0)
        if not kind:
            return hidden
        made = [hidden, *[None] * (length - 1)]
        return tuple(made) if kind == 1 else made


class _Gated(nn.Module):
    """What is put in front of a block's own class."""

    _gate: tuple[Gates, int]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        gates, index = self._gate
        return gates.through(index, _Call(self, super().__call__, args, kwargs))


class _Rooted(nn.Module):
    """What is put in front of a model's own class: its forward may end early, and the hooks around it see a result."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().forward(*args, **kwargs)  # type: ignore[misc, unused-ignore]
        except _Leave as left:
            return left.hidden


#: Classes that were made, by what was put in front of which.
_MADE: dict[tuple[type, type], Any] = {}


def _in_front(front: type[nn.Module], own: type[nn.Module]) -> Any:
    key = front, own
    if key not in _MADE:
        _MADE[key] = type(own.__name__, key, {"__module__": own.__module__})
    return _MADE[key]


def _look(result: Any, path: str) -> Result:
    if isinstance(result, Tensor):
        return 0, 1
    if type(result) in (tuple, list) and result and isinstance(result[0], Tensor):
        return 1 if type(result) is tuple else 2, len(result)
    raise _unfit(
        f"{path} returns {type(result).__name__}, and not a tensor, or a tuple or list that begins with one"
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _nan(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and bool(tensor.isnan().any())


def _unfit(reason: str, hint: str = _HINT) -> Exception:
    return fail(
        TrainingError, "TDI040", f"the model cannot be cut into stages: {reason}", owner=OWNER, hint=hint
    )


def _entangled(path: str) -> Exception:
    return _unfit(
        f"{path} gets, beside the hidden state, a tensor that depends on parameters of another stage"
    )


class StandIns:
    """What stands where parameters and buffers of other stages were: plain tensors, no part of the module's state."""

    def __init__(self) -> None:
        self._places: list[tuple[nn.Module, str, Tensor]] = []

    def replace(self, layer: nn.Module, name: str) -> None:
        """Take a parameter or buffer that is on the meta device out of a layer."""
        store: dict[str, Any] = layer._parameters if name in layer._parameters else layer._buffers
        tensor = store.pop(name).detach()
        layer.__dict__[name] = tensor
        self._places.append((layer, name, tensor))

    def settle(self, device: torch.device, kind: torch.dtype) -> None:
        """Give them one element each on the device, the floating ones in `kind`."""
        for layer, name, tensor in self._places:
            floating = tensor.is_floating_point()
            element = torch.full(
                (), torch.nan if floating else 0, dtype=kind if floating else tensor.dtype, device=device
            )
            layer.__dict__[name] = element.expand(tensor.shape)
