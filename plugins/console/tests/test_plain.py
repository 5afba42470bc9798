from __future__ import annotations

import io

import pytest

from nlpkernel import events
from nlpkernel.bus import Bus
from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel_console.component import Console
from nlpkernel_console.output import Output
from nlpkernel_console.plain import PlainView
from nlpkernel_console.terminal import choose


def view(*, quiet=False, every=10.0):
    bus, stream = Bus(strict=True), io.StringIO()
    for kind, function in PlainView(Output(stream), every=every, quiet=quiet).handlers().items():
        bus.on(kind, function)
    return bus, lambda: stream.getvalue().splitlines()


def test_every_fact_is_a_line(make):
    bus, lines = view()
    bus.publish(make.started())
    for step in (5, 10):
        bus.publish(make.logged(step))
    bus.publish(make.evaluated())
    bus.publish(events.Notice(time=0, level="info", source="a", message="b"))
    assert [line.split()[0] for line in lines()] == ["first", "step", "step", "validation", "a:"]


def test_long_work_has_a_line_at_its_start_and_every_interval(make):
    bus, lines = view()
    for tenth in range(251):
        bus.publish(make.working(done=tenth / 10, total=25.0, time=100 + tenth / 10))
    bus.publish(make.working(done=25.0, total=25.0, time=125.0))
    assert lines() == [
        "reading  0/25 files  0%",
        "reading  10/25 files  40%",
        "reading  20/25 files  80%",
        "reading  25/25 files  100%  took 25s",
    ]


def test_short_work_has_a_line_at_its_start_only(make):
    bus, lines = view()
    for time, done in ((0.0, 0.0), (0.3, 12.0), (0.3, 12.0)):
        bus.publish(make.working(done, time=time))
    assert lines() == ["reading  0/12 files  0%"]


def test_work_of_unknown_length_and_two_kinds_at_once(make):
    bus, lines = view()
    for second in range(22):
        bus.publish(make.working(float(second), None, time=float(second)))
        bus.publish(make.working(float(second), None, time=float(second), what="packing"))
    assert [line.split()[:2] for line in lines()] == [
        ["reading", "0"],
        ["packing", "0"],
        ["reading", "10"],
        ["packing", "10"],
        ["reading", "20"],
        ["packing", "20"],
    ]


def test_work_that_begins_again_is_told_again(make):
    bus, lines = view()
    for done in (0.0, 6.0, 12.0, 12.0, 0.0, 12.0):
        bus.publish(make.working(done))
    assert lines() == ["reading  0/12 files  0%"] * 2


def test_work_that_is_told_twice_before_it_moved_is_one_line(make):
    bus, lines = view()
    for _ in range(3):
        bus.publish(make.working(0.0, None, what="building"))
    assert lines() == ["building  0 files"]


def test_quiet_shows_warnings_only(make):
    bus, lines = view(quiet=True)
    for event in (make.started(), make.logged(), make.evaluated(), make.working(1.0)):
        bus.publish(event)
    for level in ("info", "warning"):
        bus.publish(events.Notice(time=0, level=level, source="a", message=level))
    bus.publish(events.ObserverDetached(time=0, source="x", hook="Logged", error="y"))
    assert lines() == ["warning: a: warning", "warning: x is not called any more for Logged: y"]


@pytest.mark.parametrize("style", ["auto", "plain", "live"])
def test_a_run_that_was_started_quietly_shows_warnings_only(tmp_path, capsys, style):
    run = Run(name="r", folder=tmp_path, cache=tmp_path, train=Train(), quiet=True)
    console = Console(style=style)
    console.subscribe(run, run.bus)
    run.notice("a", "nothing to see")
    run.notice("a", "look out", level="warning")
    console.close(run)
    assert capsys.readouterr().out == "warning: a: look out\n"


GOOD = {"TERM": "xterm-256color"}


@pytest.mark.parametrize(
    ("wanted", "terminal", "environment", "style", "obstacle"),
    [
        ("auto", True, GOOD, "live", False),
        ("auto", False, GOOD, "plain", False),
        ("auto", True, GOOD | {"NO_COLOR": "1"}, "plain", False),
        ("auto", True, GOOD | {"NO_COLOR": ""}, "live", False),
        ("auto", True, GOOD | {"CI": "true"}, "plain", False),
        ("auto", True, {"TERM": "dumb"}, "plain", False),
        ("auto", True, {}, "plain", False),
        ("live", True, GOOD, "live", False),
        ("live", True, GOOD | {"NO_COLOR": "1"}, "live", False),
        ("live", True, {"TERM": "dumb"}, "plain", True),
        ("live", False, GOOD, "plain", True),
        ("plain", True, GOOD, "plain", False),
        ("quiet", True, GOOD, "quiet", False),
    ],
)
def test_the_style_suits_the_place(wanted, terminal, environment, style, obstacle):
    found, why = choose(wanted, terminal=terminal, environment=environment)
    assert (found, bool(why)) == (style, obstacle)


class Closed(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


class Full(io.StringIO):
    def flush(self):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stream", [Closed(), Full()])
def test_a_failing_stream_ends_the_output_and_raises_nothing(stream):
    output = Output(stream)
    output.line("one")
    assert output.gone
    before = stream.getvalue()
    output.line("two")
    assert stream.getvalue() == before


def test_a_stream_that_was_closed_ends_the_output():
    stream = io.StringIO()
    stream.close()
    output = Output(stream)
    output.line("one")
    assert output.gone


def test_characters_that_the_encoding_lacks_are_escaped():
    raw = io.BytesIO()
    output = Output(io.TextIOWrapper(raw, encoding="ascii"))
    output.line("wörter ✓ \ud800")
    assert raw.getvalue() == b"w\\xf6rter \\u2713 \\ud800\n"
    assert not output.gone
