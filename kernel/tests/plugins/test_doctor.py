"""Doctor: one finding for each thing that is wrong, whatever a plugin does while it is imported."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nlpkernel.errors import Problem
from nlpkernel.plugins.doctor import doctor
from nlpkernel.plugins.scan import Scan, scan_all

if TYPE_CHECKING:
    from conftest import Site

GOOD = """
from nlpkernel import component, hookimpl, setting


@component
class Good:
    '''Good.'''

    rate: float = setting(default=1.0, help="how fast")

    @hookimpl
    def open_store(self, run, folder): ...
"""


def examine(site: Site, limit: float = 30.0) -> list[Problem]:
    """Findings about what is laid in the site, which is imported with the test's own interpreter and packages."""
    found = scan_all([str(site.folder)])
    return doctor(found, paths=[str(site.folder), *sys.path], limit=limit)


def codes(problems: Iterable[Problem]) -> list[str]:
    # What the environment of the tests lacks itself is not asked here.
    return [problem.code for problem in problems if not problem.message.startswith("nlpkernel requires")]


def lay(site: Site, source: str, name: str = "p", point: str = "checkpoint.v1") -> Path:
    module = f"module_{name.replace('-', '_')}"
    return site.lay(name, {f"nlpkernel.{point}": {"good": f"{module}:Good"}}, modules={module: source})


def test_nothing_is_wrong_with_a_good_plugin(site: Site) -> None:
    lay(site, GOOD)
    assert codes(examine(site)) == []


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("import package_that_nobody_has\n", "NK051", ["package_that_nobody_has"]),
        ("\n1 / 0\n", "NK052", ["ZeroDivisionError", "module_p.py:2"]),
        ("import sys\nsys.exit(4)\n", "NK052", ["SystemExit: 4"]),
        ("Good = 3\n", "NK053", ["module_p:Good", "is no component"]),
        ("from nlpkernel import component\n@component\nclass Good: ...\n", "NK057", ["open_store"]),
        (GOOD.replace("open_store", "open_stoer"), "NK054", ["open_stoer", "did you mean 'open_store'"]),
        (GOOD.replace("folder", "foldr"), "NK055", ["foldr"]),
        (GOOD.replace(": float", ": 'Gone'"), "NK053", ["Good.rate", "Gone"]),
        ("import os\nos._exit(9)\n", "NK033", ["with exit code 9"]),
        (
            "\nimport os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
            "NK033",
            ["SIGSEGV", "module_p.py", "line 3"],
        ),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "NK033", ["SIGKILL"]),
    ],
)
def test_a_broken_plugin_is_found_with_the_real_cause(
    site: Site, source: str, code: str, words: list[str]
) -> None:
    lay(site, source)
    lay(site, GOOD, name="other", point="precision.v2")  # refused without an import, so it costs nothing
    problems = [problem for problem in examine(site) if problem.code in (code, "NK050")]
    assert [problem.code for problem in problems].count(code) == 1
    problem = next(problem for problem in problems if problem.code == code)
    for word in (*words, "p 1.0", "good"):
        assert word in str(problem)


def test_a_plugin_that_hangs_is_ended_with_what_it_started(site: Site) -> None:
    mark = site.folder / "child"
    lay(
        site,
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n",
    )
    start = time.monotonic()
    (problem,) = [problem for problem in examine(site, limit=5.0) if problem.code == "NK034"]
    assert time.monotonic() - start < 30
    assert "not finished after 5 seconds" in problem.message
    pid = int(mark.read_text())
    for _ in range(100):
        if not _runs(pid):
            break
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # It may be dead and wait for the first process to ask for it.
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_process_that_a_plugin_leaves_behind_holds_nobody_up(site: Site) -> None:
    lay(
        site,
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        + GOOD,
    )
    start = time.monotonic()
    assert codes(examine(site)) == []
    assert time.monotonic() - start < 30


def test_what_a_plugin_prints_and_reads_does_not_disturb(site: Site) -> None:
    lay(site, "import os, sys\nprint('{\"a\"')\nos.write(1, b'x')\nassert sys.stdin.read() == ''\n" + GOOD)
    assert codes(examine(site)) == []


@pytest.mark.parametrize("package", ["torch", "numpy", "zmq", "cupy"])
def test_a_heavy_import_of_a_light_module_is_found_with_its_line(site: Site, package: str) -> None:
    # A stand-in, so that the real one is not paid for.
    (site.folder / package).mkdir()
    (site.folder / package / "__init__.py").write_text("", "utf-8")
    site.lay(
        "p",
        {"nlpkernel.checkpoint.v1": {"good": "deep.part:Good"}},
        modules={"deep.part": f"import deep.helper\n{GOOD}", "deep.helper": f"\n\nimport {package}\n"},
    )
    (problem,) = [problem for problem in examine(site) if problem.code == "NK035"]
    assert f"imports {package}" in problem.message
    assert f"{os.path.join('deep', 'helper.py')}:3" in problem.message


def test_a_heavy_import_that_is_tried_and_missing_is_no_finding(site: Site) -> None:
    lay(site, "try:\n    import cupy\nexcept ImportError:\n    cupy = None\n" + GOOD)
    if not _has("cupy"):
        assert codes(examine(site)) == []


def _has(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None


def test_a_name_that_two_distributions_offer_is_found_once_with_both(site: Site) -> None:
    lay(site, GOOD, name="one")
    lay(site, GOOD, name="two")
    (problem,) = [problem for problem in examine(site) if problem.code == "NK031"]
    assert "one 1.0 (module_one:Good) and two 1.0 (module_two:Good)" in problem.message
    assert problem.hint == 'write use = "one:good" or "two:good" in a plan'


def test_a_name_that_one_distribution_offers_twice_is_found(site: Site) -> None:
    site.lay(
        "p",
        "[nlpkernel.checkpoint.v1]\ngood = m:Good\ngood = m:Other\n",
        modules={"m": GOOD + "\nOther = Good\n"},
    )
    assert codes(examine(site)) == ["NK031"]


def test_a_component_built_for_another_version_is_refused_without_importing_it(site: Site) -> None:
    lay(site, "import os\nos._exit(1)\n", point="checkpoint.v2")
    (problem,) = [problem for problem in examine(site) if problem.code.startswith("NK05")]
    assert problem.code == "NK050"
    assert "2" in problem.message
    assert "upgrade nlpkernel" in str(problem.hint)


def test_a_distribution_may_serve_two_versions_of_the_kernel(site: Site) -> None:
    group = "[nlpkernel.checkpoint.v{}]\ngood = {}:Good\n"
    text = group.format(1, "one") + group.format(2, "two")
    site.lay("p", text, modules={"one": GOOD, "two": "1 / 0"})
    assert codes(examine(site)) == []


def test_a_point_that_nobody_opens_is_found_with_a_suggestion(site: Site) -> None:
    lay(site, GOOD, point="chekpoint.v1")
    (problem,) = [problem for problem in examine(site) if problem.code == "NK032"]
    assert "'chekpoint'" in problem.message
    assert problem.hint == "did you mean 'checkpoint'?"


OPENING = """
from typing import Any
from nlpkernel import component, extension, hookimpl, settings, setting

@settings
class Table:
    '''A table.'''
    inner: Any = extension("my_point", default=None)

@component
class Good:
    '''Opens a point of its own.'''
    table: Table = setting(default=Table(), help="a table")

    @hookimpl
    def open_store(self, run, folder): ...

@component
class Inner:
    '''For that point.'''
"""


def test_a_point_of_a_plugins_own_is_known(site: Site) -> None:
    text = "[nlpkernel.checkpoint.v1]\ngood = m:Good\n[nlpkernel.my_point.v1]\nx = m:Inner\n"
    site.lay("p", text, modules={"m": OPENING})
    assert codes(examine(site)) == []


def test_a_point_may_be_opened_by_what_does_not_import_and_the_hint_says_so(site: Site) -> None:
    site.lay("p", {"nlpkernel.checkpoint.v1": {"good": "m:Good"}}, modules={"m": "1 / 0"})
    site.lay("q", {"nlpkernel.my_point.v1": {"x": "n:Inner"}}, modules={"n": OPENING})
    (problem,) = [problem for problem in examine(site) if problem.code == "NK032"]
    assert "may open it (1 cannot be asked)" in str(problem.hint)


def test_a_point_of_a_plugins_own_has_version_one(site: Site) -> None:
    text = "[nlpkernel.checkpoint.v1]\ngood = m:Good\n[nlpkernel.my_point.v2]\nx = m:Inner\n"
    site.lay("p", text, modules={"m": OPENING})
    assert len(codes(examine(site))) == 1


def test_requirements_that_are_missing_or_of_another_release_are_found(site: Site) -> None:
    lay(site, GOOD, name="plugin")
    metadata = site.folder / "plugin-1.0.dist-info" / "METADATA"
    metadata.write_text(
        "Name: plugin\nVersion: 1.0\nRequires-Dist: nobody-has-this>=1\nRequires-Dist: attrs<1\n", "utf-8"
    )
    problems = [problem for problem in examine(site) if problem.code in ("NK036", "NK037")]
    missing, other = [problem for problem in problems if problem.message.startswith("plugin ")]
    assert missing.message == "plugin requires nobody-has-this>=1, which is not installed"
    assert missing.hint == 'pip install "nobody-has-this>=1"'
    assert other.code == "NK037"
    assert other.message.startswith("plugin requires attrs<1, which is installed as ")


def test_the_kernels_own_requirements_are_held_to_their_releases(site: Site) -> None:
    site.lay("pluggy", "", release="1.5.0")
    site.lay("nlpkernel", "", release="0.1.0", requires=("pluggy>=1.7", "attrs"))
    (problem,) = doctor(Scan([], []), paths=[str(site.folder), *sys.path])
    assert problem.code == "NK037"
    assert problem.message == "nlpkernel requires pluggy>=1.7, which is installed as 1.5.0"


def test_broken_metadata_are_findings(site: Site) -> None:
    site.lay("p", "[nlpkernel.checkpoint]\nx = m:X\n")
    (problem,) = [problem for problem in examine(site) if problem.code == "NK030"]
    assert problem.owner == "p"
    assert "entry_points.txt:2" in problem.message


@pytest.mark.parametrize(
    ("point", "target", "source", "words"),
    [
        ("codes", "m:CODES", "CODES = {'X001': ('a', 'b')}", None),
        ("codes", "m:CODES", "CODES = []", ["no table of codes but of type list"]),
        ("codes", "m:CODES", "", ["AttributeError"]),
        ("command", "m", "HELP = ''\ndef arguments(p): ...\ndef execute(a): ...", None),
        ("command", "m", "HELP = ''", ["it has no arguments and no execute"]),
        ("command", "m:X", "X = 1", ["is of type int, and a command is a whole module"]),
        ("starter", "m:TEXT", "TEXT = 'steps = 1'", None),
        ("starter", "m:TEXT", "TEXT = b''", ["no text of a plan but of type bytes"]),
        ("command", "m", "raise SystemExit", ["SystemExit"]),
    ],
)
def test_codes_and_commands_are_held_to_what_they_should_be(
    site: Site, point: str, target: str, source: str, words: list[str] | None
) -> None:
    site.lay("p", {f"nlpkernel.{point}.v1": {"x": target}}, modules={"m": source})
    problems = [problem for problem in examine(site) if problem.code == "NK040"]
    assert bool(problems) == (words is not None)
    for word in words or ():
        assert word in problems[0].message
