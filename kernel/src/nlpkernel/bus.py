"""The event bus: typed facts, told to whoever subscribed before the run began."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from nlpkernel.events import Event, ObserverDetached

_E = TypeVar("_E", bound=Event)
_log = logging.getLogger("nlpkernel.bus")

#: Failures after which an observer is not called any more.
PATIENCE = 3


class Subscription:
    """One function that wants one class of events, and how often it failed."""

    __slots__ = ("failures", "function", "owner")

    def __init__(self, function: Callable[[Any], None], owner: str) -> None:
        self.function = function
        self.owner = owner
        self.failures = 0


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
        self._subscriptions: dict[type[Event], list[Subscription]] = {}
        self._frozen = False

    def on(self, kind: type[_E], function: Callable[[_E], None]) -> None:
        """Call `function` with each event of exactly the class `kind`, or with every event for `Event` itself."""
        if self._frozen:
            raise RuntimeError(f"{self.owner} subscribes to {kind.__name__} after the run started")
        self._subscriptions.setdefault(kind, []).append(Subscription(function, self.owner))

    def freeze(self) -> None:
        """Refuse later subscriptions."""
        self._frozen = True

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody would hear of it: lets the engine spare making the event."""
        return bool(self._subscriptions.get(kind) or self._subscriptions.get(Event))

    def publish(self, event: Event) -> None:
        """Tell all subscribers."""
        for kind in (type(event), Event):
            for subscription in tuple(self._subscriptions.get(kind, ())):
                try:
                    subscription.function(event)
                except Exception as error:
                    if self.strict:
                        raise
                    self._failed(subscription, event, error)

    def _failed(self, subscription: Subscription, event: Event, error: Exception) -> None:
        subscription.failures += 1
        self.failures[subscription.owner] = self.failures.get(subscription.owner, 0) + 1
        what = f"{subscription.owner} failed on {type(event).__name__}: {type(error).__name__}: {error}"
        _log.warning(what, exc_info=error)
        if subscription.failures < PATIENCE:
            return
        for subscriptions in self._subscriptions.values():
            if subscription in subscriptions:
                subscriptions.remove(subscription)
        _log.warning("%s is not called any more for %s", subscription.owner, type(event).__name__)
        self.publish(
            ObserverDetached(
                time=event.time,
                source=subscription.owner,
                hook=type(event).__name__,
                error=f"{type(error).__name__}: {error}",
            )
        )
