"""Who may import whom: the kernel no plugin, a plugin no other plugin, a light module nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {"torch", "numpy", "zmq", "cupy", "tokenizers", "safetensors"}
#: Rooms of the kernel that run once torch is there.
HEAVY_ROOMS = {"engine"}

SOURCES = {
    path.name: path for path in [*ROOT.glob("*/src/*"), *ROOT.glob("plugins/*/src/*")] if path.is_dir()
}
PLUGINS = {name for name, path in SOURCES.items() if "plugins" in path.parts}


def imports(path: Path, *, top: bool = False) -> Iterator[str]:
    """Modules that a file imports; with `top`, only while it is imported itself."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if top and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if top and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        pending += ast.iter_child_nodes(node)


def test_the_sources_are_found() -> None:
    assert {"nlpkernel", "nlpkernel_sdk", "nlpkernel_text", "nlpkernel_transformer"} <= SOURCES.keys()


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_nobody_imports_what_it_must_not_know(name: str) -> None:
    allowed = {"nlpkernel", "nlpkernel_sdk"} if name == "nlpkernel_sdk" else {"nlpkernel", name}
    for path in SOURCES[name].rglob("*.py"):
        for module in imports(path):
            package = module.partition(".")[0]
            if package.startswith("nlpkernel"):
                assert package in allowed, f"{path} imports {module}"
            assert package not in ("tests", "contrib"), f"{path} imports {module}"


def test_the_kernel_imports_torch_only_in_the_rooms_of_the_engine() -> None:
    kernel = SOURCES["nlpkernel"]
    for path in kernel.rglob("*.py"):
        if path.relative_to(kernel).parts[0] in HEAVY_ROOMS:
            continue
        for module in imports(path, top=True):
            assert module.partition(".")[0] not in HEAVY, f"{path} imports {module} at import"


def test_the_kernel_names_no_plugin() -> None:
    names = {path.parent.parent.name for path in ROOT.glob("plugins/*/src/*")}
    for path in SOURCES["nlpkernel"].rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in names:
            assert f"nlpkernel_{name}" not in text, f"{path} names {name}"
            assert f"nlpkernel-plugin-{name}" not in text, f"{path} names {name}"


def test_importing_every_component_imports_nothing_heavy() -> None:
    code = """
import sys
from nlpkernel.plugins.catalog import Catalog
from nlpkernel.plugins.scan import SERVICES
catalog = Catalog()
points = {offer.point for offer in catalog.offers} - SERVICES
found = [catalog.resolve(point, name, base=None, place=None) for point in points for name in catalog.names(point)]
assert len(found) > 20, found
assert all(hasattr(each, "cls") for each in found), found
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not (HEAVY | {"rich", "cattrs"}) & set(done.stdout.split())
