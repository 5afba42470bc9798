"""A version taken up for use: generate, evaluate, predict, export, serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import torch
from torch import nn

from nlpkernel import runs
from nlpkernel.engine.capture import load_model
from nlpkernel.engine.group import SingleGroup, pick_device
from nlpkernel.engine.materialise import fill
from nlpkernel.engine.opening import activate, reading
from nlpkernel.errors import CheckpointError, UsageError, fail
from nlpkernel.hookspecs.data import Codec, DataInfo, Unseen
from nlpkernel.hookspecs.model import Model
from nlpkernel.hookspecs.task import Task
from nlpkernel.plan import Plan
from nlpkernel.state import weights_of


@attrs.frozen(kw_only=True)
class OpenModel:
    """A trained model with all that using it needs.

    model: the module in evaluation mode, on `device`, with the weights that the run's evaluations were of. codec: text
    to ids and back. step: where the version was taken. folder: that of the run.
    """

    model: nn.Module
    codec: Codec
    device: torch.device
    version: str
    step: int
    plan: Plan
    folder: Path

    @property
    def task(self) -> Task:
        """The task that it was trained for."""
        return self.codec.task

    def unseen(self, paths: Sequence[str] = (), *, truth: bool = True) -> Unseen:
        """Samples to try it on: those of `paths`, or the plan's validation split. truth: whether they have what the
        model is to say. Raise UsageError where the data component opens none, DataError for anything wrong with
        them."""
        context, hooks, composition = activate(self.plan, self.folder)
        data = composition.slot("data").component
        if not hasattr(data, "open_unseen"):
            owner = hooks.owner(data)
            raise fail(
                UsageError, "NK315", "the data component opens no samples for a trained model", owner=owner
            )
        samples: Unseen = hooks.ask(
            data, "open_unseen", run=context, codec=self.codec, paths=tuple(paths), truth=truth
        )
        return samples

    @property
    def info(self) -> DataInfo:
        """What the training data was: vocabulary, window, labels."""
        return self.codec.info


def open_model(
    run: str | Path, *, version: str | None = None, device: str = "auto", overrides: Sequence[str] = ()
) -> OpenModel:
    """Open a version of a run: the newest, or the one named `version`. overrides: changes to the run's plan, such as
    "data.task.beams=5", for settings that say how the model is used.

    Needs neither the training data nor the plan's file, only the run's folder and the plugins that made it. Raise
    UsageError where there is no such run, CheckpointError where the version is missing or damaged.
    """
    folder = runs.find(run)
    plan = Plan.load(folder / runs.PLAN, overrides)
    context, hooks, composition = activate(plan, folder)
    if not composition.has("checkpoint"):
        raise fail(
            UsageError, "NK304", f"the run {str(folder)!r} keeps no versions: its plan has no [checkpoint]"
        )
    with reading(context, hooks, composition) as store:
        versions = store.list()
        if not versions:
            raise fail(CheckpointError, "NK501", f"{str(folder)!r} has no complete version")
        snapshot = store.load(version)
    context.device = pick_device(device, context)
    group = SingleGroup(context.device)
    codec: Codec = hooks.ask(
        composition.slot("data").component, "open_codec", run=context, artifacts=snapshot.artifacts
    )
    with torch.device("meta"):
        model: Model = hooks.ask(
            composition.slot("model").component, "create_model", run=context, info=codec.info
        )
        model = hooks.transform("transform_model", model, run=context)
    module = group.distribute(model.module, model.anatomy, lambda block: block, torch.float32)
    # Buffers that no version holds are made again.
    held = group.held(module)
    fill(model, [each for each in held if not each.kept], context.seed)
    load_model(
        held,
        {each.name for each in held if each.kept},
        {name: leaf.value for name, leaf in weights_of(snapshot.tree).items()},
    )
    module.eval()
    return OpenModel(
        model=module,
        codec=codec,
        device=context.device,
        version=version or versions[-1].name,
        step=snapshot.step,
        plan=plan,
        folder=folder,
    )
