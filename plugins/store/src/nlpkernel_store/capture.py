"""A snapshot in the form in which it is written: refused on the training's thread where it cannot be stored, and
copied there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from nlpkernel.errors import CheckpointError
from nlpkernel.state import Kind, Replicated, Snapshot
from nlpkernel_store.buffers import bytes_of
from nlpkernel_store.packs import TYPES, Piece
from nlpkernel_store.plain import encode, refuse
from nlpkernel_store.shares import own_fault

#: Plain data from so many bytes on goes into a pack, where it is written again only when it changes.
_LARGE = 64 << 10


@attrs.frozen(kw_only=True)
class Item:
    """A leaf to be stored: bytes for a pack, plain bytes for the manifest, or the path of the leaf it is tied to."""

    path: str
    kind: Kind
    content: Piece | bytes | str
    dtype: str | None = None
    shape: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Contents:
    """A snapshot ready to be written. alive: the memory that the pieces point into."""

    step: int
    metrics: Mapping[str, float | None]
    main: tuple[str, ...]
    items: tuple[Item, ...]
    artifacts: Mapping[str, Piece | bytes]
    facts: bytes
    alive: tuple[Tensor, ...] = attrs.field(repr=False)

    @property
    def total(self) -> int:
        """About how many bytes will be written if nothing is shared."""
        contents = [*(item.content for item in self.items), *self.artifacts.values()]
        return sum(each.data.nbytes if isinstance(each, Piece) else len(each) for each in contents)


def capture(
    snapshot: Snapshot,
    copy: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    *,
    first: bool = True,
    owner: Callable[[str], str | None] = lambda path: None,
) -> Contents:
    """Encode and copy. `copy` brings tensors to the host as dense memory. Only the `first` worker keeps what is the
    same on all of them. `owner` names the component that a leaf is of, where that is known.

    Raise CheckpointError naming a value that cannot be stored (STO001), or that is not what its kind says (STO006), and
    whose it is, before anything is copied.
    """
    tree = {
        path: leaf for path, leaf in snapshot.tree.items() if first or not isinstance(leaf.kind, Replicated)
    }
    # Tensors by path, each with the path of the first leaf that is the same tensor; plain data as bytes.
    tied: dict[str, str] = {}
    plain: dict[str, bytes] = {}
    seen: dict[Any, str] = {}
    path = ""
    try:
        for path, leaf in tree.items():
            tensor = isinstance(leaf.value, Tensor)
            if wrong := own_fault(leaf.kind, tuple(leaf.value.shape) if tensor else None):
                raise refuse(path, wrong, "STO006")
            if tensor:
                check(leaf.value, path)
                tied[path] = seen.setdefault(_identity(leaf.value, path), path)
            else:
                plain[path] = encode(leaf.value, path)
    except CheckpointError as error:
        raise _given_by(owner(path), error) from None
    facts = dict(snapshot.facts)
    facts_bytes = encode(facts, "facts")
    metrics = _metrics(facts)
    artifacts = _artifacts(snapshot.artifacts) if first else {}
    whole = [path for path, to in tied.items() if to == path]
    hosts = dict(zip(whole, copy([tree[path].value.detach() for path in whole]), strict=True))
    items = []
    for path, leaf in tree.items():
        if path in tied:
            items.append(_tensor(path, leaf.kind, tied[path], hosts.get(path)))
        else:
            items.append(Item(path=path, kind=leaf.kind, content=_plain(path, plain[path])))
    return Contents(
        step=snapshot.step,
        metrics=metrics,
        main=tuple(facts.get("main", ())),
        items=tuple(items),
        artifacts=artifacts,
        facts=facts_bytes,
        alive=tuple(hosts.values()),
    )


def check(tensor: Tensor, path: str) -> None:
    """Raise CheckpointError (STO001) naming the leaf for a tensor that a file cannot hold: on the meta device, sparse,
    quantized, of a subclass, or of a type that safetensors does not know."""
    kind = type(tensor)
    if kind not in (Tensor, torch.nn.Parameter):
        raise refuse(path, f"it is a tensor subclass, {kind.__module__}.{kind.__qualname__}")
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        raise refuse(path, f"a file holds no tensor of layout {tensor.layout} on device {tensor.device}")
    if _type(tensor) not in TYPES:
        raise refuse(path, f"safetensors does not know {tensor.dtype}")


def _given_by(owner: str | None, error: CheckpointError) -> CheckpointError:
    if owner is None:
        return error
    return CheckpointError([attrs.evolve(problem, owner=owner) for problem in error.problems])


def _identity(tensor: Tensor, path: str) -> Any:
    # Tensors without elements share the null address without being tied.
    if not tensor.numel():
        return path
    storage = tensor.untyped_storage().data_ptr()
    place = (tensor.device, storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return (*place, tensor.dtype, tensor.is_conj(), tensor.is_neg())


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _tensor(path: str, kind: Kind, tied: str, host: Tensor | None) -> Item:
    if host is None:
        return Item(path=path, kind=kind, content=tied)
    dtype, shape = _type(host), tuple(host.shape)
    content: Piece | bytes = b""
    if host.numel():
        content = Piece(name=path, dtype=dtype, shape=shape, data=bytes_of(host))
    return Item(path=path, kind=kind, content=content, dtype=dtype, shape=shape)


def _plain(name: str, data: bytes) -> Piece | bytes:
    if len(data) < _LARGE:
        return data
    return Piece(name=name, dtype="uint8", shape=(len(data),), data=memoryview(data))


def _artifacts(artifacts: Mapping[str, bytes]) -> dict[str, Piece | bytes]:
    made: dict[str, Piece | bytes] = {}
    for name, data in artifacts.items():
        if type(name) is not str or type(data) is not bytes or not name:
            raise refuse(f"the artifact {name!r}", "it is text to bytes, and its name is not empty")
        made[name] = _plain(f"artifacts/{name}", data)
    return made


def _metrics(facts: Mapping[str, Any]) -> dict[str, float | None]:
    metrics = dict(facts.get("metrics", {}))
    for name, value in metrics.items():
        if value is not None and type(value) not in (int, float):
            raise refuse(
                f"facts['metrics'][{name!r}]", f"a metric is a number or None, not {type(value).__name__}"
            )
    return metrics
