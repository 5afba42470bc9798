"""Requirements, versions and markers, held against `packaging`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.requirements import Requirement as Reference
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from nlpkernel.plugins.requires import applies, parse, release_of, satisfies, unmet

numbers = st.integers(0, 3)
releases = st.lists(numbers, min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))
versions = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "", "", "1!"]),
    releases,
    st.sampled_from(["", "", "a1", "b2", "rc1", "c1", ".alpha.1", "-preview1"]),
    st.sampled_from(["", "", ".post1", "-2", ".rev3", "post"]),
    st.sampled_from(["", "", ".dev1", "dev"]),
)
locals_ = st.sampled_from(["", "", "+cpu", "+cu121.2"])
operators = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "~="])


@given(version=versions, local=locals_, operator=operators, wanted=versions, star=st.booleans())
def test_a_specifier_means_what_packaging_says(
    version: str, local: str, operator: str, wanted: str, star: bool
) -> None:
    specifier = f"{operator}{wanted}{'.*' if star and operator in ('==', '!=') else ''}"
    try:
        reference = SpecifierSet(specifier)
    except InvalidSpecifier:
        assume(False)
    # Where releases of packaging differ among each other: a star after more than the release segment, and
    # what is earlier or later than a version that is not final.
    assume(operator not in "<>" or _is_final(wanted))
    assume(not specifier.endswith(".*") or _is_final(wanted))
    assert satisfies(version + local, specifier) == reference.contains(version + local, prereleases=True)


def _is_final(version: str) -> bool:
    return version.removeprefix("1!").replace(".", "").isdigit()


def test_all_parts_of_a_specifier_count() -> None:
    assert satisfies("1.5", ">=1,<2") is True
    assert satisfies("2.0", ">=1, <2") is False
    assert satisfies("1.5", "") is True
    assert satisfies("2.13.0+cpu", "==2.13") is True
    assert satisfies("1.0", "===1.0") is True
    assert satisfies("1", "===1.0") is False


@pytest.mark.parametrize(
    ("release", "specifier"), [("1.0", "wrong"), ("not a version", ">=1"), ("1.0", ">=x"), ("1", "~=1")]
)
def test_what_cannot_be_read_is_not_judged(release: str, specifier: str) -> None:
    assert satisfies(release, specifier) is None


@pytest.mark.parametrize(
    "text",
    [
        "torch",
        "torch>=2.13",
        "torch (>=2.13,<3)",
        "nlpkernel[torch,yaml]>=0.1",
        "A.b-C_d ~= 1.0 ; python_version < '3.9'",
        'x[ e ] == 1.* ; extra == "test" and sys_platform != "win32"',
        "y @ https://example.invalid/y.whl ; extra == 'z'",
    ],
)
def test_a_requirement_is_read_as_packaging_reads_it(text: str) -> None:
    found, reference = parse(text), Reference(text)
    assert found is not None
    assert found.name == reference.name
    assert set(found.extras) == reference.extras
    assert SpecifierSet(found.specifiers) == reference.specifier
    assert bool(found.marker) == (reference.marker is not None)


@pytest.mark.parametrize("text", ["", "===", "-x", "a b c"])
def test_a_requirement_that_is_none_is_none(text: str) -> None:
    assert parse(text) is None


variables = st.sampled_from(["sys_platform", "os_name", "platform_system", "implementation_name"])
values = st.sampled_from(['"linux"', "'win32'", "'posix'", "'cpython'", "'Linux'", "'linux posix'", "''"])
numbers_ = st.sampled_from(["'3.9'", "'3.11'", "'4'", '"3.10.2"', "'3.12rc1'"])


@st.composite
def markers(draw: st.DrawFn, depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        left, right = draw(markers(depth - 1)), draw(markers(depth - 1))
        text = f"{left} {draw(st.sampled_from(['and', 'or']))} {right}"
        return f"({text})" if draw(st.booleans()) else text
    if draw(st.integers(0, 4)) == 0:
        return "extra == 'test'"
    if draw(st.booleans()):
        one, two = draw(st.sampled_from(["python_version", "python_full_version"])), draw(numbers_)
        operator = draw(st.sampled_from(["==", "!=", "<", ">=", "<=", ">"]))
    else:
        one, two = draw(variables), draw(values)
        operator = draw(st.sampled_from(["==", "!=", "in", "not in"]))
    turned = operator in ("==", "!=") and draw(st.booleans())
    return f"{two} {operator} {one}" if turned else f"{one} {operator} {two}"


@given(marker=markers(), extra=st.sampled_from(["", "test", "other"]))
def test_a_marker_means_what_packaging_says(marker: str, extra: str) -> None:
    assert applies(marker, extra) == Marker(marker).evaluate({"extra": extra})


@pytest.mark.parametrize(
    "marker", ["(", "python_version", "weather == 'fine'", "extra = 'x'", "os_name < 'x'", "( os_name == 'x'"]
)
def test_a_marker_that_cannot_be_read_does_not_apply(marker: str) -> None:
    assert applies(marker) is False


def lay(folder: Path, name: str, release: str, *requires: str) -> str:
    location = folder / f"{name}-{release}.dist-info"
    location.mkdir()
    lines = [f"Name: {name}", f"Version: {release}", *(f"Requires-Dist: {each}" for each in requires)]
    (location / "METADATA").write_text("\n".join([*lines, "", "Requires-Dist: words"]), encoding="utf-8")
    return str(location)


def test_what_is_missing_or_of_another_release_is_unmet(tmp_path: Path) -> None:
    installed = {
        "pluggy": lay(tmp_path, "pluggy", "1.5"),
        "attrs": lay(tmp_path, "attrs", "25.1"),
        "nlpkernel": lay(tmp_path, "nlpkernel", "0.1", "torch>=2; extra == 'torch'", "pluggy>=1.7", "attrs"),
    }
    plugin = lay(
        tmp_path,
        "plugin",
        "1",
        "nlpkernel[torch]>=0.1",
        "Pluggy>=1.7",
        "attrs>=23",
        "gone",
        "never; python_version < '3'",
        "later; extra == 'more'",
        "?? unreadable",
    )
    found = [(str(each.requirement), each.installed, each.through) for each in unmet(plugin, installed)]
    assert found == [
        ("torch>=2", None, "nlpkernel[torch]"),
        ("Pluggy>=1.7", "1.5", ""),
        ("gone", None, ""),
    ]


def test_a_release_that_cannot_be_read_is_not_judged(tmp_path: Path) -> None:
    location = lay(tmp_path, "other", "1")
    Path(location, "METADATA").unlink()
    assert release_of(location) is None
    plugin = lay(tmp_path, "plugin", "1", "other>=5")
    assert list(unmet(plugin, {"other": location})) == []
    assert list(unmet(location, {})) == []
