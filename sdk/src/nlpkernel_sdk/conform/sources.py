"""Static checks of a distribution's sources: habits that hurt everybody else in the process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from nlpkernel_sdk.conform.checks import check, refuse
from nlpkernel_sdk.conform.metadata import at
from nlpkernel_sdk.conform.subject import Subject

_EVERYTHING = {"Exception", "BaseException"}


def _each(subject: Subject) -> Iterator[tuple[Path, ast.AST]]:
    for path, tree in subject.sources.items():
        for node in ast.walk(tree):
            yield path, node


@check("static.no-prints", "output is the user's: log, or tell events and notices", whole=True)
def _no_prints(subject: Subject) -> None:
    refuse(
        f"{at(path, node)}: print"
        for path, node in _each(subject)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    )


@check("static.no-pickle", "unpickling a file or a message runs what is in it", whole=True)
def _no_pickle(subject: Subject) -> None:
    def bad(node: ast.AST) -> bool:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [each.name for each in node.names]
            )
            return any(
                name in ("pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve") for name in names
            )
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        given = {each.arg: getattr(each.value, "value", None) for each in node.keywords}
        called = ast.unparse(node.func)
        if called == "torch.load":
            return given.get("weights_only") is not True
        return called in ("np.load", "numpy.load") and given.get("allow_pickle") is True

    refuse(f"{at(path, node)}: {ast.unparse(node)[:60]}" for path, node in _each(subject) if bad(node))


@check("static.no-eval", "text of a plan or a file is never run as a program", whole=True)
def _no_eval(subject: Subject) -> None:
    refuse(
        f"{at(path, node)}: {node.func.id}"
        for path, node in _each(subject)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec")
    )


@check("static.swallowed", "a failure that nobody hears of is found months later", whole=True)
def _swallowed(subject: Subject) -> None:
    def silent(node: ast.AST) -> bool:
        if not isinstance(node, ast.ExceptHandler) or not all(
            isinstance(each, ast.Pass) for each in node.body
        ):
            return False
        return node.type is None or getattr(node.type, "id", "") in _EVERYTHING

    refuse(f"{at(path, node)}: every exception is swallowed" for path, node in _each(subject) if silent(node))


@check("static.own-imports", "the inside of another plugin changes without notice", whole=True)
def _own_imports(subject: Subject) -> None:
    own = {"nlpkernel", *subject.packages}

    def names(node: ast.AST) -> list[str]:
        if isinstance(node, ast.ImportFrom):
            return [node.module or ""] if not node.level else []
        return [each.name for each in node.names] if isinstance(node, ast.Import) else []

    refuse(
        f"{at(path, node)}: imports {name}"
        for path, node in _each(subject)
        for name in names(node)
        if name.startswith("nlpkernel") and name.partition(".")[0] not in own
    )


@check("static.no-patches", "a library that a plugin changed is changed for all", whole=True)
def _no_patches(subject: Subject) -> None:
    wrong = []
    for path, tree in subject.sources.items():
        modules = {
            (alias.asname or alias.name).partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        local = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            wrong += [
                f"{at(path, node)}: sets {ast.unparse(target)}"
                for target in targets
                if isinstance(target, ast.Attribute)
                and _root(target) in modules - local
                # Switches, not parts: whether they are put back is seen in a run.
                and not ast.unparse(target).startswith("torch.backends.")
            ]
    refuse(wrong)


@check("static.no-star", "a star import hides where a name is from", whole=True)
def _no_star(subject: Subject) -> None:
    refuse(
        f"{at(path, node)}: from {node.module} import *"
        for path, node in _each(subject)
        if isinstance(node, ast.ImportFrom) and any(each.name == "*" for each in node.names)
    )


@check(
    "static.loopback",
    "a socket that listens everywhere is open to everybody, unless a setting says so",
    whole=True,
)
def _loopback(subject: Subject) -> None:
    refuse(
        f"{at(path, node)}: listens on every address"
        for path, node in _each(subject)
        if _binds(node) and any(_everywhere(each) for each in _constants(node))
    )


def _binds(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("bind", "listen")
    )


def _everywhere(value: object) -> bool:
    return isinstance(value, str) and (
        value in ("", "0.0.0.0", "::") or "//*" in value or "//0.0.0.0" in value
    )


def _constants(node: ast.AST) -> Iterator[object]:
    return (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))


def _root(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return _root(node.value)
    return node.id if isinstance(node, ast.Name) else ""
