"""The event bus: typed facts, told to whoever subscribed before the run began."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from nlpkernel.errors import ComponentFailure, fail
from nlpkernel.events import Event, ObserverDetached
from nlpkernel.hookspecs import PATIENCE

if TYPE_CHECKING:
    from nlpkernel.plugins.hooks import Watch
    from nlpkernel.progress import Progress

_E = TypeVar("_E", bound=Event)
_log = logging.getLogger("nlpkernel.bus")


@attrs.define(eq=False)
class Subscription:
    """One function that wants one class of events, and how often it failed."""

    kind: type[Event]
    function: Callable[[Any], None]
    owner: str
    but: tuple[type[Event], ...] = ()
    failures: int = 0


class Bus:
    """Carries events to their subscribers, in the order of subscription.

    Subscriptions are frozen when the run starts, so that publishing to nobody costs a dictionary look-up. A
    subscriber that raises is named and counted; after three failures it is detached, and with `strict` the first one
    ends the run. An event that is published while another is being delivered is delivered after it.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.owner = "the kernel"
        self.failures: dict[str, int] = {}
        #: Told of every call of a subscriber.
        self.watch: Watch | None = None
        self._subscriptions: list[Subscription] = []
        self._frozen = False
        # Who wants a class of events, found at the first of its kind.
        self._wanting: dict[type[Event], tuple[Subscription, ...]] = {}
        self._waiting: deque[Event] = deque()
        self._delivering = False

    def on(
        self, kind: type[_E], function: Callable[[_E], None], *, but: tuple[type[Event], ...] = ()
    ) -> None:
        """Call `function` with each event of exactly the class `kind`, or with every event for `Event` itself, `but`
        those of these classes."""
        if self._frozen:
            raise RuntimeError(f"{self.owner} subscribes to {kind.__name__} after the run started")
        self._subscriptions.append(Subscription(kind, function, self.owner, but))
        self._wanting.clear()

    def freeze(self) -> None:
        """Refuse later subscriptions."""
        self._frozen = True

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody would hear of it: lets the engine spare making the event."""
        return bool(self._of(kind))

    def publish(self, event: Event) -> None:
        """Tell all subscribers."""
        self._waiting.append(event)
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._waiting:
                event = self._waiting.popleft()
                for subscription in self._of(type(event)):
                    try:
                        if self.watch is None:
                            subscription.function(event)
                        else:
                            with self.watch(subscription.owner, type(event).__name__):
                                subscription.function(event)
                    except Exception as error:  # noqa: BLE001 - an observer may fail in any way; it is named
                        self._failed(subscription, event, error)
        finally:
            self._delivering = False

    def _of(self, kind: type[Event]) -> tuple[Subscription, ...]:
        known = self._wanting.get(kind)
        if known is None:
            known = tuple(
                each for each in self._subscriptions if each.kind in (kind, Event) and kind not in each.but
            )
            self._wanting[kind] = known
        return known

    def _failed(self, subscription: Subscription, event: Event, error: Exception) -> None:
        owner, name = subscription.owner, type(event).__name__
        subscription.failures += 1
        self.failures[owner] = self.failures.get(owner, 0) + 1
        cause = f"{type(error).__name__}: {error}"
        progress: Progress | None = getattr(event, "progress", None)
        step = "" if progress is None else f" of step {progress.step}"
        message = f"it failed on {name}{step}: {cause}"
        if self.strict:
            raise fail(ComponentFailure, "NK060", message, owner=owner) from error
        _log.warning("%s: %s", owner, message, exc_info=error)
        if subscription.failures < PATIENCE:
            return
        self._subscriptions.remove(subscription)
        self._wanting.clear()
        _log.warning("%s is not told of %s any more", owner, name)
        self.publish(ObserverDetached(time=event.time, source=owner, hook=name, error=cause))
