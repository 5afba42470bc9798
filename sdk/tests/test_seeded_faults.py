"""The conformance kit finds what it is there for: each of these broken plugins fails exactly its check."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nlpkernel.plugins.catalog import Catalog
from nlpkernel.plugins.scan import scan
from nlpkernel_sdk.conform.checks import LEVELS, REGISTRY
from nlpkernel_sdk.conform.runner import cases, conform
from nlpkernel_sdk.conform.subject import Config, Subject
from nlpkernel_sdk.installing import install
from nlpkernel_sdk.scaffold import scaffold, write


def _seeded() -> ModuleType:
    path = Path(__file__).parent / "faults/seeded.py"
    spec = importlib.util.spec_from_file_location("nlpkernel_sdk_seeded_faults", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SEEDED = _seeded()
FAULTS = [*SEEDED.STATIC, *SEEDED.BEHAVIOUR, *SEEDED.DISTRIBUTED]
#: Checks that no fault here fails: they hold by what the kernel does, or are seen elsewhere.
UNSEEDED = {
    "static.bad-settings",
    "static.unknown-setting",
    "static.schema",
    "static.hooks-direct",
    "behaviour.logs-progress",
    "behaviour.model-structure",
    "behaviour.store-copies",
    "behaviour.task-weights",
    # What the scaffold makes is for one process; torchdist and zmq-ps are asked.
    "distributed.failing",
}


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """What broken plugins change in this process is put back."""
    path, environment, limit = list(sys.path), dict(os.environ), sys.getrecursionlimit()
    handlers, errors = list(logging.root.handlers), np.geterr()
    yield
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environment)
    sys.setrecursionlimit(limit)
    logging.root.handlers[:] = handlers
    np.seterr(**errors)


def broken(folder: Path, number: int, fault: object) -> Subject:
    """The plugin with its fault, as if it were installed."""
    _, point, changes = fault  # type: ignore[misc]
    name = f"seeded{number}"
    files = scaffold(name, point)
    project = folder / "project"
    write(files, project, whole=True)
    package = f"nlpkernel_{name}"
    pyproject = (project / "pyproject.toml").read_text("utf-8")
    code = next(iter(re.findall(r"^([A-Z]{3}) = ", pyproject, re.MULTILINE)), "")
    for file, old, new in changes:
        path = project / file.replace("~", f"src/{package}")
        if old == "delete":
            path.unlink()
            continue
        text = path.read_text("utf-8")
        old, new = (each.replace("@name", name).replace("@CODE", code) for each in (old, new))
        old, new = (re.sub(r"@\.", f"{package}.", each) for each in (old, new))
        assert not old or old in text, f"{file} has no {old!r}"
        path.write_text(text.replace(old, new) if old else text + new, encoding="utf-8")
    location = install(project, folder / "site")
    sys.path.insert(0, str(folder / "site"))
    distribution = location.name.partition("-")[0]
    return Subject(distribution, Config.read(project), Catalog(scan()))


@pytest.mark.parametrize(
    ("number", "fault"), enumerate(FAULTS), ids=[f"{each.check}-{each.point}" for each in FAULTS]
)
def test_a_broken_plugin_fails_exactly_its_check(tmp_path: Path, number: int, fault: object) -> None:
    # What is wrong with words and settings is not looked for in runs, nor the other way round.
    levels = (fault.check.partition(".")[0],)  # type: ignore[attr-defined]
    verdict = conform(broken(tmp_path, number, fault), levels)  # type: ignore[arg-type]
    failed = {outcome.check: outcome.said for outcome in verdict.outcomes if outcome.status == "failed"}
    assert failed.keys() == {fault[0]}, failed  # type: ignore[index]


def test_every_check_is_failed_by_some_fault_or_named(tmp_path: Path) -> None:
    known = {case.check.id for case in cases(Subject("nlpkernel-sdk", Config()), LEVELS[:3])}
    every = {name for name, each in REGISTRY.items() if each.level != "cost"}
    assert known <= every
    assert every - {fault.check for fault in FAULTS} == UNSEEDED
    assert len(FAULTS) >= 40
