"""The bus: events in order, to whoever subscribed before the start; a failing observer is named and detached."""

from __future__ import annotations

import pytest

from nlpkernel.bus import Bus
from nlpkernel.errors import ComponentFailure
from nlpkernel.events import Decided, Event, Notice, ObserverDetached, Working
from nlpkernel.progress import Progress


def notice(message: str = "hello") -> Notice:
    return Notice(time=1.0, level="info", source="test", message=message)


def test_subscribers_are_told_in_the_order_of_subscription() -> None:
    bus = Bus()
    told: list[str] = []
    bus.on(Event, lambda event: told.append("all"))
    bus.on(Notice, lambda event: told.append("notice"))
    bus.on(Working, lambda event: told.append("working"))
    bus.on(Event, lambda event: told.append("all again"))
    bus.publish(notice())
    assert told == ["all", "notice", "all again"]


def test_an_event_is_delivered_to_all_before_one_that_it_caused() -> None:
    bus = Bus()
    told: list[tuple[str, str]] = []

    def answer(event: Notice) -> None:
        told.append(("first", event.message))
        if event.message == "question":
            bus.publish(notice("answer"))
            bus.publish(notice("more"))

    bus.on(Notice, answer)
    bus.on(Notice, lambda event: told.append(("second", event.message)))
    bus.publish(notice("question"))
    assert told == [(who, what) for what in ("question", "answer", "more") for who in ("first", "second")]


def test_subscriptions_end_when_the_run_starts() -> None:
    bus = Bus()
    bus.on(Notice, lambda event: None)
    bus.freeze()
    bus.owner = "late of acme 2.5"
    with pytest.raises(RuntimeError, match=r"late of acme 2\.5 subscribes to Working after the run started"):
        bus.on(Working, lambda event: None)


def test_a_bus_knows_whether_anybody_listens() -> None:
    bus = Bus()
    assert not bus.wants(Notice)
    bus.on(Working, lambda event: None)
    assert bus.wants(Working)
    assert not bus.wants(Notice)
    bus.on(Event, lambda event: None)
    assert bus.wants(Notice)


def test_an_observer_is_detached_after_three_failures_and_that_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = Bus()
    told: list[Event] = []
    calls: list[Event] = []

    def broken(event: Event) -> None:
        calls.append(event)
        raise ValueError("no screen")

    bus.owner = "broken of acme 2.5"
    bus.on(Notice, broken)
    bus.owner = "good of acme 2.5"
    bus.on(Event, told.append)
    for _ in range(5):
        bus.publish(notice())
    assert len(calls) == 3
    assert [type(event) for event in told] == [Notice, Notice, Notice, ObserverDetached, Notice, Notice]
    (detached,) = (event for event in told if isinstance(event, ObserverDetached))
    assert (detached.source, detached.hook, detached.error) == (
        "broken of acme 2.5",
        "Notice",
        "ValueError: no screen",
    )
    assert bus.failures == {"broken of acme 2.5": 3}
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "broken of acme 2.5: it failed on Notice: ValueError: no screen"
    assert lines[-1] == "broken of acme 2.5 is not told of Notice any more"
    assert not Bus().failures


def test_failures_are_counted_for_each_subscription_and_a_good_call_forgives_none() -> None:
    bus = Bus()
    calls: list[str] = []

    def fails_on_odd(event: Notice) -> None:
        calls.append(event.message)
        if int(event.message) % 2:
            raise ValueError(event.message)

    bus.on(Notice, fails_on_odd)
    for number in range(10):
        bus.publish(notice(str(number)))
    assert calls == ["0", "1", "2", "3", "4", "5"]


def test_the_last_observer_may_fail_on_the_news_of_its_own_end() -> None:
    bus = Bus()

    def broken(event: Event) -> None:
        raise ValueError(type(event).__name__)

    bus.on(Event, broken)
    bus.on(ObserverDetached, broken)
    for _ in range(5):
        bus.publish(notice())
    assert bus.failures == {"the kernel": 4}


def test_a_failure_names_the_step_where_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    bus = Bus()
    bus.owner = "broken of acme 2.5"
    bus.on(Decided, lambda event: 1 / 0)
    bus.publish(Decided(time=1.0, progress=Progress(step=7), action="stop", reason="", source="test"))
    assert "it failed on Decided of step 7: ZeroDivisionError" in caplog.records[0].getMessage()


def test_a_strict_bus_raises_at_the_first_failure_and_stays_usable() -> None:
    bus = Bus(strict=True)
    told: list[str] = []

    def picky(event: Notice) -> None:
        told.append(event.message)
        if event.message == "bad":
            raise ValueError("no")

    bus.owner = "picky of acme 2.5"
    bus.on(Notice, picky)
    with pytest.raises(ComponentFailure) as caught:
        bus.publish(notice("bad"))
    assert str(caught.value) == "NK060 it failed on Notice: ValueError: no [picky of acme 2.5]"
    assert isinstance(caught.value.__cause__, ValueError)
    bus.publish(notice("good"))
    assert told == ["bad", "good"]
