"""What a distribution says it needs (`Requires-Dist`), and whether that is installed.

A small reader of the packaging rules for requirements, markers and version specifiers: doctor needs them, and
the kernel does not depend on `packaging` for it. What it cannot read it does not judge (None).
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nlpkernel.plugins.scan import headers, normalise

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[(?P<extras>[^]]*)\])?\s*"
    r"(?:@\s*\S+|\(?(?P<specifiers>[^;()]*)\)?)\s*(?:;(?P<marker>.*))?$",
    re.ASCII,
)
_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_number>\d*))?"
    r"(?:-(?P<bare_post>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?$",
    re.ASCII,
)
_SPECIFIER = re.compile(r"(===|~=|==|!=|<=|>=|<|>)\s*(\S+)$")
_TOKEN = re.compile(r"""\s*(\(|\)|===|~=|==|!=|<=|>=|<|>|not\s+in\b|[a-z_.]+|"[^"]*"|'[^']*')""")
_PRE = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_LAST = sys.maxsize


class Requirement(NamedTuple):
    """One `Requires-Dist`: a distribution, wanted extras of it, version specifiers, and when it applies."""

    name: str
    extras: tuple[str, ...]
    specifiers: str
    marker: str

    def __str__(self) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{self.specifiers}"


class Unmet(NamedTuple):
    """A requirement that is not met. `installed` is the release that is there, or None; `through` names the
    extra of another distribution that asks for it ("nlpkernel[torch]"), or is empty."""

    requirement: Requirement
    installed: str | None
    through: str


def parse(text: str) -> Requirement | None:
    """Read one requirement; None where it cannot be read."""
    match = _REQUIREMENT.match(text.strip())
    if match is None:
        return None
    extras = tuple(part.strip() for part in (match["extras"] or "").split(",") if part.strip())
    parts = [part.strip() for part in (match["specifiers"] or "").split(",") if part.strip()]
    if not all(map(_SPECIFIER.match, parts)):
        return None
    specifiers = ",".join(parts)
    return Requirement(match["name"], extras, specifiers, (match["marker"] or "").strip())


def unmet(location: str, installed: Mapping[str, str]) -> Iterator[Unmet]:
    """What the distribution with the metadata folder `location` needs and does not have.

    `installed` maps normalised names to metadata folders. Extras that it asks for of others are followed one
    level; what those others need themselves is their own affair.
    """
    for requirement in _requirements(location, ""):
        yield from _missing(requirement, installed, "")
        other = installed.get(normalise(requirement.name))
        for extra in requirement.extras if other else ():
            for further in _requirements(other or "", extra):
                yield from _missing(further, installed, f"{requirement.name}[{extra}]")


def release_of(location: str) -> str | None:
    """The version that a metadata folder states, or None where it cannot be read."""
    try:
        versions = headers(location, ("version",))["version"]
    except (OSError, UnicodeDecodeError):
        return None
    return versions[0] if versions else None


def _requirements(location: str, extra: str) -> Iterator[Requirement]:
    """The requirements that apply here; with `extra`, only those that the extra adds."""
    try:
        lines = headers(location, ("requires-dist",))["requires-dist"]
    except (OSError, UnicodeDecodeError):
        return  # the scan says so already
    for line in lines:
        requirement = parse(line)
        if requirement is None or not applies(requirement.marker, extra):
            continue
        if not extra or not applies(requirement.marker, ""):
            yield requirement


def _missing(requirement: Requirement, installed: Mapping[str, str], through: str) -> Iterator[Unmet]:
    location = installed.get(normalise(requirement.name))
    if location is None:
        yield Unmet(requirement, None, through)
        return
    release = release_of(location)
    if release is not None and satisfies(release, requirement.specifiers) is False:
        yield Unmet(requirement, release, through)


# -- versions --------------------------------------------------------------------------------------


class _Version(NamedTuple):
    epoch: int
    release: tuple[int, ...]
    pre: tuple[int, int]
    post: int
    dev: int

    @property
    def key(self) -> tuple[object, ...]:
        release = self.release
        while len(release) > 1 and release[-1] == 0:
            release = release[:-1]
        return (self.epoch, release, self.pre, self.post, self.dev)


def _version(text: str) -> _Version | None:
    """A version without its local part, which no comparison here looks at."""
    match = _VERSION.match(text.strip().lower())
    if match is None:
        return None
    post = -1
    if match["bare_post"] or match["post"]:
        post = int(match["bare_post"] or match["post_number"] or 0)
    dev = int(match["dev_number"] or 0) if match["dev"] else _LAST
    pre = _pre(match["pre"], match["pre_number"], post, bool(match["dev"]))
    release = tuple(map(int, match["release"].split(".")))
    return _Version(int(match["epoch"] or 0), release, pre, post, dev)


def _pre(kind: str | None, number: str | None, post: int, dev: bool) -> tuple[int, int]:
    """Where a version stands among the pre-releases: 1.0.dev1 before 1.0a1, 1.0 and 1.0.post1.dev1 after all."""
    if kind:
        return _PRE[kind], int(number or 0)
    return (-1, 0) if dev and post < 0 else (3, 0)


def satisfies(release: str, specifiers: str) -> bool | None:
    """Whether a version meets all of `">=1.2,<2"`. None where one of them cannot be read. Pre-releases
    may."""
    answers = [_meets(release, part.strip()) for part in specifiers.split(",") if part.strip()]
    return None if None in answers else all(answers)


def _meets(release: str, specifier: str) -> bool | None:
    match = _SPECIFIER.match(specifier)
    if match is None:
        return None
    operator, wanted = match.groups()
    if operator == "===":
        return release.lower() == wanted.lower()
    have, want = _version(release), _version(wanted.removesuffix(".*"))
    if have is None or want is None or (wanted.endswith(".*") and operator not in ("==", "!=")):
        return None
    if operator in ("==", "!="):
        if wanted.endswith(".*"):
            same = _starts(have, want.epoch, want.release)
        else:
            _, plus, local = wanted.lower().partition("+")
            same = have.key == want.key and (not plus or release.lower().partition("+")[2] == local)
        return same is (operator == "==")
    if operator == "~=":
        prefix = want.release[:-1]
        return (have.key >= want.key and _starts(have, want.epoch, prefix)) if prefix else None
    final = want.pre == (3, 0) and want.dev == _LAST
    if operator == ">":
        # A post-release of the excluded version is not later than it, unless one was asked for.
        family = (have.key[:2], have.pre) == (want.key[:2], want.pre)
        return have.key > want.key and not (family and want.post < 0 and want.dev == _LAST)
    if operator == "<":
        # Nor is a pre-release of the excluded version earlier than it.
        bound = (
            _Version(want.epoch, want.release, _pre(None, "", want.post, True), want.post, 0)
            if final
            else want
        )
        return have.key < bound.key
    return have.key >= want.key if operator == ">=" else have.key <= want.key


def _starts(version: _Version, epoch: int, prefix: Sequence[int]) -> bool:
    padded = (*version.release, *[0] * len(prefix))[: len(prefix)]
    return version.epoch == epoch and padded == tuple(prefix)


# -- markers ---------------------------------------------------------------------------------------


def applies(marker: str, extra: str = "") -> bool:
    """Whether an environment marker holds here, with `extra` asked for. One that cannot be read does not."""
    if not marker:
        return True
    try:
        value, rest = _either(_TOKEN.findall(marker), extra)
    except (IndexError, KeyError, ValueError):
        return False
    return value and not rest


def _either(tokens: list[str], extra: str) -> tuple[bool, list[str]]:
    value, rest = _both(tokens, extra)
    while rest and rest[0] == "or":
        other, rest = _both(rest[1:], extra)
        value = value or other
    return value, rest


def _both(tokens: list[str], extra: str) -> tuple[bool, list[str]]:
    value, rest = _one(tokens, extra)
    while rest and rest[0] == "and":
        other, rest = _one(rest[1:], extra)
        value = value and other
    return value, rest


def _one(tokens: list[str], extra: str) -> tuple[bool, list[str]]:
    if tokens[0] == "(":
        value, rest = _either(tokens[1:], extra)
        if rest[0] != ")":
            raise ValueError(rest[0])
        return value, rest[1:]
    left, operator, right, *rest = tokens
    return _compare(left, operator, right, extra), rest


def _compare(left: str, operator: str, right: str, extra: str) -> bool:
    one, two = _operand(left, extra), _operand(right, extra)
    if operator == "in":
        return one in two
    if operator.split() == ["not", "in"]:
        return one not in two
    if "extra" in (left, right):
        same = normalise(one) == normalise(two)
        return same is (operator == "==")
    answer = _meets(one, operator + two)
    if answer is not None:
        return answer
    if operator not in ("==", "!="):
        raise ValueError(operator)
    return (one == two) is (operator == "==")


def _operand(token: str, extra: str) -> str:
    if token[0] in "\"'":
        return token[1:-1]
    if token == "extra":
        return extra
    return _ENVIRONMENT[token]


_ENVIRONMENT: Mapping[str, str] = {
    "implementation_name": sys.implementation.name,
    "implementation_version": platform.python_version(),
    "os_name": os.name,
    "platform_machine": platform.machine(),
    "platform_python_implementation": platform.python_implementation(),
    "platform_release": platform.release(),
    "platform_system": platform.system(),
    "platform_version": platform.version(),
    "python_full_version": platform.python_version(),
    "python_version": ".".join(platform.python_version_tuple()[:2]),
    "sys_platform": sys.platform,
}
