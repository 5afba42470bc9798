"""One plan file: from bytes to nodes, whatever its format."""

from __future__ import annotations

import os
from pathlib import Path

from nlpkernel.errors import Place, Problem
from nlpkernel.plan.codes import FORMAT, NOT_UTF8, SYNTAX, UNREADABLE
from nlpkernel.plan.nodes import Node

SUFFIXES = (".toml", ".yaml", ".yml", ".json")

_MARK = b"\xef\xbb\xbf"


def read_file(path: Path, asked: Place | None = None) -> tuple[Node, list[Problem]]:
    """The root table of a plan file, with `origin` and `base` set on every node, and all that is wrong with it.

    A file that cannot be read is a problem at `asked`, the place that names it, if there is one; the tree is empty.
    """
    file = str(path)
    empty = Node({}, Place(file))
    place = asked or Place(file)
    name = f"the plan {file} " if asked else "the plan "
    suffix = path.suffix.lower()
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        message = f"{name}does not exist"
        return empty, [Problem(code=UNREADABLE, message=message, place=place, hint=_beside(path))]
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have.
        reason = getattr(error, "strerror", None) or str(error)
        message = f"{name}cannot be read: {reason}"
        return empty, [Problem(code=UNREADABLE, message=message, place=place, hint=_inside(path))]
    if suffix not in SUFFIXES:
        message = f"{name}has an unknown format" + (f", {suffix}" if suffix else "")
        hint = f"the name of a plan ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        return empty, [Problem(code=FORMAT, message=message, place=place, hint=hint)]
    try:
        text = data.removeprefix(_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        return empty, [_not_utf8(file, error)]
    root, problems = _parse(suffix, text, file)
    if root.value is None and not problems and suffix != ".json":
        root.value = {}  # An empty YAML document.
    if not root.is_table:
        if not problems:
            what = "a list" if isinstance(root.value, list) else "a single value"
            message = f"a plan is a table of settings, and this is {what}"
            problems.append(Problem(code=SYNTAX, message=message, place=root.place))
        root = empty
    base = path.parent.absolute()
    for _, node in root.walk():
        node.origin, node.base = str(node.place), base
    return root, problems


def _parse(suffix: str, text: str, file: str) -> tuple[Node, list[Problem]]:
    # Each reader is imported when it is needed.
    if suffix == ".toml":
        from nlpkernel.plan.toml import read_toml

        return read_toml(text, file)
    if suffix == ".json":
        from nlpkernel.plan.json import read_json

        return read_json(text, file)
    from nlpkernel.plan.yaml import read_yaml

    return read_yaml(text, file)


def _not_utf8(file: str, error: UnicodeDecodeError) -> Problem:
    data: bytes = error.object
    before = data[: error.start].decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    line, _, rest = before.rpartition("\n")
    number = line.count("\n") + 2 if "\n" in before else 1
    hint = "save the file as UTF-8"
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        hint = "the file is UTF-16; save it as UTF-8"
    return Problem(
        code=NOT_UTF8,
        message=f"the file is not UTF-8: byte 0x{data[error.start]:02x} does not fit",
        place=Place(file, number, len(rest) + 1),
        hint=hint,
    )


def _beside(path: Path) -> str | None:
    """A plan that was perhaps meant, in the folder of one that does not exist."""
    names = _plans(path.parent)
    if names is None:
        return f"there is no folder {path.parent}"
    from difflib import get_close_matches

    near = [name for name in names if Path(name).stem == path.stem] or get_close_matches(
        path.name, names, 1, 0.6
    )
    if near:
        return f"did you mean {path.parent / near[0]}?"
    return f"plans beside it: {', '.join(names[:5])}" if names else None


def _inside(path: Path) -> str | None:
    names = _plans(path)
    return f"did you mean {path / names[0]}?" if names else None


def _plans(folder: Path) -> list[str] | None:
    """Names of the plan files in a folder, in order; None where there is no such folder."""
    try:
        return sorted(name for name in os.listdir(folder) if Path(name).suffix.lower() in SUFFIXES)
    except (OSError, ValueError):
        return None
