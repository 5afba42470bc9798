"""New plugins from templates. A template is a component that works, in a folder of files with marks like @name@.

`component.py` holds the light floor, `test_*.py` and `sample.txt` go into the tests, every other module beside the
component. What all plugins have is in the folder `common`.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from nlpkernel.errors import UsageError, fail
from nlpkernel.hookspecs import POINTS
from nlpkernel.plugins.scan import scan
from nlpkernel.plugins.suggest import hint
from nlpkernel_sdk.single import joined

TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
#: Distributions whose modules a template may import, in the release that it is written for.
_REQUIREMENTS = {"attrs": "attrs>=23.2", "numpy": "numpy>=1.26", "msgpack": "msgpack>=1.0"}
#: How a plan names a component of a point that is no slot; `@` stands for the table that names it.
_NESTED = {
    "schedule": '[optimizer]\nuse = "adamw"\nlr = 1e-3\nschedule = @',
    "transform": '[model]\nuse = "gpt"\ntransform = [@]',
    "policy": "[train]\npolicy = [@]",
    "compressor": '[communicator]\nuse = "torchdist"\nworkers = 2\ncompressor = @',
    "reader": '[data]\nuse = "text"\npaths = ["corpus/*"]\nformat = @',
    "stage": '[data]\nuse = "text"\npaths = ["corpus/*.txt"]\nstages = [@]',
    "augmentation": '[data]\nuse = "text"\npaths = ["corpus/*.txt"]\naugment = [@]',
    "sampler": '[data]\nuse = "text"\npaths = ["corpus/*.txt"]\nsampler = @',
    "tokenizer": '[data]\nuse = "text"\npaths = ["corpus/*.txt"]\ntokenizer = @',
    "task": '[data]\nuse = "text"\npaths = ["corpus/*.txt"]\ntask = @',
}
#: Settings that a component has to be given, in a plan and for the conformance kit.
_GIVEN = {"data": 'path = "corpus.txt"'}
_CONFORM = {"data": 'settings = { path = "tests/sample.txt" }', "reader": 'sample = "tests/sample.txt"'}
#: Checks that the conformance kit runs at least of a new plugin.
FLOOR = 40


@attrs.frozen(kw_only=True)
class Files:
    """A plugin that is not written yet. files: path to text. use: how a plan names it."""

    distribution: str
    files: Mapping[str, str]
    use: str


def scaffold(name: str, point: str) -> Files:
    """A distribution with one component. Raise UsageError (SDK001, SDK002)."""
    texts = _texts(name, point)
    marks = _marks(name, point, texts)
    package, tests = f"src/{marks['package']}", "tests"
    files = {
        "pyproject.toml": _common("pyproject.toml"),
        "README.md": _common("README.md"),
        ".github/workflows/ci.yml": _common("ci.yml"),
        f"{package}/__init__.py": _common("init.py"),
        f"{package}/py.typed": "",
        f"{tests}/test_conformance.py": _common("test_conformance.py"),
    }
    for file, text in texts.items():
        place = tests if file.startswith("test_") or not file.endswith(".py") else package
        files[f"{place}/{file}"] = text
    made = {path: _filled(text, marks) for path, text in files.items()}
    return Files(distribution=marks["dist"], files=made, use=marks["use"])


def single_file(name: str, point: str) -> Files:
    """The component alone, with what does the work in the same file. Raise UsageError (SDK001, SDK002)."""
    texts = _texts(name, point)
    marks = _marks(name, point, texts)
    modules = [
        _filled(text, marks)
        for file, text in sorted(texts.items())
        if file.endswith(".py") and not file.startswith(("test_", "component", "codes"))
    ]
    file = f"{name.replace('-', '_')}.py"
    use = f'use = "./{file}:{marks["Class"]}"'
    component = _filled(texts["component.py"], marks)
    return Files(distribution="", files={file: joined(component, modules, marks["package"])}, use=use)


def write(files: Files, folder: Path, *, whole: bool = False) -> list[Path]:
    """Write into a folder; with `whole` it has to be new. Raise UsageError (SDK003) before anything is written."""
    taken = [folder] if whole else [folder / path for path in files.files]
    for path in taken:
        if path.exists():
            tip = "choose another name, or another folder with --into"
            raise fail(UsageError, "SDK003", f"{str(path)!r} exists already", hint=tip)
    written = []
    for name, text in files.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _texts(name: str, point: str) -> dict[str, str]:
    """The files of the template of a point."""
    if point not in POINTS:
        raise fail(UsageError, "SDK001", f"there is no slot or point {point!r}", hint=hint(point, POINTS))
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        tip = "lower-case letters, digits, and hyphens between words"
        raise fail(UsageError, "SDK002", f"a plugin cannot be called {name!r}", hint=tip)
    folder = TEMPLATES / point
    texts = {
        path.name.removesuffix(".txt") if path.name.endswith(".py.txt") else path.name: path.read_text(
            "utf-8"
        )
        for path in sorted(folder.iterdir())
    }
    classes = {
        node.name
        for file, text in texts.items()
        if file.endswith(".py") and not file.startswith(("test_", "component"))
        for node in ast.walk(ast.parse(text.replace("@package@", "own")))
        if isinstance(node, ast.ClassDef)
    }
    if _class(name) in classes:
        raise fail(
            UsageError, "SDK002", f"the scaffold has a class {_class(name)} already", hint="another name"
        )
    return texts


def _marks(name: str, point: str, texts: Mapping[str, str]) -> dict[str, str]:
    code = _code(name)
    package = f"nlpkernel_{name.replace('-', '_')}"
    described = re.search(r'class @Class@:\n    """(.+?)[.:](\s|""")', texts["component.py"])
    assert described is not None, "each template has a class with a docstring"
    services = f'\n[project.entry-points."nlpkernel.codes.v1"]\n{code} = "{package}.codes:CODES"\n'
    imports = {
        word
        for file, text in texts.items()
        if not file.startswith("test_")
        for word in re.findall(r"^\s*(?:import|from) (\w+)", text, re.MULTILINE)
    }
    kernel = "nlpkernel[torch]>=0.1" if "torch" in imports else "nlpkernel>=0.1"
    needed = [kernel, *(text for module, text in _REQUIREMENTS.items() if module in imports)]
    component = f'[tool.nlpkernel.conform.components."{point}.{name}"]\n{_CONFORM.get(point)}\n'
    return {
        "name": name,
        "dist": f"nlpkernel-plugin-{name}",
        "package": package,
        "Class": _class(name),
        "CODE": code,
        "point": point,
        "kind": "slot" if POINTS[point].slot else "extension point",
        "version": str(POINTS[point].version),
        "summary": described[1].rstrip(".") + ".",
        "dependencies": ", ".join(f'"{each}"' for each in needed),
        "services": services if "codes.py" in texts else "",
        "conform": f"\n{component}" if point in _CONFORM else "",
        "floor": str(FLOOR),
        "use": _use(name, point),
    }


def _use(name: str, point: str) -> str:
    if point in _NESTED:
        return _NESTED[point].replace("@", f'{{ use = "{name}" }}')
    head = f"[[{point}]]" if POINTS[point].many else f"[{point}]"
    return "\n".join([head, f'use = "{name}"', *([_GIVEN[point]] if point in _GIVEN else [])])


def _class(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))


def _code(name: str) -> str:
    """Three letters that no installed distribution begins its codes with."""
    taken = {offer.name for offer in scan() if offer.point == "codes"}
    letters = re.sub(r"[^a-z]", "", name).upper().ljust(3, "X")
    choices = [letters[:2] + last for last in [*letters[2:], *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]]
    free: list[str] = [each for each in choices if each not in taken]
    return (free or choices)[0]


def _common(name: str) -> str:
    return (TEMPLATES / "common" / f"{name}.txt").read_text(encoding="utf-8")


def _filled(text: str, marks: Mapping[str, str]) -> str:
    text = re.sub(r"@(\w+)@", lambda mark: marks[str(mark[1])], text)
    return text.rstrip("\n") + "\n" if text else text
