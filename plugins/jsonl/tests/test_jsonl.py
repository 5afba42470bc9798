from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel import events
from nlpkernel.components import fields_of
from nlpkernel.errors import UsageError
from nlpkernel.progress import Progress
from nlpkernel_jsonl import read_events
from nlpkernel_jsonl.codes import CODES
from nlpkernel_jsonl.component import Jsonl
from nlpkernel_jsonl.encoding import line_of
from nlpkernel_jsonl.kinds import kinds

HERE = Progress(20, 19, 640, 81920, 0.5)


def logged(**metrics):
    return events.Logged(
        time=1.5,
        progress=HERE,
        steps=10,
        metrics=metrics,
        losses=(),
        seconds=0.25,
        tokens=40960,
        samples=320,
        skipped=1,
        memory=123,
    )


def notice(message="", **values):
    return events.Notice(**{"time": 2.0, "level": "info", "source": "text", "message": message, **values})


def step():
    return events.StepCompleted(
        time=3.0,
        progress=HERE,
        sums={"loss": torch.tensor(float("nan"))},
        totals={"loss": 10.0},
        norm=torch.tensor(0.5),
    )


def lines(run, name="events.jsonl"):
    return (run.folder / name).read_bytes().split(b"\n")


def test_an_event_is_a_line_with_its_class_and_fields(run, monitor):
    monitor()
    run.bus.publish(logged(loss=2.5, norm=None))
    run.bus.publish(notice("hello"))
    first, second, rest = lines(run)
    assert json.loads(first) == {
        "event": "Logged",
        "time": 1.5,
        "progress": {"step": 20, "updates": 19, "samples": 640, "tokens": 81920, "epoch": 0.5},
        "steps": 10,
        "losses": [],
        "metrics": {"loss": 2.5, "norm": None},
        "seconds": 0.25,
        "tokens": 40960,
        "samples": 320,
        "skipped": 1,
        "memory": 123,
    }
    assert json.loads(second)["message"] == "hello"
    assert rest == b""


def test_every_class_of_events_is_written_but_that_of_steps(run, monitor):
    monitor()
    named = {
        kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)
    }
    assert named - {events.Event} <= set(kinds())
    assert len(kinds()) == len(set(kinds()))
    assert not run.bus.wants(events.StepCompleted)
    assert all(run.bus.wants(kind) for kind in named - {events.Event, events.StepCompleted})


def test_steps_are_written_on_request(run, monitor):
    monitor(step_events=True)
    run.bus.publish(step())
    written = json.loads(lines(run)[0])
    assert written["sums"] == {"loss": "NaN"}
    assert written["norm"] == 0.5
    (read,) = read_events(run.folder / "events.jsonl")
    assert math.isnan(read["sums"]["loss"])


def test_case_l5_numbers_that_are_not_finite_are_valid_json_and_come_back(run, monitor):
    monitor()
    run.bus.publish(logged(loss=math.nan, a=math.inf, b=-math.inf, c=None, d=1e308))
    run.bus.publish(notice("NaN"))

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    written = json.loads(lines(run)[0], parse_constant=refuse)
    assert written["metrics"] == {"loss": "NaN", "a": "Infinity", "b": "-Infinity", "c": None, "d": 1e308}
    first, second = read_events(run.folder / "events.jsonl")
    assert math.isnan(first["metrics"].pop("loss"))
    assert first["metrics"] == {"a": math.inf, "b": -math.inf, "c": None, "d": 1e308}
    assert first["progress"] == HERE._asdict()
    assert second["message"] == "NaN"


@given(
    st.text(st.characters(codec=None)),
    st.dictionaries(st.text(), st.none() | st.floats(), max_size=4),
    st.lists(st.text(st.characters(codec=None)), max_size=3).map(tuple),
)
def test_any_text_and_number_comes_back_from_one_ascii_line(message, metrics, samples):
    said = notice(message)
    skipped = events.WindowSkipped(time=math.nan, step=3, reason=message, samples=samples)
    for event in (said, logged(), skipped, attrs.evolve(logged(), metrics=metrics)):
        line = line_of(type(event))(event)
        assert line.endswith("\n")
        assert line.count("\n") == 1
        assert line.isascii()
        values = json.loads(line)
        assert values.pop("event") == type(event).__name__
        for name, value in values.items():
            own = getattr(event, name)
            own = own._asdict() if isinstance(own, Progress) else own
            assert same(value, list(own) if isinstance(own, tuple) else own)


def same(found, wanted):
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, float) and not math.isfinite(wanted):
        return isinstance(found, str) and repr(float(found)) == repr(wanted)
    return type(found) is type(wanted) and found == wanted


def test_lines_reach_the_file_at_once_by_default_and_together_with_an_interval(run, monitor):
    monitor()
    run.bus.publish(notice("one"))
    assert len(lines(run)) == 2
    waiting = monitor(path="later.jsonl", flush=1000.0)
    run.bus.publish(notice("two"))
    run.bus.publish(notice("three"))
    assert lines(run, "later.jsonl") == [b""]
    waiting.close(run)
    assert [json.loads(line)["message"] for line in lines(run, "later.jsonl")[:-1]] == ["two", "three"]


def test_a_resumed_run_appends(run, monitor):
    for message in ("one", "two"):
        run.bus = type(run.bus)()
        made = monitor()
        run.bus.publish(notice(message))
        made.close(run)
    assert [event["message"] for event in read_events(run.folder / "events.jsonl")] == ["one", "two"]


@pytest.mark.parametrize("torn", [b'{"event":"Notice","time":1', b"{", b"\xff\xfe", b'{"event":"Notice"}'])
def test_half_a_line_of_a_killed_process_is_ended_and_shown(run, monitor, torn):
    run.folder.mkdir()
    path = run.folder / "events.jsonl"
    path.write_bytes(b'{"event":"Notice","message":"old"}\n' + torn)
    monitor()
    assert path.read_bytes().endswith(torn), "nothing is written before there is an event"
    run.bus.publish(notice("new"))
    old, middle, new = read_events(path)
    assert (old["message"], new["message"]) == ("old", "new")
    if torn == b'{"event":"Notice"}':
        assert middle == {"event": "Notice"}
    else:
        assert middle["event"] == "Torn"
        assert middle["line"] == 2
        assert middle["text"] == torn.decode("utf-8", "backslashreplace")


def test_other_line_ends_and_separators_in_a_text_end_no_line(run, tmp_path):
    path = tmp_path / "foreign.jsonl"
    path.write_bytes('{"event":"Notice","message":"a\u2028b\u0085c"}\r\n[1]\n\n'.encode())
    first, second, third = read_events(path)
    assert first["message"] == "a\u2028b\u0085c"
    assert (second["event"], second["text"]) == ("Torn", "[1]")
    assert third["event"] == "Torn"


def test_a_failed_write_fails_and_the_next_line_begins_anew(run, monitor, monkeypatch):
    file = monitor()._file
    real = os.write

    def full(descriptor, data):
        real(descriptor, data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        file.append('{"event":"A"}\n')
    monkeypatch.setattr(os, "write", real)
    file.append('{"event":"B"}\n')
    assert lines(run) == [b'{"eve', b'{"event":"B"}', b""]


def test_a_line_after_the_end_is_an_error_and_reaches_no_other_file(run, monitor):
    made = monitor()
    file = made._file
    made.close(run)
    with (run.folder / "other").open("wb") as other:
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.append("late\n")
        assert other.tell() == 0
    assert (run.folder / "other").read_bytes() == lines(run)[0] == b""


def test_a_short_write_is_continued(run, monitor, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    monitor()
    run.bus.publish(notice("short"))
    (event,) = read_events(run.folder / "events.jsonl")
    assert event["message"] == "short"


def test_a_path_is_taken_from_the_run_folder_or_as_it_is(run, monitor, tmp_path):
    monitor(path="logs/e.jsonl")
    monitor(path=str(tmp_path / "elsewhere.jsonl"))
    run.bus.publish(notice("x"))
    assert len(lines(run, "logs/e.jsonl")) == 2
    assert (tmp_path / "elsewhere.jsonl").exists()


def test_a_file_that_cannot_be_opened_ends_the_start(run):
    (run.folder / "events.jsonl").mkdir(parents=True)
    with pytest.raises(UsageError, match="JSL001 events cannot be written: Is a directory") as caught:
        Jsonl().subscribe(run, run.bus)
    assert caught.value.problems[0].place.file == str(run.folder / "events.jsonl")


def test_only_the_first_worker_writes(run, monitor):
    monitor()
    run.rank = 1
    run.bus.publish(notice("x"))
    assert lines(run) == [b""]


def test_values_beyond_the_plain_ones_are_written_as_near_as_json_comes(run, monitor):
    @attrs.frozen(kw_only=True)
    class Odd(events.Event):
        path: Path
        array: object
        names: frozenset[str]
        place: Progress
        nested: tuple

    monitor()
    inner = events.Notice(time=math.inf, level="info", source="a", message="b")
    odd = Odd(
        time=1.0,
        path=Path("a/b"),
        array=torch.tensor([1.0, math.inf]),
        names=frozenset("ba"),
        place=HERE,
        nested=(HERE, inner),
    )
    values = json.loads(line_of(Odd)(odd))
    assert values["path"] == "a/b"
    assert values["array"] == [1.0, "Infinity"]
    assert values["names"] == ["a", "b"]
    assert values["place"]["step"] == 20
    assert values["nested"][0]["step"] == 20
    assert values["nested"][1]["time"] == "Infinity"
    with pytest.raises(TypeError, match=r"a builtins.complex cannot be written as JSON"):
        line_of(Odd)(attrs.evolve(odd, array=1j))


def test_the_component_is_light_and_documented():
    code = "import sys, nlpkernel_jsonl.component; print({'torch', 'numpy', 'rich'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"
    assert all(field.facts.help for field in fields_of(Jsonl))
    assert {code[:3] for code in CODES} == {"JSL"}
    assert all(2 <= text.count("\n") + 1 <= 5 for _, text in CODES.values())
