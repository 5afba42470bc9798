"""`versions export`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from urllib.parse import quote

from nlpkernel.cli.output import count, say
from nlpkernel.errors import CheckpointError, Place, UsageError, fail
from nlpkernel_store.codes import OWNER
from nlpkernel_store.commands.common import (
    facts_of,
    open_versions,
    read,
    run_argument,
    size,
    version_argument,
)
from nlpkernel_store.examine import Mapped, compare, damaged
from nlpkernel_store.manifest import Blob
from nlpkernel_store.references import resolve

#: What an export consists of, beside the folder `artifacts`.
WEIGHTS, ABOUT, PLAN, ARTIFACTS = "model.safetensors", "version.json", "plan.toml", "artifacts"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    run_argument(parser)
    version_argument(parser)
    parser.add_argument("--safetensors", required=True, metavar="DIR", help="a folder that is new or empty")


def execute(args: argparse.Namespace) -> int:
    """Export, verified. Tied weights are written under each of their names."""
    _, catalog = open_versions(args.run)
    entry = resolve(catalog, args.version)
    manifest, parts = read(catalog, entry)
    folder = Path(args.safetensors)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise fail(
            UsageError,
            "STO010",
            f"{str(folder)!r} is there and not empty",
            owner=OWNER,
            hint="name a new folder",
        )
    mapped = Mapped(catalog, parts)
    if damage := compare(catalog, mapped, parts):
        raise damaged(catalog, entry, damage)
    from nlpkernel_store import packs
    from nlpkernel_store.buffers import bytes_of
    from nlpkernel_store.places.local import ASIDE, Local
    from nlpkernel_store.weights import model_weights

    weights = model_weights(manifest, parts, mapped)
    pack = packs.pack(
        [
            packs.Piece(
                name=name,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                data=bytes_of(tensor),
            )
            for name, tensor in weights.items()
        ]
    )
    facts = facts_of(manifest)
    about = {
        "version": entry.name,
        "id": entry.id,
        "step": entry.step,
        "created": manifest.created,
        "metrics": dict(manifest.metrics),
        "lock": facts.get("lock"),
    }
    files = Local(folder)
    try:
        files.create(WEIGHTS, pack.chunks(), size=pack.size.file)
        for part in parts:
            for name, content in part.artifacts.items():
                data = bytes(mapped.view(content)) if isinstance(content, Blob) else content
                files.create(f"{ARTIFACTS}/{file_name(name)}", [data])
        if "plan" in facts:
            files.create(PLAN, [facts["plan"].encode()])
        files.create(ABOUT, [json.dumps(about, indent=2, default=str).encode() + b"\n"])
        (folder / ASIDE).rmdir()
    except OSError as error:
        raise fail(
            CheckpointError, "STO011", f"it cannot be written: {error}", place=Place(str(folder)), owner=OWNER
        ) from error
    say(f"{entry.name}: {count(len(weights), 'tensor')}, {size(pack.size.data)}, in {folder}")
    return 0


def file_name(artifact: str) -> str:
    """The file of an artifact: its name, with everything escaped that a file name may not hold."""
    escaped = quote(artifact, safe="")
    return escaped if escaped.strip(".") else escaped.replace(".", "%2E")
