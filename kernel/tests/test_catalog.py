"""How a `use` becomes a class, and every way in which it does not: by name, with the owner and the real cause."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from nlpkernel.errors import Place, PluginError, Problem
from nlpkernel.hookspecs import POINTS
from nlpkernel.plan import Plan
from nlpkernel.plugins.catalog import Catalog, Found

if TYPE_CHECKING:
    from conftest import Shop

GOOD = """
from nlpkernel import component, hookimpl, setting


@component
class Good:
    '''A store of a test.'''

    @hookimpl
    def open_store(self, run, folder): ...
"""
PLACE = Place("plan.toml", 3, 7)
_numbers = itertools.count()


class Installed:
    """Distributions made of files, on `sys.path`; every module gets a name of its own."""

    def __init__(self, folder: Path, lay: Callable[..., None]) -> None:
        self.folder = folder
        self._lay = lay

    def add(
        self,
        source: str,
        *,
        distribution: str = "acme",
        name: str = "good",
        target: str = "{module}:Good",
        version: int = 1,
        point: str = "checkpoint",
        release: str = "2.5",
    ) -> str:
        """Lay a distribution; give the name of its module."""
        module = f"module_{next(_numbers)}"
        groups = {f"nlpkernel.{point}.v{version}": {name: target.format(module=module)}}
        self._lay(self.folder, distribution, groups, {module: source}, release)
        return module

    def resolve(self, use: str = "good", point: str = "checkpoint") -> Found | Problem:
        """What a plan would get."""
        return Catalog().resolve(point, use, base=self.folder, place=PLACE)

    def refused(self, use: str = "good", point: str = "checkpoint") -> Problem:
        """Why a plan would get nothing."""
        found = self.resolve(use, point)
        assert isinstance(found, Problem)
        assert found.place == PLACE
        return found


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lay: Callable[..., None]) -> Installed:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return Installed(folder, lay)


def test_a_component_is_found_with_its_owner(installed: Installed) -> None:
    installed.add(GOOD)
    found = installed.resolve()
    assert isinstance(found, Found)
    assert (found.use, found.distribution, found.release, found.local) == ("good", "acme", "2.5", False)
    assert found.owner == "good of acme 2.5"


# -- P5: the ways in which a plugin fails ---------------------------------------------------------------------------


def test_case_p5_a_missing_package_is_named(installed: Installed) -> None:
    module = installed.add("import os\nimport package_that_nobody_has.inside\n" + GOOD)
    problem = installed.refused()
    assert problem.code == "NK051"
    assert problem.message == (
        "'good' cannot be imported: it needs the package 'package_that_nobody_has', which is not installed "
        f"({installed.folder}/{module}.py:2)"
    )
    assert problem.owner == "good of acme 2.5"
    assert problem.hint == "pip install package_that_nobody_has, if its distribution has the same name"


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("\nraise RuntimeError('no such device')", 2, "RuntimeError: no such device"),
        ("def inner():\n    1 / 0\ninner()", 2, "ZeroDivisionError: division by zero"),
        ("x = 1\ndef (", 2, "SyntaxError: invalid syntax"),
        ("raise SystemExit(5)", 1, "SystemExit: 5"),
        ("import json\njson.loads('{')", None, "JSONDecodeError"),
        ("from os import nothing_like_it", 1, "ImportError: cannot import name 'nothing_like_it' from 'os'"),
        (
            GOOD.replace("    @hookimpl", "    use: str = setting()\n\n    @hookimpl"),
            5,
            "'use', which names the comp",
        ),
        (
            GOOD.replace("    @hookimpl", "    rate = setting()\n\n    @hookimpl"),
            5,
            "UnannotatedAttributeError",
        ),
    ],
)
def test_case_p5_an_import_error_names_cause_file_and_line(
    installed: Installed, source: str, line: int | None, said: str
) -> None:
    module = installed.add(source)
    problem = installed.refused()
    assert problem.code == "NK052"
    assert problem.message.startswith("'good' cannot be imported: ")
    assert said in problem.message
    if line is not None:
        assert problem.message.endswith(f"({installed.folder}/{module}.py:{line})")
    assert (problem.owner, problem.hint) == ("good of acme 2.5", "see `nlpkernel plugins doctor`")


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        (
            "{module}:Nothing",
            "NK053",
            "the entry point 'good' leads to '{module}:Nothing', and there is no 'Nothing'",
        ),
        ("{module}:Good.Inner", "NK053", "and there is no 'Inner'"),
        ("{module}_gone:Good", "NK052", "ModuleNotFoundError: No module named '{module}_gone'"),
        ("{module}:setting", "NK053", "'{module}:setting' is no component"),
        ("{module}:Plain", "NK053", "'{module}:Plain' is no component"),
        ("{module}:Subclass", "NK053", "'{module}:Subclass' is no component"),
    ],
)
def test_case_p5_what_is_no_component_is_refused(
    installed: Installed, target: str, code: str, said: str
) -> None:
    source = (
        GOOD + "\n\nclass Plain: ...\n\n\nclass Subclass(Good):\n    rate: float = setting(default=1.0)\n"
    )
    module = installed.add(source, target=target)
    problem = installed.refused()
    assert problem.code == code
    assert said.format(module=module) in problem.message
    assert problem.owner == "good of acme 2.5"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Nowhere", "Good.rate: the type 'Nowhere' cannot be resolved (name 'Nowhere' is not defined)"),
        ("os.Nowhere", "Good.rate: the type 'os.Nowhere' cannot be resolved"),
        ("complex", "Good.rate: no plan can write the type complex"),
        ("list", "Good.rate: no plan can write the type list"),
        ("set[int]", "Good.rate: no plan can write the type set[int]"),
        ("dict[int, str]", "Good.rate: no plan can write the type dict[int, str]"),
        ("list[bytes] | None", "Good.rate: no plan can write the type list[bytes] | None"),
        ("Inner", "Inner.x: no plan can write the type complex"),
    ],
)
def test_a_setting_of_a_type_that_no_plan_can_write_is_refused(
    installed: Installed, kind: str, said: str
) -> None:
    source = "from __future__ import annotations\nimport os\nfrom nlpkernel import settings\n" + GOOD
    source = source.replace(
        "@component", "@settings\nclass Inner:\n    x: complex = setting(default=1j)\n\n@component"
    )
    installed.add(source.replace("    @hookimpl", f"    rate: {kind} = setting()\n\n    @hookimpl"))
    problem = installed.refused()
    assert problem.code == "NK053"
    assert problem.message.startswith(said)


@pytest.mark.parametrize(
    ("ours", "theirs", "hint"),
    [(1, 2, "upgrade nlpkernel, or install an older acme"), (2, 1, "upgrade acme")],
)
def test_case_p5_another_version_of_the_contract_is_refused_without_an_import(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, ours: int, theirs: int, hint: str
) -> None:
    monkeypatch.setitem(POINTS, "checkpoint", attrs.evolve(POINTS["checkpoint"], version=ours))
    module = installed.add("raise RuntimeError('imported')", version=theirs)
    problem = installed.refused()
    assert problem.code == "NK050"
    assert problem.message == (
        f"'good' is built for version {theirs} of the contract for 'checkpoint', and this kernel has version {ours}"
    )
    assert (problem.owner, problem.hint) == ("good of acme 2.5", hint)
    assert module not in sys.modules


def test_a_distribution_that_supports_two_versions_gives_the_right_one(installed: Installed) -> None:
    installed.add("raise RuntimeError('the wrong one')", version=2)
    info = next(installed.folder.glob("*.dist-info")) / "entry_points.txt"
    (installed.folder / "right.py").write_text(GOOD, "utf-8")
    info.write_text(info.read_text("utf-8") + "[nlpkernel.checkpoint.v1]\ngood = right:Good\n", "utf-8")
    found = installed.resolve()
    assert isinstance(found, Found)
    assert found.target == "right:Good"


def test_case_p5_a_plan_that_names_a_broken_plugin_is_a_plugin_error(
    installed: Installed, shop: Shop
) -> None:
    installed.add("raise RuntimeError('no such device')")
    with pytest.raises(PluginError) as caught:
        Plan.load(shop.plan('[checkpoint]\nuse = "good"\n'))
    assert caught.value.exit_code == 2
    (problem,) = caught.value.problems
    assert problem.place == Place(str(shop.folder / "plan.toml"), 2, 7)


# -- names ----------------------------------------------------------------------------------------------------------


def test_case_p5_the_same_name_twice_is_resolved_by_the_distribution(installed: Installed) -> None:
    installed.add(GOOD, distribution="acme-one")
    installed.add(GOOD, distribution="acme-two")
    problem = installed.refused()
    assert (problem.code, problem.hint) == ("NK107", "write acme-one:good or acme-two:good")
    for use in ("acme-two:good", "Acme_Two:good"):
        found = installed.resolve(use)
        assert isinstance(found, Found)
        assert (found.distribution, found.owner) == ("acme-two", "good of acme-two 2.5")


def test_a_misspelt_component_suggests(installed: Installed) -> None:
    installed.add(GOOD)
    problem = installed.refused("godo")
    assert (problem.code, problem.hint) == ("NK106", "did you mean 'good'?")
    assert installed.refused("acme:godo").hint == "did you mean 'good'?"
    assert installed.refused("other:good").hint == "there is acme:good"
    problem = installed.refused("x", "a-point-that-nobody-serves")
    assert problem.hint == "none is installed for it: pip install nlpkernel-standard"


def test_a_component_of_another_point_is_not_taken(installed: Installed) -> None:
    installed.add(GOOD)
    assert installed.refused("good", "optimizer").code == "NK106"


# -- local files ----------------------------------------------------------------------------------------------------


def test_a_component_comes_from_a_local_file_and_a_changed_file_is_another(installed: Installed) -> None:
    path = installed.folder / "own.py"
    path.write_text(GOOD, "utf-8")
    first, again = (installed.resolve("./own.py:Good") for _ in range(2))
    assert isinstance(first, Found)
    assert isinstance(again, Found)
    assert first.cls is again.cls
    assert first.local
    assert first.target == f"{path}:Good"
    assert first.owner == f"Good of {path} {first.release}"
    path.write_text(GOOD + "# changed\n", "utf-8")
    changed = installed.resolve("./own.py:Good")
    assert isinstance(changed, Found)
    assert changed.cls is not first.cls
    assert changed.release != first.release


@pytest.mark.parametrize(
    ("source", "use", "code", "message", "hint"),
    [
        (None, "./own.py:Good", "NK056", "cannot read the local component file", None),
        (GOOD, "./own.py:Godo", "NK056", "has no 'Godo'", "did you mean 'Good'?"),
        (GOOD, "./own.py", "NK056", "'./own.py' names no class of the file", "there are: Good"),
        ("", "./own.py:Good", "NK056", "has no 'Good'", "it has no class made with @component"),
        ("class Good: ...", "./own.py:Good", "NK053", "is no component", "a component is a class made with"),
        ("x = (", "./own.py:Good", "NK052", "SyntaxError: '(' was never closed (", None),
        (
            "import nobody_has_it",
            "./own.py:Good",
            "NK051",
            "it needs the package 'nobody_has_it'",
            "pip install",
        ),
        ("raise SystemExit", "./own.py:Good", "NK052", "cannot be imported: SystemExit: ", None),
    ],
)
def test_a_local_file_that_cannot_serve(
    installed: Installed, source: str | None, use: str, code: str, message: str, hint: str | None
) -> None:
    if source is not None:
        (installed.folder / "own.py").write_text(source, "utf-8")
    problem = installed.refused(use)
    assert problem.code == code
    assert message in problem.message
    assert (problem.hint or "").startswith(hint or "") or hint == problem.hint
    assert (hint is None) == (problem.hint is None)
    left = [
        name
        for name, module in sys.modules.items()
        if getattr(module, "__file__", "") == f"{installed.folder}/own.py"
    ]
    assert code in ("NK053", "NK056") or not left


def test_two_files_of_one_name_are_two_modules(installed: Installed) -> None:
    for folder in ("one", "two"):
        (installed.folder / folder).mkdir()
        (installed.folder / folder / "own.py").write_text(GOOD, "utf-8")
    one, two = (installed.resolve(f"./{folder}/own.py:Good") for folder in ("one", "two"))
    assert isinstance(one, Found)
    assert isinstance(two, Found)
    assert one.cls is not two.cls


# -- P6 -------------------------------------------------------------------------------------------------------------


def test_case_p6_checking_a_plan_imports_only_what_it_names(installed: Installed, shop: Shop) -> None:
    unnamed = installed.add("raise RuntimeError('imported')", distribution="other", name="unnamed")
    slot_mate = installed.add(
        "raise RuntimeError('imported')", distribution="more", name="mate", point="monitor"
    )
    named = installed.add(GOOD)
    Plan.load(shop.plan('[checkpoint]\nuse = "good"\n')).compose()
    assert named in sys.modules
    assert unnamed not in sys.modules
    assert slot_mate not in sys.modules
