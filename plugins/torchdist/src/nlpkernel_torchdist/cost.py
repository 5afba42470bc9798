"""What a layout costs: bytes that a worker sends and holds, and seconds of a step. Light: no torch.

`docs/cost-model.md` explains the formulae and holds them against what was measured. All are of one worker, the mean of
them where they differ, and of a step, which is one window and its update.
"""

from __future__ import annotations

from typing import Literal

import attrs

from nlpkernel_torchdist.layout import Layout

#: As in the settings: what the data workers divide.
Shard = Literal[0, 1, 2, 3]


@attrs.frozen(kw_only=True)
class Step:
    """A model and its step. parameters: numbers, all of them trained; block: those of one of the `blocks`. width,
    vocabulary: of a transformer. rounds: micro-batches of each data worker. positions: tokens of a micro-batch. number:
    bytes of a parameter, a gradient, or one of the `state` numbers that the optimizer keeps of each parameter. value:
    bytes of a number in a hidden state. tied: parameters that the first and the last stage of a pipeline both have."""

    parameters: int
    blocks: int = 1
    block: int = 0
    width: int = 1
    vocabulary: int = 1
    rounds: int = 1
    positions: int = 1
    number: float = 4.0
    value: float = 4.0
    state: float = 2.0
    tied: int = 0

    @property
    def hidden(self) -> float:
        """Bytes of a hidden state of one micro-batch."""
        return self.positions * self.width * self.value

    @property
    def logits(self) -> float:
        """Bytes of its logits."""
        return self.positions * self.vocabulary * self.value

    def here(self, layout: Layout) -> float:
        """Parameters of one worker before data workers divide them, as if tensor divided all of them: norms and biases,
        which it leaves whole, are small."""
        return (self.parameters + (self.tied if layout.pipe > 1 else 0)) / (layout.tensor * layout.pipe)


@attrs.frozen(kw_only=True)
class Sent:
    """Bytes that a worker sends in a step. gradients, parameters: to data workers; activations: to those along tensor;
    stages: to the neighbours in a pipe, tied parameters included."""

    gradients: float
    parameters: float
    activations: float
    stages: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.gradients + self.parameters + self.activations + self.stages


def gather(size: float, workers: int) -> float:
    """Bytes that each worker sends until all have all `size` bytes, of which each had its share. As many for a
    reduce-scatter, which leaves each with its share of a sum."""
    return size * (workers - 1) / workers


def ring(size: float, workers: int) -> float:
    """Bytes that each worker sends in an all-reduce of `size` bytes: a reduce-scatter and a gather."""
    return 2 * gather(size, workers)


def bytes_sent(
    layout: Layout,
    shard: Shard,
    step: Step,
    *,
    reduce: Literal["window", "microbatch"] = "window",
    ratio: float = 1.0,
    virtual: int = 1,
    backend: Literal["gloo", "nccl"] = "nccl",
) -> Sent:
    """What a worker sends in a step, but for a few numbers (norm, losses, decisions).

    ratio: bytes that a compressor sends over those without it. virtual: stages of each worker. backend: Gloo makes a
    reduce-scatter of an all-reduce (torch 2.13), which sends twice as much.
    """
    data, tensor, pipe = layout.data, layout.tensor, layout.pipe
    held = step.here(layout) * step.number
    if shard < 2:
        gradients = ring(held, data) * ratio
        # Each worker sends the part that it stepped to all others.
        parameters = gather(held, data) if shard else 0.0
    else:
        scatter = ring(held, data) if backend == "gloo" else gather(held, data)
        gradients = scatter * (step.rounds if reduce == "microbatch" else 1)
        # For each forward, and in stage 3 once more for each backward pass.
        parameters = gather(held, data) * step.rounds * (2 if shard == 3 else 1)
    # Forward and backward of attention and feed-forward, of the embedding, and of the head, whose logits are gathered.
    activations = (
        ring(step.hidden, tensor) * (4 * step.blocks + 2) + gather(step.logits, tensor)
    ) * step.rounds
    between = 2 * step.hidden * step.rounds * (pipe * virtual - 1) / pipe if pipe > 1 else 0.0
    tied = 2 * step.tied * step.number / (tensor * pipe) if pipe > 1 else 0.0
    # A worker has the blocks of its stage alone.
    return Sent(
        gradients=gradients,
        parameters=parameters,
        activations=activations / pipe,
        stages=between + tied,
    )


@attrs.frozen(kw_only=True)
class Held:
    """Bytes that a worker holds. parameters: between two steps; whole: the most of them while it computes; gradients:
    when the optimizer steps; optimizer: its state."""

    parameters: float
    whole: float
    gradients: float
    optimizer: float


def memory(layout: Layout, shard: Shard, step: Step) -> Held:
    """What a worker holds, activations left out.

    Gradients of stages 2 and 3 are whole until a window's last backward pass where it has several micro-batches, unless
    each is reduced for itself.
    """
    held = step.here(layout) * step.number
    share = held / layout.data
    parameters = share if shard > 1 else held
    whole = held
    if shard == 3 and layout.data > 1:
        # What is in no block, the block that computes, and the one that is gathered ahead.
        outside = step.parameters - step.blocks * step.block
        unit = (outside + min(2, step.blocks) * step.block) * step.number / layout.tensor
        whole = share + gather(unit, layout.data)
    return Held(
        parameters=parameters,
        whole=whole,
        gradients=share if shard > 1 else held,
        optimizer=step.state * (share if shard else held),
    )


def bubble(pipe: int, rounds: int, virtual: int = 1) -> float:
    """Share of a step in which a stage waits for others: GPipe and 1F1B with `virtual` 1, the interleaved schedule with
    the number of stages of each worker."""
    return (pipe - 1) / (rounds * virtual + pipe - 1)


@attrs.frozen(kw_only=True)
class Machine:
    """What workers run on. flops: operations a second that a worker gets done in matrix products (not its peak). inner,
    outer: bytes a second that a worker sends to workers of its own machine, and to others by a link of its own. inside:
    workers of a machine."""

    flops: float
    inner: float
    outer: float
    inside: int = 8

    def along_data(self, layout: Layout) -> float:
        """Bytes a second that a worker sends to the next data worker. Rings cross from machine to machine by the links
        of all workers that they have there."""
        if layout.workers <= self.inside:
            return self.inner
        together = min(layout.data, max(1, self.inside // layout.tensor))
        return min(self.inner, together * self.outer)


@attrs.frozen(kw_only=True)
class Seconds:
    """Of a step. compute: matrix products; waiting: for other stages; tensor: exchanges of activations; exposed: what
    of the other exchanges is not hidden behind the backward pass."""

    compute: float
    waiting: float
    tensor: float
    exposed: float

    @property
    def total(self) -> float:
        """All of them, one after the other."""
        return self.compute + self.waiting + self.tensor + self.exposed


def seconds(
    layout: Layout,
    shard: Shard,
    step: Step,
    machine: Machine,
    *,
    reduce: Literal["window", "microbatch"] = "window",
    ratio: float = 1.0,
    virtual: int = 1,
) -> Seconds:
    """How long a step takes if nothing else disturbs it: six operations for each parameter and token (Kaplan et al.,
    2020), links that carry what they can, no latency.

    Tensor workers are neighbours, so they talk within a machine. Exchanges along data are hidden behind the backward
    pass of the last micro-batch, two thirds of its time, and in stage 3 behind all of them; the update of stage 1 is
    hidden behind nothing.
    """
    compute = 6.0 * step.here(layout) * step.positions * step.rounds / machine.flops
    sent = bytes_sent(layout, shard, step, reduce=reduce, ratio=ratio, virtual=virtual)
    along = machine.along_data(layout)
    cover = 2 / 3 * compute / step.rounds
    if shard == 1:
        exposed = max(0.0, sent.gradients / along - cover) + sent.parameters / along
    else:
        covered = compute if shard == 3 else cover
        exposed = max(0.0, (sent.gradients + sent.parameters) / along - covered)
    across = machine.inner if layout.tensor <= machine.inside else machine.outer
    between = machine.inner if layout.workers <= machine.inside else machine.outer
    waits = bubble(layout.pipe, step.rounds, virtual)
    return Seconds(
        compute=compute,
        waiting=compute * waits / (1 - waits),
        tensor=sent.activations / across,
        exposed=exposed + sent.stages / between,
    )
