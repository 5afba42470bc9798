"""A component and what does its work, put together in one file."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Sequence


def joined(component: str, modules: Sequence[str], package: str) -> str:
    """One module: the imports of all, the modules' own text, and the component, whose imports of the modules go. It is
    as heavy to import as they are."""
    doc = ast.get_docstring(ast.parse(component), clean=False)
    imports: list[ast.stmt] = []
    bodies: list[str] = []
    for text in [*modules, component]:
        mine, body = _divided(text, package)
        imports += mine
        bodies.append(body)
    first = f'"""{(doc or "").partition(chr(10))[0]}"""'
    head = [first, "", "from __future__ import annotations", "", *_together(imports)]
    return "\n".join(head) + "\n\n\n" + "\n\n\n".join(bodies) + "\n"


def _together(imports: Iterable[ast.stmt]) -> list[str]:
    """The lines of imports: those of the standard library first, each module once."""
    whole: set[str] = set()
    names: dict[str, set[str]] = {}
    for each in imports:
        if isinstance(each, ast.Import):
            whole |= {ast.unparse(ast.Import([alias])) for alias in each.names}
        elif isinstance(each, ast.ImportFrom):
            names.setdefault(each.module or "", set()).update(ast.unparse(alias) for alias in each.names)
    names.get("typing", set()).discard("TYPE_CHECKING")
    names = {module: own for module, own in names.items() if own}
    lines = [*sorted(whole), *(_line(module, sorted(names[module])) for module in sorted(names))]
    groups = [[line for line in lines if _standard(line) is standard] for standard in (True, False)]
    return [*groups[0], *([""] if all(groups) else []), *groups[1]]


def _line(module: str, names: Sequence[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= 100:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _standard(line: str) -> bool:
    return line.split()[1].partition(".")[0] in sys.stdlib_module_names


def _divided(text: str, package: str) -> tuple[list[ast.stmt], str]:
    """The imports of a module, those for type checkers with them, and the rest of its lines."""
    lines = text.splitlines()
    tree = ast.parse(text)
    imports: list[ast.stmt] = []
    gone: set[int] = set()
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    if body is not tree.body:
        gone |= _lines(tree.body[:1])
    for node in body:
        inner = (
            node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) else [node]
        )
        if not all(isinstance(each, (ast.Import, ast.ImportFrom)) for each in inner):
            # What follows the imports for type checkers (aliases) stays as it is.
            continue
        gone |= _lines([node])
        imports += [each for each in inner if not _own(each, package) and not _future(each)]
    gone |= {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and _own(node, package)
        for line in _lines([node])
    }
    left = "\n".join(line for number, line in enumerate(lines, 1) if number not in gone)
    return imports, _tidy(left)


def _lines(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _own(node: ast.stmt, package: str) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == package


def _future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _tidy(text: str) -> str:
    """At most two empty lines in a row, none after a heading of a function."""
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return re.sub(r'("""|else None)\n\n( {8})', r"\1\n\2", text).strip("\n")
