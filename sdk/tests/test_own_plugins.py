"""All plugins of this house conform, as far as metadata, sources and settings go (the level `static`), and some of them
in runs too. What each needs, and what is known, is in its own pyproject.toml; `make conform` looks at all in runs."""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path

import attrs
import pytest

from nlpkernel.plugins.catalog import Catalog
from nlpkernel_sdk.conform.outcome import Verdict
from nlpkernel_sdk.conform.runner import conform
from nlpkernel_sdk.conform.subject import Config, Subject

ROOT = Path(__file__).parents[2]
OFFERS = Catalog()
#: Ray, which `make ray` brings, is what its plugin requires.
LEFT_OUT = set() if find_spec("ray") else {"nlpkernel-plugin-ray"}


def _projects() -> dict[str, Path]:
    """Every distribution of this house that offers something here, and its folder. The kernel is no plugin."""
    files = [ROOT / "sdk/pyproject.toml", *sorted(ROOT.glob("*/*/pyproject.toml"))]
    named = {tomllib.loads(file.read_text("utf-8"))["project"]["name"]: file.parent for file in files}
    offered = {offer.distribution for offer in OFFERS.offers} - LEFT_OUT
    return {name: folder for name, folder in named.items() if name in offered}


PROJECTS = _projects()
#: A small one of those that compute and of those that watch; `make conform` takes minutes.
IN_RUNS = ["nlpkernel-plugin-jsonl", "nlpkernel-plugin-recurrent"]


def _failed(verdict: Verdict) -> list[str]:
    failed = [f"{each.case}: {each.said}" for each in verdict.outcomes if each.status == "failed"]
    return [*verdict.wrong, *failed]


def _asked(distribution: str, level: str) -> Verdict:
    # The floor of a pyproject.toml is that of both levels together.
    config = attrs.evolve(Config.read(PROJECTS[distribution]), at_least=1)
    return conform(Subject(distribution, config, OFFERS), (level,))  # type: ignore[arg-type]


def test_the_plugins_of_this_house_are_found() -> None:
    assert len(PROJECTS) > 15
    assert set(IN_RUNS) <= PROJECTS.keys()


@pytest.mark.parametrize("distribution", PROJECTS)
def test_a_plugin_of_this_house_conforms(distribution: str) -> None:
    verdict = _asked(distribution, "static")
    assert _failed(verdict) == []
    assert verdict.ran >= 20
    needed = [each.said for each in verdict.outcomes if each.status == "skipped" and "it needs" in each.said]
    assert needed == []


@pytest.mark.parametrize("distribution", IN_RUNS)
def test_it_conforms_in_runs(distribution: str) -> None:
    verdict = _asked(distribution, "behaviour")
    assert _failed(verdict) == []
    assert verdict.ran >= 15
