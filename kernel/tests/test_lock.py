"""The lock says what exactly ran: every component with its distribution, release and content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import nlpkernel
from nlpkernel import lock
from nlpkernel.plan import Plan
from nlpkernel_sdk import tiny_plan

if TYPE_CHECKING:
    from conftest import Shop

MONITOR = """
from nlpkernel import component, hookimpl, setting

@component
class Watch:
    rate: float = setting(default=1.0)

    @hookimpl
    def subscribe(self): ...
"""


def locked(plan: Plan) -> dict[str, lock.LockedComponent]:
    activated = lock.activate(plan.text(), plan.compose().placed)
    return {each.address: each for each in activated.components}


def test_a_run_is_locked_with_all_that_made_it(tmp_path: Path) -> None:
    plan = tiny_plan(name="first", train={"steps": 1})
    nlpkernel.run(plan, runs_folder=tmp_path)
    said: dict[str, Any] = json.loads((tmp_path / "first/lock.json").read_text("utf-8"))
    written = (tmp_path / "first/plan.toml").read_text("utf-8")
    assert said["activated"]["plan"] == hashlib.sha256(written.encode()).hexdigest()
    assert said["activated"]["kernel"] == nlpkernel.__version__
    components = {each["address"]: each for each in said["activated"]["components"]}
    assert list(components) == ["data", "model", "optimizer", "communicator", "precision", "train.on_nan"]
    assert components["data"]["use"] == "tiny"
    assert components["data"]["distribution"] == "nlpkernel-sdk"
    assert components["communicator"]["release"] == nlpkernel.__version__
    assert components["data"]["content"] == components["model"]["content"]
    assert components["data"]["content"] != components["communicator"]["content"]
    assert {"data", "schema", "world", "device"} == said["opened"].keys()
    assert said["opened"]["world"] == 1


def test_a_changed_local_file_is_another_content(shop: Shop) -> None:
    plan_file = shop.plan('[[monitor]]\nuse = "./watch.py:Watch"\n')
    contents = []
    for text in (MONITOR, MONITOR + "# changed\n", MONITOR):
        shop.write("watch.py", text)
        component = locked(Plan.load(plan_file))["monitor[0]"]
        assert component.content == hashlib.sha256(text.encode()).hexdigest()
        assert component.content.startswith(component.release)
        assert component.distribution == str(shop.folder / "watch.py")
        contents.append(component.content)
    assert contents[0] == contents[2] != contents[1]


@pytest.fixture
def content(
    tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch, lay: Callable[..., None]
) -> Callable[[str], str]:
    """The content that a lock gives for a component of an installed module, hashed afresh each time."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def of(module: str) -> str:
        monkeypatch.setattr(lock, "_hashes", {})
        distribution = module.partition(".")[0].replace("_", "-")
        if not list(site.glob(f"{distribution.replace('-', '_')}-*")):
            lay(site, distribution, {"nlpkernel.monitor.v1": {distribution: f"{module}:Watch"}}, {})
        return locked(Plan.load(shop.plan(f'[[monitor]]\nuse = "{distribution}"\n')))["monitor[0]"].content

    return of


def test_the_content_of_a_package_is_that_of_all_its_sources(
    tmp_path: Path, content: Callable[[str], str]
) -> None:
    package = tmp_path / "site/locked_package"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "component.py").write_text(MONITOR, "utf-8")
    first = content("locked_package.component")
    (package / "deep/heavy.py").write_text("x = 1", "utf-8")
    second = content("locked_package.component")
    (package / "deep/heavy.py").rename(package / "deep/other.py")
    third = content("locked_package.component")
    (package / "deep/other.py").unlink()
    assert len({first, second, third}) == 3
    assert content("locked_package.component") == first


def test_a_plugin_of_one_module_is_locked_by_its_file(tmp_path: Path, content: Callable[[str], str]) -> None:
    module = tmp_path / "site/locked_module.py"
    module.write_text(MONITOR, "utf-8")
    (tmp_path / "site/neighbour.py").write_text("x = 1", "utf-8")
    first = content("locked_module")
    (tmp_path / "site/neighbour.py").write_text("x = 2", "utf-8")
    assert content("locked_module") == first
    module.write_text(MONITOR + "# changed\n", "utf-8")
    assert content("locked_module") != first


def test_nested_components_and_defaults_are_locked_too(shop: Shop) -> None:
    text = '[[train.policy]]\nuse = "budget"\ntokens = "3M"\n'
    assert [(address, each.use) for address, each in locked(Plan.load(shop.plan(text))).items()] == [
        ("train.policy[0]", "budget"),
        ("data", "./parts.py:Data"),
        ("model", "./parts.py:Model"),
        ("optimizer", "./parts.py:Optimizer"),
        ("communicator", "single"),
        ("precision", "plain"),
        ("train.on_nan", "non-finite"),
    ]


def test_the_schema_of_a_model_is_its_names_shapes_and_types_in_order() -> None:
    base = {"a": ((2, 3), "float32"), "b": ((2,), "float32")}
    others = [
        {"a": ((2, 3), "float32")},
        {"a": ((3, 2), "float32"), "b": ((2,), "float32")},
        {"a": ((2, 3), "bfloat16"), "b": ((2,), "float32")},
        {"x": ((2, 3), "float32"), "b": ((2,), "float32")},
        dict(reversed(base.items())),
    ]
    hashes = {lock.schema_text(each) for each in [base, *others]}
    assert len(hashes) == 6
    assert lock.schema_text(dict(base)) in hashes
