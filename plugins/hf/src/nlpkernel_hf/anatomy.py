"""What each part of a model of the library is, from the library's own data where it has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from nlpkernel.hookspecs.model import Anatomy, ParameterFacts, Role
from nlpkernel_hf.images import embedding_of, has_towers
from nlpkernel_hf.networks import Network

#: Roles by the styles of the library's tensor plans that are cut here as there.
_STYLES: Mapping[str, Role] = {
    "colwise": "column",
    "rowwise": "row",
    "colwise_gather_output": "vocab",
    "embedding_rowwise": "vocab",
}
#: Blocks of models with one of these hand each other more than the hidden state: biases made from a parameter.
_SHARED = ("relative_attention_bias", "rel_embeddings")
_ATTENTION = re.compile(
    r"(^|[._])(attn|attention|self_attn|selfattention|encdecattention)([._]|$)", re.IGNORECASE
)
_MLP = re.compile(r"(^|[._])(mlp|ffn|fc\d?|intermediate|densereludense|experts)([._]|$)", re.IGNORECASE)


def blocks_of(network: Network) -> list[str]:
    """Paths of the repeated blocks, in the order of registration: the children of module lists that the library does
    not split, or whose activations it recomputes."""
    names = network.model._no_split_modules or ()
    found: list[str] = []
    for path, part in network.named_modules():
        if (
            not isinstance(part, nn.ModuleList)
            or not len(part)
            or any(path.startswith(f"{at}.") for at in found)
        ):
            continue
        if all(isinstance(each, GradientCheckpointingLayer) or type(each).__name__ in names for each in part):
            found += [f"{path}.{number}" for number in range(len(part))]
    return found


def describe(network: Network, blocks: list[str]) -> Anatomy:
    """The anatomy of a network on the meta device.

    Blocks are named where the hidden state is all that they hand on; those of encoder-decoders, of models of two
    towers, and of models whose blocks share biases of positions, are not, so that no layout divides them. Weight decay
    applies to every matrix, embeddings among them, and to no vector.
    """
    model = network.model
    named = dict(network.named_parameters())
    alone = not (getattr(model.config, "is_encoder_decoder", False) or has_towers(model.config))
    alone = alone and not any(shared in name for name in named for shared in _SHARED)
    embedding, head = (
        _path(network, embedding_of(model)),
        _path(network, model.get_output_embeddings()),
    )
    roles = _roles(network, embedding, head)
    ties = tuple(_ties(network))
    tied = {name for group in ties for name in group}
    parameters = {}
    for path, part in network.named_modules():
        for leaf, parameter in part._parameters.items():
            name = f"{path}.{leaf}"
            if parameter is not None and name in named:
                tags = _tags(network, path, part, leaf)
                if name in tied and embedding is not None and head is not None and path == embedding:
                    tags |= {"head"}
                decay = parameter.dim() > 1 and not tags & {"norm", "bias"}
                parameters[name] = ParameterFacts(
                    role=roles.get((path, leaf), "replicate"), decay=decay, tags=frozenset(tags)
                )
    return Anatomy(
        blocks=tuple(blocks) if alone else (),
        embedding=embedding,
        head=head,
        ties=ties,
        parameters=parameters,
    )


def _path(network: Network, part: nn.Module | None) -> str | None:
    if part is None:
        return None
    return next((path for path, each in network.named_modules() if each is part), None)


def _ties(network: Network) -> Iterator[tuple[str, ...]]:
    groups: dict[int, list[str]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return (tuple(names) for names in groups.values() if len(names) > 1)


def _tags(network: Network, path: str, part: nn.Module, leaf: str) -> set[str]:
    model = network.model
    tags = set()
    body = _path(network, model.base_model)
    inside = path.removeprefix("model.")
    if isinstance(part, nn.Embedding):
        tags.add("embedding")
        if part is not embedding_of(model):
            tags.add("positions")
    if "norm" in type(part).__name__.lower():
        tags.add("norm")
    if leaf == "bias" or leaf.endswith("_bias"):
        tags.add("bias")
    if model.base_model is not model and body is not None and not f"{path}.".startswith(f"{body}."):
        tags.add("head")
    elif _ATTENTION.search(inside):
        tags.add("attention")
    elif _MLP.search(inside):
        tags.add("mlp")
    return tags


def _roles(network: Network, embedding: str | None, head: str | None) -> dict[tuple[str, str], Role]:
    """Roles by (path, parameter), from the library's tensor plan.

    A part with a style that is not cut here (norms of heads, whose gradient would have to be added up) stays whole with
    all that stands beside it. So do experts, which are no layers of their own; and a vocabulary of which one entry is
    padding, or of which only one of embedding and head is in the plan though they are tied.
    """
    model = network.model
    plan = {re.compile(_pattern(key)): style for key, style in (model._tp_plan or {}).items()}
    styles: dict[str, str] = {}
    for path, part in network.named_modules():
        inside = path.removeprefix("model.")
        for pattern, style in plan.items():
            if pattern.fullmatch(inside):
                # A class of its own may do more than the layer that is known how to cut.
                styles[path] = style if type(part) in (nn.Linear, nn.Embedding) else ""
    whole = {path.rpartition(".")[0] for path, style in styles.items() if style not in _STYLES}
    roles: dict[tuple[str, str], Role] = {}
    for path, style in styles.items():
        if style in _STYLES and path.rpartition(".")[0] not in whole:
            role = _STYLES[style]
            roles[path, "weight"] = role
            # What is added to the whole output is not cut.
            roles[path, "bias"] = "replicate" if role == "row" else role
    _vocabulary(network, roles, embedding, head)
    return roles


def _vocabulary(
    network: Network, roles: dict[tuple[str, str], Role], embedding: str | None, head: str | None
) -> None:
    ends = [path for path in (embedding, head) if path is not None]
    parts = [network.get_submodule(path) for path in ends]
    padded = any(getattr(part, "padding_idx", None) is not None for part in parts)
    tied = len({id(part._parameters.get("weight")) for part in parts}) < len(parts)
    if padded or (tied and any(roles.get((path, "weight")) != "vocab" for path in ends)):
        for path in ends:
            roles.pop((path, "weight"), None)
            roles.pop((path, "bias"), None)


def _pattern(key: str) -> str:
    return re.escape(key).replace(r"\*", r"[^.]+")
