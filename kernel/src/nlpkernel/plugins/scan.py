"""Which components are installed, from metadata alone: neither a plugin nor importlib.metadata is imported.

importlib.metadata costs 40 ms of CPU, mostly for what it imports; every command would pay that. This reads
the same files by the same rules and imports nothing that argparse has not loaded, but for typing. It differs
where importlib.metadata fails as a whole (one broken file hides every plugin) or listens to leftovers: what
cannot be read is kept aside with its reason, and the rest is found. Zip files and eggs are not looked into.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: Every group of ours starts so: `nlpkernel.<point>.v<version>`.
PREFIX = "nlpkernel."
#: Groups that hold something other than components: error codes, commands and starter plans of plugins.
SERVICES = frozenset({"codes", "command", "starter"})
#: Groups whose targets are whole modules.
MODULES = frozenset({"command"})


class Offer(NamedTuple):
    """One entry point in a group of ours: somebody offers `name` for `point`.

    version: major version of the point's contract that it was built for. target: "module:attribute", or the
    module alone for a command.
    distribution: its name as packaging normalises it ("nlpkernel-sdk"). release: its version.
    location: its metadata folder.
    """

    point: str
    version: int
    name: str
    target: str
    distribution: str
    release: str
    location: str


class Broken(NamedTuple):
    """Metadata that could not be understood. `location` is a folder, a file, or "file:line"."""

    location: str
    distribution: str
    reason: str


class Scan(NamedTuple):
    """What a look at all metadata found: sorted offers, and what was broken."""

    offers: list[Offer]
    broken: list[Broken]


def scan(paths: Sequence[str] | None = None) -> list[Offer]:
    """Every offer on `paths` (default: `sys.path`), sorted by point, name, distribution."""
    return scan_all(paths).offers


def scan_all(paths: Sequence[str] | None = None) -> Scan:
    """Every offer on `paths` (default: `sys.path`), and all metadata that is broken.

    Of one distribution the first on the path counts, whether or not it offers anything.
    """
    offers: set[Offer] = set()
    broken: list[Broken] = []
    for key, location in _metadata_folders(sys.path if paths is None else paths, broken):
        _read(key, location, offers, broken)
    order = sorted(offers, key=lambda offer: (offer.point, offer.name, offer.distribution, offer))
    return Scan(order, sorted(broken))


def distributions(paths: Sequence[str] | None = None) -> dict[str, str]:
    """The metadata folder of every distribution on `paths` (default: `sys.path`), by normalised name."""
    return dict(_metadata_folders(sys.path if paths is None else paths, []))


def normalise(name: str) -> str:
    """A distribution's name as packaging compares it: lower case, each run of `-`, `_` and `.` as one `-`."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


def headers(location: str, wanted: Sequence[str]) -> dict[str, list[str]]:
    """The values of the `wanted` fields (in lower case) of a distribution's METADATA or PKG-INFO, in order.

    Raise OSError where there is neither file, UnicodeDecodeError where it is not UTF-8.
    """
    try:
        content = _bytes(os.path.join(location, "METADATA"))
    except FileNotFoundError:
        content = _bytes(os.path.join(location, "PKG-INFO"))
    found: dict[str, list[str]] = {field: [] for field in wanted}
    for line in content.splitlines():
        if not line.strip():
            break  # an empty line ends the fields; the description follows
        field, colon, value = line.partition(b":")
        name = field.strip().lower().decode("utf-8", "replace")
        if colon and not line[:1].isspace() and name in found:
            found[name].append(value.decode("utf-8").strip())
    return found


def _metadata_folders(paths: Sequence[str], broken: list[Broken]) -> Iterator[tuple[str, str]]:
    """Normalised name and folder of each distribution that counts."""
    owners: dict[str, str] = {}
    visited: set[str] = set()
    for entry in paths:
        if not isinstance(entry, str):
            continue  # a Path on sys.path is passed over by import too
        try:
            folder = os.path.abspath(entry)  # the entry "" is the working folder, which may have been deleted
            children = [] if folder in visited else sorted(os.listdir(folder))
        except OSError:
            continue  # sys.path may name what does not exist, and zip files
        visited.add(folder)
        for child in children:
            stem, dot, kind = child.rpartition(".")
            if not dot or kind.lower() not in ("dist-info", "egg-info"):
                continue
            key = normalise(stem.partition("-")[0])
            location = os.path.join(folder, child)
            if not key or key.startswith("~"):
                # pip renames what it removes so, and leaves it there when it is interrupted.
                if _is_ours(location):
                    broken.append(Broken(location, key, "is left of an interrupted uninstall; delete it"))
            elif key not in owners:
                owners[key] = folder
                yield key, location
            elif owners[key] == folder and (_is_ours(location) or _is_about_us(key)):
                reason = "is a second metadata folder of the same distribution in one place; reinstall it"
                broken.append(Broken(location, key, reason))


def _is_about_us(key: str) -> bool:
    return key == "nlpkernel" or key.startswith("nlpkernel-")


def _is_ours(location: str) -> bool:
    try:
        return PREFIX.encode() in _bytes(os.path.join(location, "entry_points.txt"))
    except OSError:
        return False


def _read(key: str, location: str, offers: set[Offer], broken: list[Broken]) -> None:
    file = os.path.join(location, "entry_points.txt")
    content = b""
    try:
        content = _bytes(file)
    except (FileNotFoundError, NotADirectoryError):
        pass  # most distributions have no entry points, and old ones have a file in place of the folder
    except OSError as error:
        broken.append(Broken(file, key, f"cannot be read: {error.strerror}"))
    if PREFIX.encode() not in content:
        if _is_about_us(key):
            _identity(key, location, broken)
        return
    distribution, release = _identity(key, location, broken)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8: byte {error.start} is {content[error.start]:#04x}"
        broken.append(Broken(file, distribution, reason))
        return
    for line, group, entry in _entries(text):
        found = _offer(group, entry, distribution, release, location)
        if isinstance(found, Offer):
            offers.add(found)
        elif found:
            broken.append(Broken(f"{file}:{line}", distribution, found))


def _identity(key: str, location: str, broken: list[Broken]) -> tuple[str, str]:
    """Name and version as the metadata say, or else as the folder is called."""
    version = os.path.basename(location).rpartition(".")[0].partition("-")[2].partition("-")[0]
    try:
        found = headers(location, ("name", "version"))
    except (OSError, UnicodeDecodeError) as error:
        reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        broken.append(Broken(location, key, f"has no METADATA that can be read: {reason}"))
        return key, version or "unknown"
    missing = [field for field, values in found.items() if not values or not values[0]]
    if missing:
        broken.append(Broken(location, key, f"has METADATA without {' and '.join(missing)}"))
    name = "" if "name" in missing else found["name"][0]
    return normalise(name) or key, version if "version" in missing else found["version"][0]


def _entries(text: str) -> Iterator[tuple[int, str | None, str]]:
    """Line number, group and text of every line that is neither empty, nor a comment, nor a group's head."""
    group = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            group = line.strip("[]")
        else:
            yield number, group, line


def _offer(
    group: str | None, entry: str, distribution: str, release: str, location: str
) -> Offer | str | None:
    """The offer that a line makes, a reason why it makes none, or None where it is not our business."""
    if group is None:
        return "stands before any group"
    if not group.strip().startswith(PREFIX):
        return None
    point, _, version = group[len(PREFIX) :].rpartition(".v")
    if not _is_dotted(point.replace("-", "_")) or not _is_version(version) or not group.startswith(PREFIX):
        return f"is in the group {group!r}, and groups are called {PREFIX}<point>.v<number>"
    name, equals, value = (part.strip() for part in entry.partition("="))
    if not equals or not name or not value:
        return f"is no 'name = module:Class': {entry!r}"
    if value.endswith("]"):
        value = value.partition("[")[0]  # extras: nobody uses them, the packaging rules still allow them
    module, colon, attribute = (part.strip() for part in value.partition(":"))
    if not _is_dotted(module) or not (_is_dotted(attribute) if colon else point in MODULES):
        return f"has the target {value!r}, which is no 'module:Class'"
    target = f"{module}:{attribute}" if colon else module
    return Offer(point, int(version), name, target, distribution, release, location)


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdigit() and not text.startswith("0")


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _bytes(file: str) -> bytes:
    with open(file, "rb") as stream:
        return stream.read()
