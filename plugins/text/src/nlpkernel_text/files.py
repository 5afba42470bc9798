"""Which files a plan means, and how each is read."""

from __future__ import annotations

import difflib
import glob
import os
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from nlpkernel.errors import DataError, Place, fail

_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}

#: Ends of names that are certainly not plain text, so that `auto` does not take them for it.
_FOREIGN = frozenset(
    (
        ".json",
        ".parquet",
        ".arrow",
        ".feather",
        ".orc",
        ".gz",
        ".bz2",
        ".xz",
        ".zst",
        ".zip",
        ".tar",
        ".7z",
        ".pdf",
        ".doc",
        ".docx",
        ".xls",
        ".xlsx",
        ".npy",
        ".npz",
        ".pt",
        ".safetensors",
        ".bin",
        ".h5",
        ".hdf5",
        ".tfrecord",
        ".sqlite",
        ".db",
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".webp",
        ".mp3",
        ".wav",
        ".mp4",
    )
)

#: Folders of the standard library that are tests or not part of it.
_NOT_STDLIB = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})


@attrs.frozen
class File:
    """One file of the data: where it is, how messages call it, how it is read ("text", "jsonl", "csv", "tsv")."""

    path: Path
    shown: str
    format: str


def find_files(paths: Sequence[Path], format: str, setting: str = "paths") -> list[File]:
    """The files that `paths` name, each once: in the order of the plan, those of a folder or pattern by name.

    A folder stands for all files in it and below, hidden ones left out. Raises DataError where a path is not
    there or a pattern fits nothing.
    """
    found: dict[Path, File] = {}
    for path in paths:
        for each in _expand(path, setting):
            found.setdefault(each, File(each, show(each), _format(each, format)))
    return list(found.values())


def stdlib_files() -> list[File]:
    """The Python standard library's .py files on this machine without its tests, by name."""
    root = sysconfig.get_path("stdlib")
    paths: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_STDLIB]
        below = Path(os.path.relpath(folder, root)).as_posix()
        paths += (name if below == "." else f"{below}/{name}" for name in names if name.endswith(".py"))
    if not paths:
        raise fail(
            DataError,
            "TXT001",
            f"there are no .py files of the standard library in {root}",
            hint="this Python has none as files (some packagings keep them in an archive); name `paths` instead",
        )
    return [File(Path(root, path), f"stdlib/{path}", "text") for path in sorted(paths)]


def show(path: Path) -> str:
    """A path as messages show it: from the working folder where it lies in it."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def _expand(path: Path, setting: str) -> Iterable[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        files = list(_below(path))
        if not files:
            raise fail(DataError, "TXT001", f"the folder {show(path)} of `{setting}` holds no files")
        return files
    base, pattern = _split(path)
    if not glob.has_magic(str(pattern)):
        wanted = base / pattern
        near = difflib.get_close_matches(wanted.name, _names(wanted.parent), 1)
        raise fail(
            DataError,
            "TXT001",
            f"{show(path)} of `{setting}` is not there",
            place=Place(str(path)),
            hint=f"did you mean {near[0]}?" if near else None,
        )
    # What exists is taken by its name, so that brackets in the folder of the plan are no pattern.
    matches = glob.iglob(os.path.join(glob.escape(str(base)), str(pattern)), recursive=True)
    files = sorted((Path(match) for match in matches if os.path.isfile(match)), key=Path.as_posix)
    if not files:
        raise fail(
            DataError,
            "TXT001",
            f"no file fits the pattern {show(path)} of `{setting}`",
            hint=f"{show(base)} is a folder; what follows fits nothing in it" if base.is_dir() else None,
        )
    return files


def _split(path: Path) -> tuple[Path, Path]:
    """The longest part of a path that exists, and the rest."""
    base = Path(path.anchor) if path.anchor else Path()
    parts = path.relative_to(path.anchor).parts if path.anchor else path.parts
    for number, part in enumerate(parts):
        if not (base / part).exists():
            return base, Path(*parts[number:])
        base /= part
    return base, Path()


def _below(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(root, name) for name in sorted(names) if not name.startswith("."))


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def _format(path: Path, format: str) -> str:
    if format != "auto":
        return format
    suffix = path.suffix.lower()
    if suffix in _FOREIGN:
        raise fail(
            DataError,
            "TXT007",
            f"{show(path)} does not look like text by its name",
            place=Place(str(path)),
            hint='write `format = "text"` or "jsonl", "csv", "tsv" to say what the files are',
        )
    return _SUFFIXES.get(suffix, "text")
