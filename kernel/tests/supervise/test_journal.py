"""One log of a run: each sender in its own order, all of them in the order of time."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.supervise.journal import HOLD, Journal

LINE = re.compile(r"^(\S+Z) (\S+) #(\d+) (.*)$")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e9)), max_size=30), st.booleans())
def test_lines_of_a_sender_keep_their_order_and_times_of_steady_clocks_rise(arrivals, steady):
    """Whatever the clocks do, and in whatever order the lines of several senders arrive."""
    if steady:
        times = {name: iter(sorted(time for who, time in arrivals if who == name)) for name in "abc"}
        arrivals = [(name, next(times[name])) for name, _ in arrivals]
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "run.log", Clock())
        numbers = dict.fromkeys("abc", 0)
        for name, time in arrivals:
            journal.add(name, numbers[name], time, "text")
            numbers[name] += 1
        journal.close()
        lines = [LINE.match(line) for line in (Path(folder) / "run.log").read_text().splitlines()]
    assert all(lines)
    for name, count in numbers.items():
        assert [int(line[3]) for line in lines if line[2] == name] == list(range(count))
    if steady:
        assert [line[1] for line in lines] == sorted(line[1] for line in lines)


def test_a_line_waits_for_earlier_ones_of_others_and_no_longer(tmp_path):
    clock = Clock()
    journal = Journal(tmp_path / "run.log", clock)
    journal.add("a", 0, 10.0, "second")
    journal.write()
    journal.add("b", 0, 9.0, "first")
    clock.now = HOLD / 2
    journal.write()
    assert (tmp_path / "run.log").read_text() == ""
    clock.now = HOLD
    journal.write()
    assert re.findall("first|second", (tmp_path / "run.log").read_text()) == ["first", "second"]
    journal.close()


def test_a_text_of_several_lines_is_indented_so_that_each_entry_is_seen(tmp_path):
    journal = Journal(tmp_path / "run.log")
    journal.note("one\ntwo \udc80")
    journal.close()
    first, second = (tmp_path / "run.log").read_text().splitlines()
    assert first.endswith("supervisor #0 one")
    assert second == "    two \\udc80"


def test_a_log_goes_on_where_it_ended(tmp_path):
    for text in ("before", "after"):
        journal = Journal(tmp_path / "run.log")
        journal.note(text)
        journal.close()
    assert re.findall("before|after", (tmp_path / "run.log").read_text()) == ["before", "after"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_a_disk_that_is_full_ends_nothing_and_is_told_of_once(tmp_path):
    (tmp_path / "run.log").symlink_to("/dev/full")
    said = []
    journal = Journal(tmp_path / "run.log", say=said.append)
    for number in range(3):
        journal.add("worker-0", number, 0.0, "text")
        journal.write(everything=True)
    journal.close()
    (told,) = said
    assert told.endswith("cannot be written: No space left on device; the run goes on")
