"""The names of a model's tensors, as they are before it is distributed, and the groups that an optimizer gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
from torch import nn

from nlpkernel.engine.group import whole
from nlpkernel.errors import PluginError, fail
from nlpkernel.hookspecs.communicator import Held
from nlpkernel.hookspecs.model import Anatomy, ParameterGroup


@attrs.frozen(kw_only=True)
class Names:
    """Of the whole model, whatever a worker holds of it. kept: what a version has. trained: parameters with a gradient.
    elements: of those."""

    kept: frozenset[str]
    trained: tuple[str, ...]
    elements: int

    @classmethod
    def of(cls, module: nn.Module) -> Names:
        """Those of a module that is not distributed yet."""
        held = list(whole(module))
        trained = [each for each in held if each.tensor.requires_grad]
        return cls(
            kept=frozenset(each.name for each in held if each.kept),
            trained=tuple(each.name for each in trained),
            elements=sum(each.tensor.numel() for each in trained),
        )


def group_parameters(anatomy: Anatomy, names: Sequence[str], trained: Iterable[Held]) -> list[ParameterGroup]:
    """The parameters `names` by decay and tags, in the order in which they first appear, with what this worker steps of
    them. The groups are the same on all workers; one of which this worker steps nothing is empty."""
    facts = anatomy.parameters
    strangers = [name for name in names if name not in facts]
    if strangers:
        raise fail(
            PluginError,
            "NK061",
            f"the model's anatomy says nothing of {', '.join(strangers[:5])}",
            hint="whoever adds parameters describes them in `Anatomy.parameters`",
        )
    groups: dict[tuple[bool, frozenset[str]], list[Held]] = {
        (facts[name].decay, facts[name].tags): [] for name in names
    }
    for each in trained:
        groups[facts[each.name].decay, facts[each.name].tags].append(each)
    return [
        ParameterGroup(
            names=[each.name for each in members],
            tensors=[each.tensor for each in members],
            decay=decay,
            tags=tags,
        )
        for (decay, tags), members in groups.items()
    ]
