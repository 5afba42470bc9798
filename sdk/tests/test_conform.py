"""What the kit makes of its checks: known failures, floors, reports, the command, the line in a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest

from nlpkernel.cli import main
from nlpkernel.errors import UsageError
from nlpkernel_sdk.conform.runner import conform
from nlpkernel_sdk.conform.subject import Config, Subject

JSONL = "nlpkernel-plugin-jsonl"


def wrong(**config: object) -> list[str]:
    verdict = conform(Subject("nlpkernel-sdk", Config(components=SCHEDULE, **config)), ("static",))  # type: ignore[arg-type]
    failed = [f"{each.case}: {each.said}" for each in verdict.outcomes if each.status == "failed"]
    return [*verdict.wrong, *failed]


SCHEDULE = {"optimizer.scheduled": {"settings": {"schedule": "nlpkernel-plugin-optim:constant"}}}


def test_a_known_failure_that_passes_is_a_failure() -> None:
    (said,) = wrong(known={"static.readme": "it will be written"})
    assert said.startswith("static.readme: it is listed as a known failure")


def test_a_known_failure_that_names_no_check_is_an_error() -> None:
    assert wrong(known={"static.redme": "a slip"}) == [
        "the known failure 'static.redme' is no check of this distribution"
    ]


def test_a_known_failure_needs_a_reason() -> None:
    assert wrong(known={"static.readme": " "}) == ["static.readme: it is listed as known without a reason"]


def test_fewer_checks_than_the_floor_is_an_error() -> None:
    assert wrong() == []
    (said,) = wrong(at_least=100_000)
    assert said.endswith("at least 100000 were to be")


def test_what_fails_and_is_known_does_not_fail_the_whole() -> None:
    known = {
        "static.kernel-bound": "it is the kernel",
        "static.name": "so",
        "static.codes-explained": "in other rooms",
    }
    known |= {"static.no-patches": "the engine", "static.checks[policy.budget]": "one of two is needed"}
    subject = Subject("nlpkernel", Config(known=known))
    verdict = conform(subject, ("static",))
    assert verdict.conforms, [each for each in verdict.outcomes if each.status == "failed"]
    assert verdict.counts["known"] == len(known)
    assert not attrs.evolve(verdict, wrong=["x"]).conforms


@pytest.mark.parametrize(
    ("components", "said"),
    [
        ({"monitor.json": {}}, "names 'monitor.json'"),
        ({"monitor.jsonl": {"setings": {}}}, "no key 'setings'"),
    ],
)
def test_a_table_that_means_nothing_is_an_error(components: dict[str, dict[str, object]], said: str) -> None:
    with pytest.raises(UsageError, match=f"SDK011.*{said}"):
        Subject(JSONL, Config(components=components))


def test_a_distribution_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UsageError, match="SDK010"):
        Subject("nlpkernel-plugin-nowhere", Config())


def test_the_command_writes_what_machines_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["conform", JSONL, "--level", "static", "--project", str(tmp_path), "--row"]
    files = ["--json", str(tmp_path / "v.json"), "--junit", str(tmp_path / "v.xml")]
    assert main([*words, *files, "--at-least", "30"]) == 0
    assert f"| {JSONL} | 0.1.0 | " in capsys.readouterr().out
    verdict = json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))
    suite = ElementTree.parse(tmp_path / "v.xml").getroot()
    assert verdict["conforms"]
    assert verdict["ran"] >= 30
    assert len(suite) == int(suite.attrib["tests"]) == len(verdict["outcomes"])
    assert main([*words, "--at-least", "1000"]) == 2
    assert "SDK013" in capsys.readouterr().err
    assert main([*words, "--known", "static.license"]) == 2
    assert "SDK012" in capsys.readouterr().err
    assert main([*words, "--known", "static.license=why not"]) == 2
    assert "SDK014" in capsys.readouterr().err


def test_the_result_is_written_into_the_lock_of_a_plan_that_uses_the_plugin(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'name = "tiny"\n[train]\nsteps = 2\nbatch = 4\n[data]\nuse = "tiny"\n[model]\nuse = "tiny"\n'
        '[optimizer]\nuse = "tiny"\nlr = 0.1\n[[monitor]]\nuse = "jsonl"\n',
        encoding="utf-8",
    )
    lock = tmp_path / "plan.lock"
    assert main(["lock", str(plan), "-q"]) == 0
    words = ["conform", JSONL, "-q", "--level", "static", "--project", str(tmp_path), "--lock", str(lock)]
    assert main(words) == 0
    entry = json.loads(lock.read_text(encoding="utf-8"))["conformance"][JSONL]
    assert entry["conforms"] is True
    assert entry["levels"]["static"]["passed"] > 10
    assert main(["run", str(plan), "-q", "--locked", "--runs", str(tmp_path / "runs")]) == 0


@pytest.mark.parametrize("other", ["another plugin", "other sources"])
def test_a_lock_that_is_of_something_else_is_left_as_it_is(tmp_path: Path, capsys: Any, other: str) -> None:
    component = {
        "address": "monitor[0]",
        "use": "jsonl",
        "distribution": JSONL if other == "other sources" else "acme",
        "release": "0.1.0",
        "content": "0" * 64,
    }
    activated = dict.fromkeys(("plan", "kernel", "python", "torch", "platform"), "") | {"threads": 1}
    opened = dict.fromkeys(("data", "schema", "device"), "") | {"world": 1}
    content = {
        "lock": {"activated": {**activated, "components": [component]}, "opened": opened},
        "plan": [],
    }
    lock = tmp_path / "plan.lock"
    lock.write_text(json.dumps(content), encoding="utf-8")
    words = ["conform", JSONL, "-q", "--level", "static", "--project", str(tmp_path), "--lock", str(lock)]
    assert main(words) == 2
    assert "SDK015" in capsys.readouterr().err
    assert json.loads(lock.read_text(encoding="utf-8")) == content
