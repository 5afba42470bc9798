"""What is installed, and how a `use` in the plan becomes a class. Nothing is imported that no plan names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.components import is_component
from nlpkernel.errors import Place, Problem
from nlpkernel.hookspecs import POINTS
from nlpkernel.plugins.scan import Offer, scan
from nlpkernel.plugins.suggest import hint


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
        return owner(self.use, self.distribution, self.release)


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
        if ".py:" in use:
            return _local(point, use, base or Path.cwd(), place)
        distribution, _, name = use.rpartition(":")
        same = [offer for offer in self.offers if offer.point == point and offer.name == name]
        if distribution:
            same = [offer for offer in same if offer.distribution == distribution]
        if not same:
            return Problem(
                code="NK106",
                message=f"no installed distribution offers {use!r} for {point!r}",
                place=place,
                hint=hint(use, self.names(point)) or "none is installed for it; see `nlpkernel plugins`",
            )
        if len({offer.distribution for offer in same}) > 1:
            names = sorted(f"{offer.distribution}:{offer.name}" for offer in same)
            return Problem(
                code="NK107",
                message=f"{use!r} is offered for {point!r} by several distributions",
                place=place,
                hint="write one of: " + ", ".join(names),
            )
        return _load(same, use, place)


def _load(same: Sequence[Offer], use: str, place: Place | None) -> Found | Problem:
    wanted = POINTS[same[0].point].version if same[0].point in POINTS else same[0].version
    offer = next((offer for offer in same if offer.version == wanted), same[0])
    who = owner(offer.name, offer.distribution, offer.release)
    if offer.version != wanted:
        newer = offer.version > wanted
        return Problem(
            code="NK050",
            message=f"{use!r} is built for version {offer.version} of the contract for {offer.point!r}, "
            f"and this kernel has version {wanted}",
            place=place,
            owner=who,
            hint="upgrade nlpkernel" if newer else f"upgrade {offer.distribution}",
        )
    module_name, _, attribute = offer.target.partition(":")
    try:
        cls: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            cls = getattr(cls, part)
    except ModuleNotFoundError as error:
        return Problem(
            code="NK051",
            message=f"{use!r} cannot be imported: it needs the package {error.name!r}, which is not installed",
            place=place,
            owner=who,
            hint=f"pip install {(error.name or '').partition('.')[0]}",
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may fail in any way; it is named
        return Problem(
            code="NK052",
            message=f"{use!r} cannot be imported: {type(error).__name__}: {error}{_where(error)}",
            place=place,
            owner=who,
            hint="see `nlpkernel plugins doctor`",
        )
    if not is_component(cls):
        return _no_component(offer.target, place, who)
    return Found(cls, offer.name, offer.point, offer.target, offer.distribution, offer.release)


def _local(point: str, use: str, base: Path, place: Place | None) -> Found | Problem:
    name, _, attribute = use.rpartition(":")
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
        f"nlpkernel_local_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{digest[:8]}"
    )
    who = owner(attribute, str(path), digest[:12])
    module = sys.modules.get(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            return Problem(code="NK056", message=f"{str(path)!r} is no Python file", place=place)
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - see above
            del sys.modules[module_name]
            return Problem(
                code="NK052",
                message=f"{use!r} cannot be imported: {type(error).__name__}: {error}{_where(error)}",
                place=place,
                owner=who,
            )
    cls = getattr(module, attribute, None)
    if cls is None:
        classes = [key for key, value in vars(module).items() if is_component(value)]
        return Problem(
            code="NK056",
            message=f"{str(path)!r} has no {attribute!r}",
            place=place,
            hint=hint(attribute, classes) or "it has no class made with @component",
        )
    if not is_component(cls):
        return _no_component(use, place, who)
    return Found(cls, use, point, f"{path}:{attribute}", str(path), digest[:12])


def _no_component(target: str, place: Place | None, who: str) -> Problem:
    return Problem(
        code="NK053",
        message=f"{target!r} is no component",
        place=place,
        owner=who,
        hint="a component is a class made with @nlpkernel.component",
    )


def _where(error: BaseException) -> str:
    """The innermost line of a failed import, which is where its author must look."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
