"""Reference pages rendered from the code: settings, hooks and protocols, events, error codes.

`python -m nlpkernel_sdk.docs FOLDER` writes them; a test compares what is committed with what would be written.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from nlpkernel import events
from nlpkernel.cli.explain import all_codes
from nlpkernel.events import Event
from nlpkernel.hookspecs import KIND, MODULES, POINTS
from nlpkernel.plan.train import Train
from nlpkernel.plugins.catalog import Catalog
from nlpkernel.plugins.inspect import describe, setting_lines
from nlpkernel.plugins.scan import SERVICES

_MADE = "<!-- Made by `make docs` from the code; edit the code. -->\n\n"
#: Distributions whose components are for tests only.
_LEFT_OUT = frozenset({"nlpkernel-sdk"})


def pages() -> dict[str, str]:
    """File name to text of every reference page, for the plugins that are installed."""
    return {
        "plan.md": _MADE + "\n".join(_plan()) + "\n",
        "hooks.md": _MADE + "\n".join(_hooks()) + "\n",
        "events.md": _MADE + "\n".join(_events()) + "\n",
        "errors.md": _MADE + "\n".join(_errors()) + "\n",
    }


def main(folder: str) -> None:
    """Write all pages into a folder."""
    for name, text in pages().items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def points() -> str:
    """The table of all slots and shared extension points, as docs/authoring.md has it."""
    rows = ["| slot or point | must answer | may answer | what it is |", "| --- | --- | --- | --- |"]
    for point in POINTS.values():
        must, may = (", ".join(f"`{name}`" for name in names) for names in (point.must, point.may))
        kind = "slot" if point.slot else "point"
        rows.append(f"| `{point.name}` ({kind}) | {must} | {may} | {point.help} |")
    return "\n".join(rows)


def _plan() -> Iterator[str]:
    yield "# Plan reference\n"
    yield "Every section of a plan and every setting of the standard components. `nlpkernel plugins show NAME` prints"
    yield "the same for any component that is installed.\n"
    yield "## `name`\n\nThe run's name, and its folder's below `runs/`. Left out: the name of the plan's file.\n"
    yield "## `extends`\n\nA plan, or a list of plans, that this one builds on; paths start from this file.\n"
    yield "## `[train]`\n\n" + (inspect.getdoc(Train) or "") + "\n"
    yield from _settings(setting_lines(Train))
    offers = [
        offer
        for offer in Catalog().offers
        if offer.point not in SERVICES and offer.distribution not in _LEFT_OUT
    ]
    order = [*POINTS, *sorted({offer.point for offer in offers} - POINTS.keys())]
    for point in order:
        here = [offer for offer in offers if offer.point == point]
        if not here:
            continue
        slot = point in POINTS and POINTS[point].slot
        help = f"\n\n{POINTS[point].help.capitalize()}." if point in POINTS else ""
        yield f"## {'Slot' if slot else 'Extension point'} `{point}`{help}\n"
        for offer in here:
            description = describe(offer)
            yield f"### `{offer.name}` ({point})\n"
            yield f"From `{offer.distribution}`. {description.doc}\n"
            yield from _settings(description.settings)
            if description.presets:
                yield "Presets:\n"
                for name, values in description.presets.items():
                    yield f"- `{name}`: " + ", ".join(f"{key} {value}" for key, value in values.items())
                yield ""


def _settings(lines: Iterable[Any]) -> Iterator[str]:
    lines = list(lines)
    if not lines:
        yield "No settings.\n"
        return
    yield "| setting | type | default | range | what it is |\n| --- | --- | --- | --- | --- |"
    for line in lines:
        default = "**required**" if line.default is None else f"`{line.default}`" if line.default else ""
        yield f"| `{line.name}` | {_cell(line.type)} | {default} | {_cell(line.range)} | {_cell(line.help)} |"
    yield ""


def _hooks() -> Iterator[str]:
    yield "# Hooks and protocols\n"
    yield "Hooks ask, events tell, protocols do the work. A component implements hooks as methods marked with"
    yield "`@hookimpl`; it may leave out arguments that it does not need.\n"
    yield "| slot or point | must implement |\n| --- | --- |"
    for point in POINTS.values():
        kind = "slot" if point.slot else "point"
        yield f"| `{point.name}` ({kind}, v{point.version}) | {', '.join(f'`{name}`' for name in point.must)} |"
    yield ""
    for module in MODULES:
        yield f"## `{module.__name__}`\n\n{inspect.getdoc(module)}\n"
        yield from _members(module)


def _members(module: ModuleType) -> Iterator[str]:
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    for value in own:
        if hasattr(value, KIND):
            signature = str(inspect.signature(value)).replace("'", "")
            yield f"### hook `{value.__name__}` ({getattr(value, KIND)})\n"
            yield f"```python\ndef {value.__name__}{signature}\n```\n\n{inspect.getdoc(value)}\n"
    for value in own:
        if inspect.isclass(value):
            yield f"### `{value.__name__}`\n\n{inspect.getdoc(value)}\n"
            yield from _methods(value)


def _methods(cls: type) -> Iterator[str]:
    if not getattr(cls, "_is_protocol", False):
        return
    for name, kind in cls.__annotations__.items():
        yield f"- `{name}`: `{kind}`"
    for name, method in vars(cls).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            signature = (
                str(inspect.signature(method)).replace("'", "").replace("self, ", "").replace("self", "")
            )
            yield f"- `{name}{signature}`: {' '.join((inspect.getdoc(method) or '').split())}"
    yield ""


def _events() -> Iterator[str]:
    yield "# Events\n"
    yield "Facts told on the bus. A component subscribes in its hook `subscribe` with `bus.on(EventClass, function)`;"
    yield "`bus.on(Event, function)` gets all of them. Every event has `time`, seconds since 1970.\n"
    for value in vars(events).values():
        if inspect.isclass(value) and issubclass(value, Event) and value is not Event:
            fields = ", ".join(f"`{field.name}`" for field in attrs.fields(value) if field.name != "time")
            yield f"## `{value.__name__}`\n\n{inspect.getdoc(value)}\n\nFields: {fields}.\n"


def _errors() -> Iterator[str]:
    yield "# Error codes\n"
    yield "`nlpkernel explain CODE` prints the same.\n"
    for code, (title, text) in sorted(all_codes().items()):
        yield f"## {code}: {title}\n\n{text.strip()}\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main(sys.argv[1])
