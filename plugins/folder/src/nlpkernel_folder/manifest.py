"""The manifest of a version: what it consists of, with the digest of every file and of the manifest
itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import attrs

from nlpkernel_folder.plain import decode, encode

#: Raised with every change that an older release would read wrongly.
FORMAT = 1

MANIFEST = "manifest.msgpack"
STATE = "state.msgpack"
TENSORS = "tensors.safetensors"
ARTIFACTS = "artifacts"
#: Everything that this store puts at the top of a version; what else lies there is somebody else's.
OURS = frozenset({MANIFEST, STATE, TENSORS, ARTIFACTS})


class NewerFormat(Exception):
    """The version was written in a format that this release does not know. `format` is its number."""

    def __init__(self, format: int) -> None:
        super().__init__(f"format {format}")
        self.format = format


@attrs.frozen(kw_only=True)
class Manifest:
    """What a version consists of. `files`: path in the version, with "/", to (size in bytes, SHA-256 in
    hex).
    """

    step: int
    created: float
    metrics: Mapping[str, float | None]
    files: Mapping[str, tuple[int, str]]

    @property
    def total(self) -> int:
        """Size of all files, the manifest not counted."""
        return sum(size for size, _ in self.files.values())

    def dump(self) -> bytes:
        """The manifest's file: its content, and the digest of that."""
        content = {
            "format": FORMAT,
            "step": self.step,
            "created": self.created,
            "metrics": dict(self.metrics),
            "files": {name: list(facts) for name, facts in self.files.items()},
        }
        body = encode(content, "manifest")
        return encode([body, hashlib.sha256(body).digest()], "manifest")

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest of the version in `folder`. Raise ValueError saying what is wrong with it, and
        NewerFormat for one of a later release."""
        try:
            data = (folder / MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(f"{MANIFEST} is missing") from None
        try:
            body, recorded = decode(data)
            found = hashlib.sha256(body).digest()
        except (ValueError, TypeError) as error:
            raise ValueError(f"{MANIFEST} cannot be read: {error}") from error
        if found != recorded:
            wanted = recorded.hex() if isinstance(recorded, bytes) else repr(recorded)
            raise ValueError(f"{MANIFEST} has SHA-256 {found.hex()}, and {wanted} was recorded")
        content: dict[str, Any] = decode(body)
        if content["format"] > FORMAT:
            raise NewerFormat(content["format"])
        files = {name: (size, digest) for name, (size, digest) in content["files"].items()}
        return cls(step=content["step"], created=content["created"], metrics=content["metrics"], files=files)


def artifact_path(name: str) -> str:
    """Where an artifact lies in a version: its name with everything escaped that a file name may not hold."""
    escaped = quote(name, safe="")
    return f"{ARTIFACTS}/{escaped if escaped.strip('.') else escaped.replace('.', '%2E')}"


def artifact_name(path: str) -> str:
    """The artifact's name that `artifact_path` got."""
    return unquote(path.removeprefix(f"{ARTIFACTS}/"))


def foreign_files(folder: Path) -> list[Path]:
    """Files in a version that this store did not put there."""
    entries = [path for path in folder.iterdir() if path.name not in OURS]
    try:
        listed = Manifest.load(folder).files
    except (ValueError, NewerFormat):
        return entries
    artifacts = folder / ARTIFACTS
    inside = artifacts.iterdir() if artifacts.is_dir() else []
    return entries + [path for path in inside if f"{ARTIFACTS}/{path.name}" not in listed]
