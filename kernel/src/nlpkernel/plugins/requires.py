"""What a distribution says it needs (`Requires-Dist`), and whether that is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from nlpkernel.plugins.scan import headers, normalise


class Unmet(NamedTuple):
    """A requirement that is not met. `installed` is the release that is there, or None; `through` names the
    extra of another distribution that asks for it ("nlpkernel[torch]"), or is empty."""

    requirement: str
    installed: str | None
    through: str


def unmet(location: str, installed: Mapping[str, str]) -> Iterator[Unmet]:
    """What the distribution with the metadata folder `location` needs and does not have.

    `installed` maps normalised names to metadata folders. Extras that it asks for of others are followed one
    level; what those others need themselves is their own affair. What cannot be read is not judged.
    """
    for requirement in _requirements(location, ""):
        yield from _missing(requirement, installed, "")
        other = installed.get(normalise(requirement.name))
        for extra in sorted(requirement.extras) if other else ():
            for further in _requirements(other or "", extra):
                yield from _missing(further, installed, f"{requirement.name}[{extra}]")


def _requirements(location: str, extra: str) -> Iterator[Requirement]:
    """The requirements that apply here; with `extra`, only those that the extra adds."""
    for line in _values(location, "requires-dist"):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        always = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        with_extra = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if with_extra and not always if extra else always:
            yield requirement


def _missing(requirement: Requirement, installed: Mapping[str, str], through: str) -> Iterator[Unmet]:
    words = f"{requirement.name}{_extras(requirement)}{requirement.specifier}"
    location = installed.get(normalise(requirement.name))
    if location is None:
        yield Unmet(words, None, through)
        return
    for release in _values(location, "version"):
        try:
            fits = requirement.specifier.contains(Version(release), prereleases=True)
        except InvalidVersion:
            continue
        if not fits:
            yield Unmet(words, release, through)


def _extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def _values(location: str, field: str) -> list[str]:
    try:
        return headers(location, (field,))[field]
    except (OSError, UnicodeDecodeError):
        return []  # the scan says so already
