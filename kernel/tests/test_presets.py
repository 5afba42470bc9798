"""Presets: named sets of defaults, between a setting's own default and what the plan writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from nlpkernel import component, setting
from nlpkernel.errors import PlanError
from nlpkernel.plan import Plan

if TYPE_CHECKING:
    from conftest import Shop

BEFORE = """
@settings
class Group:
    a: int = setting(default=1)
    b: int = setting(default=2)

PRESETS = {
    "small": {"width": 8, "pair": (1, 2), "group": {"a": 10}, "where": "small.txt"},
    "large": {"width": 64, "some": [1], "schedule": {"use": "./nested.py:S", "warmup": 5}},
}
"""
FIELDS = """
preset: str | None = setting(default=None, help="a size")
width: int = setting(ge=1, help="the width")
depth: int = setting(default=3)
pair: tuple[float, float] = setting(default=(0, 0))
some: list[int] = setting(default=[])
group: Group = setting(default=Group(b=20))
where: Path | None = setting(default=None)
schedule: Any = extension("schedule", default=None)
"""
NESTED = """
from nlpkernel import component, hookimpl, setting

@component
class S:
    warmup: int = setting(default=0)

    @hookimpl
    def create_schedule(self): ...
"""


@pytest.fixture
def sizes(shop: Shop) -> Shop:
    shop.write("nested.py", NESTED)
    shop.own(FIELDS, before=BEFORE, decorator="@component(presets=PRESETS)")
    return shop


def test_a_preset_gives_what_the_plan_leaves_out_and_says_so(sizes: Shop) -> None:
    made: Any = sizes.made('preset = "small"')
    assert (made.width, made.depth, made.pair, made.group.a, made.group.b) == (8, 3, (1.0, 2.0), 10, 20)
    assert made.where == sizes.folder / "small.txt"
    plan = sizes.load('preset = "small"\ngroup = { b = 7 }')
    origins = {path: node.origin for path, node in plan.filled.walk()}
    assert origins["optimizer.width"] == "preset small"
    assert origins["optimizer.pair[0]"] == "preset small"
    assert origins["optimizer.group.a"] == "preset small"
    assert origins["optimizer.depth"] == "default"
    assert origins["optimizer.group.b"].endswith("plan.toml:4:15")
    text = plan.text(origins=True)
    assert "# preset small" in text
    assert "# default" in text


def test_the_plan_and_overrides_stand_over_a_preset(sizes: Shop) -> None:
    made: Any = sizes.made('preset = "small"\nwidth = 9\ngroup = { b = 7 }', "optimizer.pair=[5, 5]")
    assert (made.width, made.pair, made.group.a, made.group.b) == (9, (5.0, 5.0), 10, 7)
    made = sizes.made('preset = "small"', "optimizer.preset=large")
    assert (made.width, made.pair, made.some, made.schedule.warmup) == (64, (0.0, 0.0), [1], 5)


def test_a_wrong_preset_is_one_line_that_suggests(sizes: Shop) -> None:
    (line,) = sizes.lines('preset = "smal"')
    assert line.startswith("plan.toml:3:10: NK111 there is no preset 'smal'; did you mean 'small'? [Own of ")
    (line,) = sizes.lines('preset = ["small"]\nwidth = 1')
    assert "NK103 optimizer.preset must be text, not a list" in line


def test_what_no_preset_gives_is_still_missing(sizes: Shop) -> None:
    (line,) = sizes.lines("")
    assert "NK102 optimizer.width is missing; width: the width" in line


def test_null_cannot_take_away_what_a_preset_gives(sizes: Shop) -> None:
    values = sizes.values(optimizer={"use": "./own.py:Own", "preset": "small", "where": None})
    with pytest.raises(PlanError, match=r"NK103 optimizer\.where cannot be null"):
        Plan.of(values, base=sizes.folder)


def test_a_preset_that_breaks_a_rule_is_the_authors_fault(sizes: Shop) -> None:
    bad = BEFORE.replace('"width": 8', '"width": 0')
    sizes.own(FIELDS, before=bad, decorator="@component(presets=PRESETS)")
    (line,) = sizes.lines('preset = "small"')
    assert line.startswith(
        "plan.toml:3:10: NK104 optimizer.width is 0, and must be at least 1; this is what the"
    )


def test_a_filled_preset_reads_back_as_itself(sizes: Shop) -> None:
    from nlpkernel.plan.compare import differences

    for preset in ("small", "large"):
        plan = sizes.load(f'preset = "{preset}"')
        again = Plan.load(sizes.write("other/again.toml", plan.text()))
        assert differences(plan.text(), again.text()) == []


def test_presets_that_name_no_setting_are_refused_where_they_are_made() -> None:
    class WithoutChoice:
        width: int = setting(default=1)

    class Strange:
        preset: str = setting(default="a")
        width: int = setting(default=1)

    with pytest.raises(TypeError, match="WithoutChoice has presets and no setting 'preset'"):
        component(presets={"a": {"width": 1}})(WithoutChoice)
    with pytest.raises(TypeError, match="Strange: the preset 'a' gives 'widht', which is no setting"):
        component(presets={"a": {"widht": 1}})(Strange)
