"""One version: its files written, examined and read."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch

from nlpkernel.state import Kind, Leaf, PerWorker, Replicated, Sharded, Snapshot
from nlpkernel_folder import tensors
from nlpkernel_folder.disk import digest_of, sync
from nlpkernel_folder.manifest import (
    ARTIFACTS,
    MANIFEST,
    STATE,
    TENSORS,
    Manifest,
    artifact_name,
    artifact_path,
)
from nlpkernel_folder.plain import decode, encode, refuse


@attrs.frozen(kw_only=True)
class Contents:
    """A snapshot in the form in which it is written: encoded where it is plain, by reference where it is
    tensors.
    """

    step: int
    metrics: Mapping[str, float | None]
    tensors: tensors.Tensors
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Contents:
        """Encode a snapshot. Raise CheckpointError (FLD001) naming a value that cannot be stored."""
        found = tensors.prepare(
            (path, leaf.value) for path, leaf in snapshot.tree.items() if isinstance(leaf.value, torch.Tensor)
        )
        leaves = []
        for path, leaf in snapshot.tree.items():
            if isinstance(leaf.value, torch.Tensor):
                leaves.append([path, _kind(leaf.kind), True, found.names[path]])
            else:
                leaves.append([path, _kind(leaf.kind), False, encode(leaf.value, path)])
        state = {
            "step": snapshot.step,
            "leaves": leaves,
            "facts": [[key, encode(value, f"facts[{key!r}]")] for key, value in snapshot.facts.items()],
        }
        if "" in snapshot.artifacts:
            raise refuse("an artifact", "its name is empty")
        files = {artifact_path(name): data for name, data in snapshot.artifacts.items()}
        return cls(
            step=snapshot.step,
            metrics=_metrics(snapshot.facts),
            tensors=found,
            files={STATE: encode(state, "state"), **files},
        )

    @property
    def total(self) -> int:
        """About how many bytes will be written: the header of the tensors and the manifest are not
        counted.
        """
        return self.tensors.total + sum(map(len, self.files.values()))


def write(folder: Path, contents: Contents, *, fsync: bool) -> Manifest:
    """Make `folder` and write a version into it, the manifest last. Raise OSError or SafetensorError."""
    (folder / ARTIFACTS).mkdir(parents=True)
    written: dict[str, tuple[int, str]] = {}
    for name, data in contents.files.items():
        (folder / name).write_bytes(data)
        written[name] = (len(data), hashlib.sha256(data).hexdigest())
    path = folder / TENSORS
    contents.tensors.write(path)
    # safetensors makes its file readable by its owner alone.
    path.chmod((folder / STATE).stat().st_mode)
    written[TENSORS] = (path.stat().st_size, digest_of(path))
    manifest = Manifest(
        step=contents.step, created=time.time(), metrics=contents.metrics, files=dict(sorted(written.items()))
    )
    if fsync:
        for name in written:
            sync(folder / name)
        sync(folder / ARTIFACTS)
    (folder / MANIFEST).write_bytes(manifest.dump())
    if fsync:
        sync(folder / MANIFEST)
        sync(folder)
    return manifest


def examine(folder: Path, *, digests: bool) -> tuple[Manifest | None, list[tuple[Path, str]]]:
    """The manifest of a version, and what is wrong with it: pairs of a file and a clause. Nothing wrong: an
    empty list. Without `digests` only presence and size of the files are looked at. Raise NewerFormat.
    """
    try:
        manifest = Manifest.load(folder)
    except ValueError as error:
        return None, [(folder / MANIFEST, str(error))]
    damage = []
    for name, (size, recorded) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            damage.append((path, f"{name} is missing, SHA-256 {recorded} was recorded"))
            continue
        found_size = path.stat().st_size
        if found_size == size and not digests:
            continue
        found = digest_of(path)
        if found != recorded or found_size != size:
            sizes = f" ({found_size} bytes instead of {size})" if found_size != size else ""
            damage.append((path, f"{name} has SHA-256 {found}, and {recorded} was recorded{sizes}"))
    return manifest, damage


def read(folder: Path, manifest: Manifest) -> Snapshot:
    """The snapshot of a version; its tensors are mapped, not copied. Raise ValueError, TypeError, KeyError or
    SafetensorError where the files are not what `write` wrote."""
    state = decode((folder / STATE).read_bytes())
    mapped = tensors.read(folder / TENSORS, {path: value for path, _, real, value in state["leaves"] if real})
    tree = {
        path: Leaf(mapped[path] if real else decode(value), _kind_of(kind))
        for path, kind, real, value in state["leaves"]
    }
    artifacts = {
        artifact_name(name): (folder / artifact_path(artifact_name(name))).read_bytes()
        for name in manifest.files
        if name.startswith(f"{ARTIFACTS}/")
    }
    facts = {key: decode(value) for key, value in state["facts"]}
    return Snapshot(step=state["step"], tree=tree, artifacts=artifacts, facts=facts)


def _kind(kind: Kind) -> list[Any]:
    match kind:
        case Replicated():
            return ["replicated"]
        case Sharded(shape, offset):
            return ["sharded", list(shape), list(offset)]
        case PerWorker(worker):
            return ["worker", worker]


def _kind_of(stored: list[Any]) -> Kind:
    match stored:
        case ["replicated"]:
            return Replicated()
        case ["sharded", shape, offset]:
            return Sharded(tuple(shape), tuple(offset))
        case ["worker", worker]:
            return PerWorker(worker)
    raise ValueError(f"unknown kind of leaf {stored!r}")


def _metrics(facts: Mapping[str, Any]) -> dict[str, float | None]:
    metrics = dict(facts.get("metrics", {}))
    for name, value in metrics.items():
        if value is not None and type(value) not in (int, float):
            raise refuse(
                f"facts['metrics'][{name!r}]", f"a metric is a number or None, not {type(value).__name__}"
            )
    return metrics
