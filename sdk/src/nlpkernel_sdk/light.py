"""What the tests of every distribution ask of its light floor: imports, settings, error codes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from nlpkernel.components import fields_of


def brought(modules: Iterable[str], libraries: Iterable[str]) -> set[str]:
    """Those of `libraries` that importing `modules` brings along, in a process of its own. Raise CalledProcessError
    where a module cannot be imported."""
    program = (
        "import importlib, sys\n"
        f"for name in {list(modules)!r}: importlib.import_module(name)\n"
        f"print(*(set({list(libraries)!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def without_help(cls: type) -> list[str]:
    """Settings of a component that do not say what they are."""
    return [field.name for field in fields_of(cls) if not field.facts.help]


def faults_of_codes(
    package: ModuleType, codes: Mapping[str, tuple[str, str]], *, least: int = 2
) -> list[str]:
    """What is wrong with the error codes of a package: used and not explained, explained and not used, or explained
    without a title, or in fewer than `least` or more than five lines. A use is the code in quotes, anywhere but in
    `codes.py`."""
    prefix = next(iter(codes))[:-3]
    assert package.__file__ is not None, "a package of files"
    used = {
        code
        for path in Path(package.__file__).parent.rglob("*.py")
        if path.name != "codes.py"
        for code in re.findall(rf'"({prefix}\d{{3}})"', path.read_text(encoding="utf-8"))
    }
    faults = [f"{code} is used and not explained" for code in sorted(used - codes.keys())]
    faults += [f"{code} is explained and not used" for code in sorted(codes.keys() - used)]
    for code, (title, text) in codes.items():
        if not title or not least <= len(text.splitlines()) <= 5:
            faults.append(f"{code} needs a title and {least} to five lines of text")
    return faults
