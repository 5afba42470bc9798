"""What is installed, and how a `use` in the plan becomes a class. Nothing is imported that no plan names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attr
import attrs

import nlpkernel
from nlpkernel.components import fields_of, is_component
from nlpkernel.errors import Place, Problem
from nlpkernel.hookspecs import POINTS
from nlpkernel.plugins.scan import Offer, normalise, scan
from nlpkernel.plugins.suggest import hint

#: Where the files lie, and the names begin, of code that no author of a plugin has to mend.
_NOT_THEIRS = (
    "<",
    *(os.path.dirname(module.__file__ or "") + os.sep for module in (attr, attrs, importlib, nlpkernel)),
)


@attrs.frozen
class Found:
    """A component class, and whose it is."""

    cls: type
    use: str
    point: str
    target: str
    distribution: str
    release: str

    @property
    def owner(self) -> str:
        """Component and distribution, as messages name them."""
        return owner(self.use.rpartition(":")[2], self.distribution, self.release)

    @property
    def local(self) -> bool:
        """Whether it lies in a file that the plan names, and not in an installed distribution."""
        return ".py:" in self.target


def owner(use: str, distribution: str, release: str) -> str:
    """Component and distribution, as messages name them."""
    return f"{use} of {distribution} {release}".rstrip()


class Catalog:
    """The components that the installed distributions offer, found by metadata alone."""

    def __init__(self, offers: Sequence[Offer] | None = None) -> None:
        self.offers = list(scan() if offers is None else offers)

    def names(self, point: str) -> list[str]:
        """Names that a plan can write at `point`."""
        return sorted({offer.name for offer in self.offers if offer.point == point})

    def resolve(self, point: str, use: str, *, base: Path | None, place: Place | None) -> Found | Problem:
        """The class that `use` means at `point`: `name`, `distribution:name`, or `./file.py:Class`."""
        if ".py:" in use or use.endswith(".py"):
            return _local(point, use, base or Path.cwd(), place)
        distribution, _, name = use.rpartition(":")
        named = [offer for offer in self.offers if offer.point == point and offer.name == name]
        same = [each for each in named if not distribution or each.distribution == normalise(distribution)]
        choices = sorted({f"{offer.distribution}:{offer.name}" for offer in same or named})
        if not same:
            near = hint(name, self.names(point)) or "none is installed for it: pip install nlpkernel-standard"
            return Problem(
                code="NK106",
                message=f"no installed distribution offers {use!r} for {point!r}",
                place=place,
                hint=f"there is {' and '.join(choices)}" if choices else near,
            )
        if len(choices) > 1:
            return Problem(
                code="NK107",
                message=f"{use!r} is offered for {point!r} by several distributions",
                place=place,
                hint=f"write {' or '.join(choices)}",
            )
        return _load(same, use, place)


def _load(same: Sequence[Offer], use: str, place: Place | None) -> Found | Problem:
    wanted = POINTS[same[0].point].version if same[0].point in POINTS else same[0].version
    offer = next((offer for offer in same if offer.version == wanted), same[0])
    who = owner(offer.name, offer.distribution, offer.release)
    if offer.version != wanted:
        older = f"upgrade {offer.distribution}"
        newer = f"upgrade nlpkernel, or install an older {offer.distribution}"
        return Problem(
            code="NK050",
            message=f"{use!r} is built for version {offer.version} of the contract for {offer.point!r}, "
            f"and this kernel has version {wanted}",
            place=place,
            owner=who,
            hint=newer if offer.version > wanted else older,
        )
    target = imported(offer, place)
    if isinstance(target, Problem):
        return target
    found = Found(target, offer.name, offer.point, offer.target, offer.distribution, offer.release)
    return _sound(found, place)


def imported(offer: Offer, place: Place | None = None) -> Any | Problem:
    """What an entry point leads to. It may fail in any way; that becomes a problem that names it."""
    who = owner(offer.name, offer.distribution, offer.release)
    module_name, _, attribute = offer.target.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - see above
        return _not_imported(offer.name, module_name, error, place, who)
    for part in attribute.split(".") if attribute else ():
        if not hasattr(target, part):
            return Problem(
                code="NK053",
                message=f"the entry point {offer.name!r} leads to {offer.target!r}, and there is no {part!r}",
                place=place,
                owner=who,
                hint=f"upgrade {offer.distribution}",
            )
        target = getattr(target, part)
    return target


def _not_imported(use: str, module_name: str, error: BaseException, place: Place | None, who: str) -> Problem:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and not f"{module_name}.".startswith(f"{missing}."):
        return Problem(
            code="NK051",
            message=f"{use!r} cannot be imported: it needs the package {missing!r}, which is not installed"
            + where(error),
            place=place,
            owner=who,
            hint=f"pip install {missing.partition('.')[0]}, if its distribution has the same name",
        )
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return Problem(
        code="NK052",
        message=f"{use!r} cannot be imported: {type(error).__name__}: {said}{where(error)}",
        place=place,
        owner=who,
        hint="see `nlpkernel plugins doctor`" if module_name else None,
    )


def _local(point: str, use: str, base: Path, place: Place | None) -> Found | Problem:
    name, _, attribute = use.rpartition(":") if ".py:" in use else (use, "", "")
    path = (base / name).resolve()
    try:
        content = path.read_bytes()
    except OSError as error:
        return Problem(
            code="NK056",
            message=f"cannot read the local component file {str(path)!r}: {error.strerror}",
            place=place,
        )
    digest = hashlib.sha256(content).hexdigest()
    # Named by path and content: two plans may name files of one name, and a changed file is a new module.
    module_name = (
        f"nlpkernel_local_{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}_{digest[:8]}"
    )
    who = owner(attribute, str(path), digest[:12])
    module = sys.modules.get(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None, "the name ends in .py"
        assert spec.loader is not None, "the name ends in .py"
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it may fail in any way; it is named
            del sys.modules[module_name]
            return _not_imported(use, "", error, place, who)
    cls = getattr(module, attribute, None)
    if cls is None:
        classes = [key for key, value in vars(module).items() if is_component(value)]
        return Problem(
            code="NK056",
            message=f"{str(path)!r} has no {attribute!r}"
            if attribute
            else f"{use!r} names no class of the file",
            place=place,
            hint=hint(attribute, classes) or "it has no class made with @component",
        )
    return _sound(Found(cls, use, point, f"{path}:{attribute}", str(path), digest[:12]), place)


def _sound(found: Found, place: Place | None) -> Found | Problem:
    """Refuse what is no component, or has settings that no plan can write."""
    if not is_component(found.cls):
        return Problem(
            code="NK053",
            message=f"{found.target!r} is no component",
            place=place,
            owner=found.owner,
            hint="a component is a class made with @nlpkernel.component",
        )
    try:
        fields_of(found.cls)
    except TypeError as error:
        return Problem(code="NK053", message=str(error), place=place, owner=found.owner)
    return found


def where(error: BaseException) -> str:
    """The innermost line of a failure that is its author's: not ours, not attrs', not Python's own."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}:{error.lineno})"
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THEIRS):
            place = f" ({file}:{line})"
    return place
