"""Which classes of events there are."""

from __future__ import annotations

from collections.abc import Iterator

from nlpkernel.events import Event


def kinds() -> list[type[Event]]:
    """Every class of events that is defined so far: the kernel's, and those of plugins that are loaded.

    Subscribing to `Event` itself would not do: whoever listens to all of them makes the engine publish
    `StepCompleted` in every step.
    """
    return list(dict.fromkeys(_below(Event)))


def _below(kind: type[Event]) -> Iterator[type[Event]]:
    for each in kind.__subclasses__():
        # attrs replaces a class by one with slots; the one it replaced may still be about.
        if "__attrs_attrs__" in vars(each):
            yield each
        yield from _below(each)
