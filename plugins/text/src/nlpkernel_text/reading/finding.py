"""Which files a plan means, and which reader is for each."""

from __future__ import annotations

import difflib
import glob
import os
import stat
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from nlpkernel.errors import DataError, Place, fail
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.remote import Remote
from nlpkernel_text.reading.suffixes import (
    BUILT_IN,
    FOREIGN,
    PLUGIN,
    PLUGIN_DISTRIBUTION,
    TEXT,
    suffix_of,
    unpacked,
)
from nlpkernel_text.reading.urls import is_url, public

#: Folders of the standard library that are tests or not part of it.
_NOT_STDLIB = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})


def find_files(
    paths: Sequence[Path | str],
    format: str,
    setting: str = "paths",
    *,
    encoding: str = "utf-8",
    storage: Mapping[str, Any] | None = None,
    faults: Faults | None = None,
) -> list[File]:
    """The files that `paths` name, each once, also where it has several names: in the order of the plan, those of a
    folder or pattern by name.

    A path may be a URL, for whose driver `storage` are options. A folder stands for all files in it and below, also
    behind links; hidden ones, pipes and devices are left out. `faults` says what becomes of a link that leads nowhere
    in a folder; otherwise it is an error. With the format "auto" the ends of names say how files are read; another
    name is that of the reader for all of them. Raises DataError where a path is not there, a pattern fits nothing, or
    "auto" does not know.
    """
    found: dict[str, File] = {}
    for path in paths:
        place = local_path(path)
        if isinstance(place, Path):
            for each in _expand(place, setting, faults or Faults(False)):
                if (identity := os.path.realpath(each)) not in found:
                    name, packing = _reading(each, format)
                    kind = encoding if _is_text(name) else None
                    found[identity] = File(str(each), show(each), name, packing, kind)
            continue
        remote = Remote(place, storage or {})
        for url in _expand_url(place, remote, setting):
            if url not in found:
                name, packing = _reading(url, format)
                kind = encoding if _is_text(name) else None
                found[url] = File(url, show(url), name, packing, kind, remote)
    return list(found.values())


def _is_text(format: str) -> bool:
    """Readers of other distributions say themselves what they are; until then their files count as text."""
    return format in TEXT or format not in PLUGIN.values()


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
    return [File(str(Path(root, path)), f"stdlib/{path}", "text") for path in sorted(paths)]


def show(path: Path | str) -> str:
    """A path as messages show it: from the working folder where it lies in it; a URL without user and query."""
    if isinstance(path, str):
        return public(path)
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def local_path(path: Path | str) -> Path | str:
    """A path as such, also that of a `file://` URL; another URL as text."""
    if isinstance(path, Path) or not is_url(path):
        return Path(path)
    protocol, _, rest = path.partition("://")
    return Path(unquote(rest.removeprefix("localhost"))) if protocol.lower() in ("file", "local") else path


def _expand(path: Path, setting: str, faults: Faults) -> Iterable[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        files = list(_files(_below(path), faults))
        if not files:
            raise fail(DataError, "TXT001", f"the folder {show(path)} of `{setting}` holds no files")
        return files
    if path.exists():
        raise fail(
            DataError,
            "TXT020",
            f"{show(path)} of `{setting}` is no file but {_kind(path)}",
            place=Place(str(path)),
            hint="write what it gives to a file, and name that",
        )
    base, pattern = _split(path)
    if not glob.has_magic(str(pattern)):
        wanted = base / pattern
        near = difflib.get_close_matches(wanted.name, _names(wanted.parent), 1)
        raise fail(
            DataError,
            "TXT001",
            f"{show(path)} of `{setting}` is not there",
            place=Place(str(path)),
            hint=_dangling(path) or (f"did you mean {near[0]}?" if near else None),
        )
    # What exists is taken by its name, so that brackets in the folder of the plan are no pattern.
    files = sorted(_files(set(_matches(base, pattern.parts)), faults), key=Path.as_posix)
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


def _files(paths: Iterable[Path], faults: Faults) -> Iterator[Path]:
    """The regular files among what folders hold, which may be folders, pipes and links that lead nowhere too."""
    for path in paths:
        if path.is_file():
            yield path
        elif not path.exists() and (hint := _dangling(path)) is not None:
            what = "the file cannot be read: it is a link to a file that is not there"
            faults.broken("links that lead nowhere", "TXT020", what, Place(show(path)), hint)


def _dangling(path: Path) -> str | None:
    """What a link that leads nowhere names, as a hint."""
    if not path.is_symlink():
        return None
    return f"the link is dangling: it names {os.readlink(path)}; remove it, or bring back what it names"


def _kind(path: Path) -> str:
    """What a path is that is neither file nor folder."""
    mode = path.stat().st_mode
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _below(folder: Path) -> Iterator[Path]:
    """All that is below a folder and is no folder."""
    for root, names in _folders(folder):
        yield from (Path(root, name) for name in names)


def _folders(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A folder and those below it, also behind links, with the names of what is in them and is no folder. Each comes
    once, so that links that form a loop end."""
    seen: set[str] = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        if (identity := os.path.realpath(root)) in seen:
            folders[:] = []
            continue
        seen.add(identity)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield root, sorted(name for name in names if not name.startswith("."))


def _matches(base: Path, parts: Sequence[str]) -> Iterator[Path]:
    """What fits a pattern below a folder. `**` is not left to the library, which goes round loops of links, in numbers
    that double with each round."""
    if "**" not in parts:
        yield from map(Path, glob.iglob(os.path.join(glob.escape(str(base)), *parts)))
        return
    at = parts.index("**")
    for head in _matches(base, parts[:at]) if at else (base,):
        for root, names in _folders(head):
            if rest := parts[at + 1 :]:
                yield from _matches(Path(root), rest)
            else:
                yield from (Path(root, name) for name in names)


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def _expand_url(url: str, remote: Remote, setting: str) -> list[str]:
    files = remote.find()
    if not files:
        what = "is not there" if files is None else "holds no files"
        raise fail(DataError, "TXT001", f"{public(url)} of `{setting}` {what}")
    return files


def _reading(path: Path | str, format: str) -> tuple[str, str | None]:
    """The name of the reader for a file, and how it is packed."""
    name = path.name if isinstance(path, Path) else urlsplit(path).path
    bare, packing = unpacked(name)
    if format != "auto":
        return format, packing
    suffix = suffix_of(bare)
    place = Place(show(path) if isinstance(path, str) else str(path))
    if suffix in PLUGIN:
        raise fail(
            DataError,
            "TXT007",
            f"{show(path)} does not look like text by its name",
            place=place,
            hint=_plugin(PLUGIN[suffix]),
        )
    if suffix in FOREIGN:
        raise fail(
            DataError,
            "TXT007",
            f"{show(path)} does not look like text by its name",
            place=place,
            hint='write `format = "text"` or "jsonl", "csv", "tsv" to say what the files are',
        )
    return BUILT_IN.get(suffix, "text"), packing


def _plugin(format: str) -> str:
    """What to do for a file whose reader is in a distribution of its own."""
    from nlpkernel.plugins.catalog import Catalog

    write = f'write `format = "{format}"`, or `format = "text"` where it is text'
    return write if format in Catalog().names("reader") else f"pip install {PLUGIN_DISTRIBUTION} and {write}"
