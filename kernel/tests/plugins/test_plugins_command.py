"""`nlpkernel plugins`, through the public way in: child processes that see made distributions and no others."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Site

GOOD = """
from nlpkernel import component, extension, hookimpl, setting


@component(presets={"fast": {"rate": 9.0}})
class Good:
    '''A component that a test made.

    It has a second paragraph.
    '''

    rate: float = setting(gt=0, help="how fast")
    limit: int | None = setting(default=None, ge=1, unit="bytes", help="how much")
    preset: str | None = setting(default=None, help="a named set of defaults")

    @hookimpl
    def open_store(self, run, folder): ...
"""

#: Ways in which a plugin can be broken when it is imported.
BROKEN = {
    "raises": "raise RuntimeError('this plugin is broken')",
    "exits": "raise SystemExit(5)",
    "dies": "import os\nos._exit(7)",
    "needs": "import package_that_nobody_has",
    "syntax": "def (",
}


def lay(
    site: Site, name: str, source: str, *, key: str = "", point: str = "checkpoint", release: str = "1.0"
) -> None:
    module = f"module_{name.replace('-', '_')}"
    groups = {f"nlpkernel.{point}.v1": {key or name: f"{module}:Good"}}
    site.lay(name, groups, modules={module: source}, release=release)


def rows(text: str) -> list[list[str]]:
    """The cells of a listing without its head, up to the first empty line."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.split("\n\n")[0].splitlines()[2:]]


# -- P6 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", sorted(BROKEN))
def test_case_p6_list_and_show_of_another_work_with_a_broken_plugin(site: Site, how: str) -> None:
    lay(site, "broken", BROKEN[how])
    lay(site, "good", GOOD)
    listed = rows(site.run("plugins").stdout)
    assert ["checkpoint", "broken", "broken", "1.0"] in listed
    assert ["checkpoint", "good", "good", "1.0"] in listed
    assert "rate" in site.run("plugins", "show", "good").stdout


@pytest.mark.parametrize("how", sorted(BROKEN))
def test_case_p6_doctor_names_a_broken_plugin_and_lives(site: Site, how: str) -> None:
    lay(site, "broken", BROKEN[how])
    lay(site, "good", GOOD)
    done = site.run("plugins", "doctor", "--json", check=1)
    (finding,) = [each for each in json.loads(done.stdout)["findings"] if each["owner"]]
    assert finding["owner"] == "broken of broken 1.0"


def test_case_p6_an_unnamed_plugin_is_never_imported(site: Site) -> None:
    marks = site.folder / "imported"
    marks.mkdir()
    source = f"open({str(marks)!r} + '/unnamed', 'w').close()\n{GOOD}"
    lay(site, "unnamed", source)
    lay(site, "good", GOOD)
    (site.folder / "plan.toml").write_text('[checkpoint]\nuse = "good"\nrate = 1.0\n', "utf-8")
    site.run("--help")
    site.run("plugins")
    site.run("plugins", "list", "--json")
    site.run("plugins", "show", "good")
    site.run("plugins", "why", "good", "--plan", "plan.toml")
    site.run("plugins", "why", "unnamed", "--plan", "plan.toml")
    assert list(marks.iterdir()) == []
    site.run("plugins", "show", "unnamed")
    assert [mark.name for mark in marks.iterdir()] == ["unnamed"]


def test_case_p6_a_plugin_that_sleeps_at_import_does_not_slow_the_list(site: Site) -> None:
    lay(site, "sleepy", "import time\ntime.sleep(10)\n" + GOOD)
    lay(site, "good", GOOD)
    start = time.monotonic()
    site.run("--help")
    site.run("plugins")
    site.run("plugins", "show", "good")
    assert time.monotonic() - start < 10


def test_case_p6_doctor_ends_a_plugin_that_sleeps(site: Site) -> None:
    lay(site, "sleepy", "import time\ntime.sleep(60)\n" + GOOD)
    start = time.monotonic()
    done = site.run("plugins", "doctor", "--limit", "3", check=1)
    assert time.monotonic() - start < 50
    assert "NK034" in done.stdout
    assert "not finished after 3 seconds" in done.stdout


# -- list -------------------------------------------------------------------------------------------


def test_the_list_is_aligned_and_says_that_nothing_was_imported(site: Site) -> None:
    lay(site, "nlpkernel-plugin-longer", GOOD, key="x", release="10.0")
    lay(site, "b", GOOD)
    text = site.run("plugins").stdout
    lines = text.split("\n\n")[0].splitlines()
    starts = {
        line.index(cell) for line, cell in zip(lines[1:], ["budget", "b", "x"], strict=False) if cell in line
    }
    assert starts
    assert len({re.match(r"\S+\s+\S+\s+", line).end() for line in lines}) == 1  # type: ignore[union-attr]
    assert ["checkpoint", "x", "nlpkernel-plugin-longer", "10.0"] in rows(text)
    assert "none was imported" in text
    assert site.run("plugins", "list").stdout == text


def test_the_list_can_be_narrowed_to_a_point(site: Site) -> None:
    lay(site, "a", GOOD)
    lay(site, "b", GOOD, point="own_point")
    for arguments in (("--point", "own_point"), ("list", "--point", "own_point")):
        assert rows(site.run("plugins", *arguments).stdout) == [["own_point", "b", "b", "1.0"]]
    assert "no component is installed for data" in site.run("plugins", "--point", "data").stdout
    refused = site.run("plugins", "--point", "chekpoint", check=2)
    assert "NK038" in refused.stderr
    assert "did you mean 'checkpoint'?" in refused.stderr


def test_the_list_in_json_is_the_same(site: Site) -> None:
    lay(site, "a", GOOD)
    for arguments in (("--json",), ("list", "--json"), ("--json", "list")):
        answer = json.loads(site.run("plugins", *arguments, "--point", "checkpoint").stdout)
        assert answer == {
            "offers": [
                {
                    "point": "checkpoint",
                    "version": 1,
                    "name": "a",
                    "target": "module_a:Good",
                    "distribution": "a",
                    "release": "1.0",
                    "location": str(site.folder / "a-1.0.dist-info"),
                }
            ],
            "broken": [],
        }


def test_the_list_shows_another_version_of_a_contract_and_counts_broken_metadata(site: Site) -> None:
    site.lay("p", "[nlpkernel.checkpoint.v7]\nx = m:X\n[nlpkernel.data]\ny = m:Y\n")
    text = site.run("plugins").stdout
    assert ["checkpoint v7", "x", "p", "1.0"] in rows(text)
    assert "broken metadata: 1; see `nlpkernel plugins doctor`" in text


def test_commands_and_codes_of_plugins_are_no_components(site: Site) -> None:
    site.lay("p", {"nlpkernel.command.v1": {"dance": "m"}, "nlpkernel.codes.v1": {"DNC": "m:CODES"}})
    assert "dance" not in site.run("plugins").stdout
    assert rows(site.run("plugins", "--point", "command").stdout) == [["command", "dance", "p", "1.0"]]


# -- show -------------------------------------------------------------------------------------------


def test_show_tells_settings_presets_and_hooks(site: Site) -> None:
    lay(site, "nlpkernel-plugin-good", GOOD, key="good", release="2.5")
    text = site.run("plugins", "show", "good").stdout
    assert "good, for checkpoint" in text
    assert "nlpkernel-plugin-good 2.5, module_nlpkernel_plugin_good:Good" in text
    assert "It has a second paragraph." in text
    cells = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    assert ["rate", "number", "> 0", "required", "how fast"] in cells
    assert ["limit", "whole number", '>= 1, bytes, or text like "200MB"', "left out", "how much"] in cells
    assert ["fast", "{ rate = 9.0 }"] in cells
    assert ["open_store", "pick"] in [each[:2] for each in cells]
    assert "problems" not in text


def test_show_in_json(site: Site) -> None:
    lay(site, "good", GOOD)
    answer = json.loads(site.run("plugins", "show", "good", "--json").stdout)
    assert (answer["name"], answer["point"], answer["distribution"]) == ("good", "checkpoint", "good")
    assert [each["name"] for each in answer["settings"]] == ["rate", "limit", "preset"]
    assert answer["presets"] == {"fast": {"rate": 9.0}}


def test_show_of_a_name_that_several_offer_lists_the_choices(site: Site) -> None:
    lay(site, "one", GOOD, key="same")
    lay(site, "two", GOOD, key="same")
    lay(site, "three", GOOD, key="same", point="own_point")
    refused = site.run("plugins", "show", "same", check=2).stderr
    assert "NK039" in refused
    for choice in (
        "one:same --point checkpoint",
        "two:same --point checkpoint",
        "three:same --point own_point",
    ):
        assert choice in refused
    assert "  one 1.0" in site.run("plugins", "show", "one:same").stdout
    assert "  three 1.0" in site.run("plugins", "show", "same", "--point", "own_point").stdout
    assert "NK039" in site.run("plugins", "show", "same", "--point", "checkpoint", check=2).stderr


def test_show_of_an_unknown_name_suggests(site: Site) -> None:
    lay(site, "good", GOOD, key="good-store")
    refused = site.run("plugins", "show", "good_stor", check=2).stderr
    assert "NK038" in refused
    assert "did you mean 'good-store'?" in refused
    assert "for 'data'" in site.run("plugins", "show", "good-store", "--point", "data", check=2).stderr
    assert "no slot" in site.run("plugins", "show", "good-store", "--point", "dat", check=2).stderr


def test_show_of_a_broken_plugin_says_the_real_cause(site: Site) -> None:
    lay(site, "broken", BROKEN["raises"])
    refused = site.run("plugins", "show", "broken", check=2).stderr
    assert "RuntimeError: this plugin is broken" in refused
    assert "broken of broken 1.0" in refused
    assert "Traceback" not in refused


def test_show_of_a_local_file(site: Site) -> None:
    (site.folder / "own.py").write_text(GOOD, "utf-8")
    text = site.run("plugins", "show", "./own.py:Good").stdout
    assert "rate" in text
    assert str(site.folder / "own.py") in text
    assert "Goode" in site.run("plugins", "show", "./own.py:Goode", check=2).stderr


# -- doctor -----------------------------------------------------------------------------------------


def test_doctor_has_nothing_to_say_of_what_is_right(site: Site) -> None:
    lay(site, "good", GOOD)
    text = site.run("plugins", "doctor").stdout
    assert "nothing is wrong" in text
    assert json.loads(site.run("plugins", "doctor", "--json").stdout)["findings"] == []


def test_doctor_prints_a_line_a_finding_and_ends_with_1(site: Site) -> None:
    lay(site, "one", GOOD, key="same")
    lay(site, "two", BROKEN["raises"], key="same")
    lines = site.run("plugins", "doctor", check=1).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["NK031", "NK052"]
    assert lines[-1] == "2 findings"


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "soon"])
def test_doctor_refuses_a_limit_that_is_none(site: Site, limit: str) -> None:
    assert "--limit" in site.run("plugins", "doctor", f"--limit={limit}", check=2).stderr


# -- why --------------------------------------------------------------------------------------------

SLOTS = """
from typing import Any
from nlpkernel import component, extension, hookimpl, setting


@component
class Data:
    '''Data.'''
    tokenizer: Any = extension("tokenizer", default="coarse")
    other: Any = extension("tokenizer", default=None)

    @hookimpl
    def open_data(self, run): ...

    @hookimpl
    def open_codec(self, run, artifacts): ...


@component
class Tokenizer:
    '''A tokenizer.'''

    @hookimpl
    def create_tokenizer(self, run, texts): ...

    @hookimpl
    def load_tokenizer(self, run, saved): ...


@component
class Model:
    '''A model.'''

    @hookimpl
    def create_model(self, run, info): ...


@component
class Optimizer:
    '''An optimizer.'''

    @hookimpl
    def create_optimizer(self, run, groups): ...

    @hookimpl
    def create_schedule(self, run, updates): ...


@component
class Monitor:
    '''A monitor.'''

    @hookimpl
    def subscribe(self, run, bus): ...
"""

RIGHT = """\
[train]
steps = 3
policy = [{ use = "budget", time = 5 }]

[data]
use = "rows"

[model]
use = "net"

[optimizer]
use = "down"

[[monitor]]
use = "eye"

[[monitor]]
use = "eye"
"""


@pytest.fixture
def slots(site: Site) -> Site:
    groups = {
        "data": {"rows": "Data"},
        "tokenizer": {"coarse": "Tokenizer", "fine": "Tokenizer"},
        "model": {"net": "Model"},
        "optimizer": {"down": "Optimizer"},
        "monitor": {"eye": "Monitor"},
    }
    entry_points = {
        f"nlpkernel.{point}.v1": {name: f"slots:{cls}" for name, cls in entries.items()}
        for point, entries in groups.items()
    }
    site.lay("slots", entry_points, modules={"slots": SLOTS})
    return site


def why(site: Site, name: str, plan: str, *, suffix: str = ".toml") -> dict[str, Any]:
    (site.folder / f"plan{suffix}").write_text(plan, "utf-8")
    answer: dict[str, Any] = json.loads(
        site.run("plugins", "why", name, "--plan", f"plan{suffix}", "--json").stdout
    )
    return answer


def test_why_tells_where_the_plan_names_a_component_and_what_it_means(slots: Site) -> None:
    answer = why(slots, "net", RIGHT)
    assert answer["checked"] is True
    (use,) = answer["uses"]
    assert (use["address"], use["point"], use["origin"]) == ("model", "model", "plan.toml:9:7")
    assert (Path(use["place"]["file"]).name, use["place"]["line"], use["place"]["column"]) == (
        "plan.toml",
        9,
        7,
    )
    assert [each["target"] for each in use["offers"]] == ["slots:Model"]
    text = slots.run("plugins", "why", "net", "--plan", "plan.toml").stdout
    assert "plan.toml:9:7: net is used at model" in text
    assert "slots" in text
    assert "slots:Model" in text


def test_why_finds_every_place_and_nested_ones(slots: Site) -> None:
    assert [use["address"] for use in why(slots, "eye", RIGHT)["uses"]] == ["monitor[0]", "monitor[1]"]
    (use,) = why(slots, "budget", RIGHT)["uses"]
    assert (use["address"], use["point"]) == ("train.policy[0]", "policy")
    nested = RIGHT.replace('"rows"', '"rows"\nother = "fine"')
    (use,) = why(slots, "fine", nested)["uses"]
    assert (use["address"], use["point"], use["place"]["line"]) == ("data.other", "tokenizer", 7)


def test_why_tells_what_a_plan_gets_by_default(slots: Site) -> None:
    (use,) = why(slots, "coarse", RIGHT)["uses"]
    assert (use["address"], use["origin"]) == ("data.tokenizer", "default")
    text = slots.run("plugins", "why", "coarse", "--plan", "plan.toml").stdout
    assert "coarse is used at data.tokenizer: default, the plan writes nothing there" in text


def test_why_tells_what_the_kernel_adds_for_a_setting_of_its_own(slots: Site) -> None:
    (use,) = why(slots, "non-finite", RIGHT)["uses"]
    assert (use["address"], use["origin"]) == ("train.on_nan", "default")
    (use,) = why(slots, "non-finite", RIGHT.replace("steps = 3", 'steps = 3\non_nan = "skip"'))["uses"]
    assert (use["address"], use["origin"], use["place"]["line"]) == ("train.on_nan", "plan.toml:3:10", 3)


def test_why_tells_who_else_offers_the_name(slots: Site) -> None:
    lay(slots, "zz", "1 / 0", key="net", point="model")
    answer = why(slots, "net", RIGHT.replace('"net"', '"slots:net"'))
    (use,) = answer["uses"]
    assert [each["distribution"] for each in use["offers"]] == ["slots"]
    assert [each["distribution"] for each in use["others"]] == ["zz"]
    assert why(slots, "slots:net", RIGHT.replace('"net"', '"slots:net"'))["uses"] == answer["uses"]
    assert why(slots, "zz:net", RIGHT.replace('"net"', '"slots:net"'))["uses"] == []
    text = slots.run("plugins", "why", "net", "--plan", "plan.toml").stdout
    assert "also offered, and not used here, by:" in text


def test_why_of_an_ambiguous_name_says_what_to_write(slots: Site) -> None:
    lay(slots, "zz", "1 / 0", key="net", point="model")
    answer = why(slots, "net", RIGHT)
    assert answer["checked"] is False
    assert [each["distribution"] for each in answer["uses"][0]["offers"]] == ["slots", "zz"]
    text = slots.run("plugins", "why", "net", "--plan", "plan.toml").stdout
    assert 'use = "slots:net"' in text
    assert 'use = "zz:net"' in text


def test_why_of_what_the_plan_does_not_name(slots: Site) -> None:
    lay(slots, "broken", BROKEN["dies"])
    assert why(slots, "broken", RIGHT)["uses"] == []
    text = slots.run("plugins", "why", "broken", "--plan", "plan.toml").stdout
    assert text == "broken is not named by plan.toml: it is never imported\n"


def test_why_works_with_a_plan_that_has_mistakes_and_a_plugin_that_is_broken(slots: Site) -> None:
    lay(slots, "broken", BROKEN["raises"])
    plan = (
        'stepps = 3\n[data]\nuse = "rows"\ntokenizer = "fine"\n[checkpoint]\nuse = "broken"\n'
        '[data.other]\nuse = "fine"\n[model]\nuse = "nett"\n'
    )
    answer = why(slots, "broken", plan)
    assert answer["checked"] is False
    (use,) = answer["uses"]
    assert (use["address"], use["place"]["line"]) == ("checkpoint", 6)
    uses = {use["address"]: use["point"] for use in why(slots, "fine", plan)["uses"]}
    assert uses == {"data.tokenizer": "tokenizer", "data.other": "tokenizer"}
    text = slots.run("plugins", "why", "broken", "--plan", "plan.toml").stdout
    assert "problem" in text
    assert "nlpkernel check plan.toml" in text
    text = slots.run("plugins", "why", "nett", "--plan", "plan.toml").stdout
    assert "no installed distribution offers it; did you mean 'net'?" in text


def test_why_of_a_local_file(slots: Site) -> None:
    (slots.folder / "own.py").write_text(SLOTS, "utf-8")
    plan = RIGHT.replace('"net"', '"./own.py:Model"')
    (use,) = why(slots, "own.py:Model", plan)["uses"]
    assert (use["address"], use["local"], use["offers"]) == ("model", True, [])
    text = slots.run("plugins", "why", "./own.py:Model", "--plan", "plan.toml").stdout
    assert "a component of a local file" in text
    assert why(slots, "./own.py:Other", plan)["uses"] == []


def test_why_of_a_name_that_nobody_knows_suggests(slots: Site) -> None:
    (slots.folder / "plan.toml").write_text(RIGHT, "utf-8")
    refused = slots.run("plugins", "why", "nett", "--plan", "plan.toml", check=2).stderr
    assert "NK038" in refused
    assert "did you mean 'net'?" in refused


def test_why_needs_a_plan_that_can_be_read(slots: Site) -> None:
    refused = slots.run("plugins", "why", "net", "--plan", "missing.toml", check=2).stderr
    assert "missing.toml" in refused
    assert "Traceback" not in refused
    assert "--plan" in slots.run("plugins", "why", "net", check=2).stderr
