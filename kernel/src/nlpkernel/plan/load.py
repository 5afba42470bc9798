"""A whole plan: its file, what that extends, overrides over both, references to the environment filled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.errors import Place, Problem
from nlpkernel.plan.codes import CYCLE, DEPTH, EXTENDS, KEY
from nlpkernel.plan.environment import fill
from nlpkernel.plan.files import read_file
from nlpkernel.plan.merge import merged
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.overrides import apply_overrides
from nlpkernel.plan.source import DEEPEST

#: The file that places of a plan made from Python values name.
VALUES = "<plan>"


def load_file(
    path: Path, *, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> tuple[Node, list[Problem]]:
    """Read a plan and all that it extends, apply overrides (see `overrides`), fill references.

    Returns the root table, with `origin` and `base` set on every node, and all problems; the tree holds what could be
    read. Files are named as `path` was given; relative paths in overrides start from the working folder.
    """
    layers = _Layers(os.environ if environ is None else environ)
    layers.open(path, None)
    return layers.finish(overrides, Path.cwd() if overrides else path.parent)


def load_mapping(
    value: Mapping[str, Any],
    *,
    base: Path,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[Node, list[Problem]]:
    """Like `load_file`, for a plan given as Python values. Relative paths, in overrides too, start from `base`.

    Tuples are lists, and paths are texts. Every place is that of "<plan>" as a whole.
    """
    layers = _Layers(os.environ if environ is None else environ)
    base = base.absolute()
    layers.begin(_from_python(value, base, 1, layers.problems), VALUES, base)
    return layers.finish(overrides, base)


@attrs.define(eq=False)
class _Layer:
    """A file that is being read: what it sets itself, what it extends, and what was merged of that so far."""

    identity: str
    name: str
    above: Node
    bases: list[Node]
    folder: Path
    below: Node | None = None


class _Layers:
    """Files that extend each other, gone through depth first without recursion, each of them read once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems: list[Problem] = []
        self.unset: list[tuple[Node, Problem]] = []
        self.stack: list[_Layer] = []
        self.done: dict[str, Node] = {}

    def open(self, path: Path, asked: Place | None) -> None:
        """Read a file and put it on the stack."""
        root, problems = read_file(path, asked)
        self.problems += problems
        self.begin(root, str(path), path.parent)

    def begin(self, root: Node, name: str, folder: Path) -> None:
        # A reference that nothing of the finished plan holds may stay without a value, so problems wait.
        self.unset += fill(root, self.environ)
        extends: Node | None = root.value.pop("extends", None)
        bases = [] if extends is None else extends.value if isinstance(extends.value, list) else [extends]
        identity = name if name == VALUES else _identity(Path(name))
        self.stack.append(_Layer(identity, name, root, list(reversed(bases)), folder))

    def finish(self, overrides: Sequence[str], base: Path) -> tuple[Node, list[Problem]]:
        root = self.merge()
        self.problems += apply_overrides(root, overrides, base, self.environ)
        alive = {id(node) for _, node in root.walk()}
        self.problems += [problem for node, problem in self.unset if id(node) in alive]
        return root, self.problems

    def merge(self) -> Node:
        """Read what the files on the stack extend until one tree is left."""
        while True:
            layer = self.stack[-1]
            if layer.bases:
                self.extend(layer, layer.bases.pop())
                continue
            self.stack.pop()
            root = layer.above if layer.below is None else merged(layer.below, layer.above)
            if not self.stack:
                return root
            self.done[layer.identity] = root
            self.join(self.stack[-1], root)

    def join(self, layer: _Layer, base: Node) -> None:
        # Of several bases the later one has precedence.
        layer.below = base if layer.below is None else merged(layer.below, base)

    def extend(self, layer: _Layer, base: Node) -> None:
        """Begin to read a base of `layer`, or take what was read of it before."""
        if not isinstance(base.value, str) or not base.value:
            hint = 'write extends = "base.toml", or a list of such paths'
            self.problems.append(
                Problem(code=EXTENDS, message="extends is no path of a plan", place=base.place, hint=hint)
            )
            return
        if any(node is base for node, _ in self.unset):
            self.problems += [problem for node, problem in self.unset if node is base]
            return
        path = _tidy(layer.folder / base.value)
        identity = _identity(path)
        if identity in self.done:
            self.join(layer, self.done[identity])
            return
        names = [each.name for each in self.stack if each.identity == identity]
        if not names:
            self.open(path, base.place)
            return
        first = next(index for index, each in enumerate(self.stack) if each.identity == identity)
        chain = " -> ".join([*(each.name for each in self.stack[first:]), names[0]])
        self.problems.append(
            Problem(code=CYCLE, message=f"plans extend each other in a circle: {chain}", place=base.place)
        )


def _tidy(path: Path) -> Path:
    """The path without `..`, if that is the same file: behind a link to a folder it may not be."""
    tidy = Path(os.path.normpath(path))
    return tidy if _identity(tidy) == _identity(path) else path


def _identity(path: Path) -> str:
    """What all names of one file have in common."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # No such name can be; reading it says so.
        return str(path)


def _from_python(value: Any, base: Path, depth: int, problems: list[Problem]) -> Node:
    place = Place(VALUES)
    if depth > DEEPEST:
        message = f"tables and lists stand more than {DEEPEST} levels deep in each other"
        problems.append(Problem(code=DEPTH, message=message, place=place))
        value = None
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, Mapping):
        problems += [
            Problem(code=KEY, message=f"a key must be text, not {key!r}", place=place)
            for key in value
            if not isinstance(key, str)
        ]
        value = {
            key: _from_python(each, base, depth + 1, problems)
            for key, each in value.items()
            if isinstance(key, str)
        }
    elif isinstance(value, list | tuple):
        value = [_from_python(each, base, depth + 1, problems) for each in value]
    return Node(value, place, place, origin=VALUES, base=base)
