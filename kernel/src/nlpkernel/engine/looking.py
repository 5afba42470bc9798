"""Opening only the data of a plan, to look at it."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.engine.environment import environment
from nlpkernel.engine.opening import activate
from nlpkernel.hookspecs.data import Data, DataInfo
from nlpkernel.plan import Plan


@attrs.frozen(kw_only=True)
class Looked:
    """What the data of a plan turned out to be."""

    info: DataInfo
    steps: int
    per_epoch: int | None
    samples: tuple[str, ...]
    counts: tuple[tuple[str, str, int], ...]

    def plain(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return attrs.asdict(self)

    def text(self) -> str:
        """As a person reads it."""
        lines = [f"data         vocabulary {self.info.vocabulary:,}, window {self.info.window} tokens"]
        for name, split in self.info.splits.items():
            more = "".join(
                f", {number:,} {what}"
                for what, number in (("documents", split.documents), ("tokens", split.tokens))
                if number is not None
            )
            lines.append(f"  {name:<11}{split.samples:,} samples{more}")
        if self.info.labels:
            lines.append(f"  labels     {', '.join(self.info.labels)}")
        epoch = "" if self.per_epoch is None else f", {self.per_epoch:,} an epoch"
        lines.append(f"steps        {self.steps:,} in all{epoch}")
        lines += [f"skipped      {number} {what} ({source})" for source, what, number in self.counts]
        for index, sample in enumerate(self.samples):
            lines.append(f"sample {index}     {sample!r}")
        return "\n".join(lines)


def per_epoch(data: Data) -> int | None:
    """Steps of one pass over the training split; None for a stream."""
    return data.steps(epochs=1.0) if "train" in data.info.splits else None


def look_at_data(plan: Plan, samples: int = 3) -> Looked:
    """Open the data as a run would and describe it; nothing is trained and no run folder is made."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(environment(plan.train))
        run, hooks, composition = activate(plan, Path(folder))
        run.rehearsal = True
        stack.callback(hooks.close, run=run)
        group = hooks.ask(composition.slot("communicator").component, "open_group", run=run)
        stack.callback(group.close)
        run.group, run.rank, run.world, run.device = group, group.rank, group.world, group.device
        data: Data = hooks.ask(composition.slot("data").component, "open_data", run=run)
        stack.callback(data.close)
        train = plan.train
        return Looked(
            info=data.info,
            steps=train.steps or data.steps(epochs=train.epochs, tokens=train.tokens),
            per_epoch=per_epoch(data),
            samples=tuple(_short(text) for text in data.samples("train", samples)),
            counts=tuple((source, what, number) for (source, what), number in sorted(run.counts.items())),
        )


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[:most] + "..."
