"""Which requirements of a distribution are not met."""

from __future__ import annotations

from pathlib import Path

from nlpkernel.plugins.requires import unmet


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
    found = [(each.requirement, each.installed, each.through) for each in unmet(plugin, installed)]
    assert found == [
        ("torch>=2", None, "nlpkernel[torch]"),
        ("Pluggy>=1.7", "1.5", ""),
        ("gone", None, ""),
    ]


def test_a_release_that_cannot_be_read_is_not_judged(tmp_path: Path) -> None:
    location = lay(tmp_path, "other", "1")
    Path(location, "METADATA").unlink()
    plugin = lay(tmp_path, "plugin", "1", "other>=5")
    assert list(unmet(plugin, {"other": location})) == []
    assert list(unmet(location, {})) == []
