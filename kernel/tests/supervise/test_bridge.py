"""Events and log records as plain messages, and as lines."""

from __future__ import annotations

import logging
from typing import Any

import attrs
import msgpack
import pytest

from nlpkernel import events
from nlpkernel.events import Evaluated, Event, StepCompleted
from nlpkernel.progress import Progress
from nlpkernel.supervise.bridge import event_body, line_of, records_sent
from nlpkernel.supervise.channel import packed

VALUES: dict[str, Any] = {
    "float": 0.5,
    "str": "some text",
    "int": 3,
    "bool": True,
    "Progress": Progress(7, 6, 5, 4, 0.5),
    "float | None": None,
    "Mapping[str, float | None]": {"loss": 1.0, "norm": None},
    "tuple[str, ...]": ("row 1", "row 2"),
    "tuple[float | None, ...]": (1.0, None),
}
CLASSES = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not StepCompleted
]


def made(kind: type[Event]) -> Event:
    return kind(**{field.name: VALUES[str(field.type)] for field in attrs.fields(kind)})


@pytest.mark.parametrize("kind", CLASSES)
def test_every_event_travels_as_plain_values_and_makes_a_line(kind):
    body = msgpack.unpackb(packed(event_body(made(kind))))
    assert body["name"] == kind.__name__
    assert body["time"] == 0.5
    assert body["fields"].keys() == {field.name for field in attrs.fields(kind)} - {"time"}
    line = line_of("event", body)
    assert line.startswith(kind.__name__)
    assert "\n" not in line


def test_a_line_has_what_is_nested_under_its_own_name():
    line = line_of("event", event_body(made(Evaluated)))
    assert line == (
        "Evaluated step=7 updates=6 samples=5 tokens=4 epoch=0.5 split='some text' loss=1 norm=None samples=3 "
        "seconds=0.5 best=True"
    )


def test_an_event_of_a_plugin_travels_whatever_it_holds():
    @attrs.frozen(kw_only=True)
    class Own(Event):
        inner: Any

    deep: list[Any] = []
    for _ in range(50):
        deep = [deep]
    event = Own(time=1.0, inner={3: {"set": {1}}, "progress": Progress(2), "deep": deep, "object": object()})
    body = msgpack.unpackb(packed(event_body(event)))
    assert body["fields"]["inner"]["3"] == {"set": [1]}
    assert body["fields"]["inner"]["progress"]["step"] == 2
    assert body["fields"]["inner"]["object"] == "<object>"


def test_log_records_and_warnings_travel_while_the_run_goes_on(monkeypatch):
    # pytest's own handler takes a record that does not fit for a failure of the test.
    monkeypatch.setattr(logging.getLogger("nlpkernel"), "propagate", False)
    sent: list[tuple[str, dict[str, Any]]] = []
    logger = logging.getLogger("nlpkernel.some")
    logger.setLevel(logging.INFO)
    with records_sent(lambda kind, body: sent.append((kind, body))):
        logger.info("seen %d", 3)
        logger.debug("not wanted")
        logger.info("does not %d fit", "x")
        logging.getLogger("py.warnings").warning("look out")
        logger.info("x" * 100_000)
        try:
            raise ValueError("no")
        except ValueError:
            logger.exception("it failed")
    logger.info("too late")
    assert [line_of(kind, body)[:60] for kind, body in sent[:3]] == [
        "INFO nlpkernel.some: seen 3",
        "INFO nlpkernel.some: 'does not %d fit' (TypeError while form",
        "WARNING py.warnings: look out",
    ]
    assert "ValueError: no" in sent[-1][1]["text"]
    assert all(len(packed(body)) < 10_000 for _, body in sent)
    assert len(sent) == 5
