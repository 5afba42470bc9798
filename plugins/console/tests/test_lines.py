from __future__ import annotations

import math

import pytest

from nlpkernel import events
from nlpkernel_console import lines
from nlpkernel_console.standing import Standing


def clocked(*times):
    """A standing whose clock shows these times, one after the other."""
    return Standing(clock=iter(times).__next__)


@pytest.fixture
def standing(make):
    made = clocked(1000.0, 1005.0)
    made.start(make.started())
    return made


def test_an_interval(standing, make):
    event = make.logged(5)
    standing.log(event)
    assert lines.logged(standing, event) == (
        "step  5/40  epoch 0.50/4.00  loss 2.3451  norm 0.8123  rate 3.00e-04  12.3k tok/s  1.2 GB  left 35s"
    )


def test_what_is_not_known_is_left_out_and_what_was_not_computed_is_said(standing, make):
    event = make.logged(40, metrics={"loss": None, "norm": math.nan}, tokens=0, memory=0, skipped=2)
    standing.log(event)
    assert lines.logged(standing, event) == (
        "step 40/40  epoch 4.00/4.00  loss none  norm nan  64 samples/s  skipped 2"
    )


def test_case_r9_a_resumed_run_says_where_it_is_in_its_first_line(make):
    standing = Standing()
    event = make.started(start=make.at(25))
    standing.start(event)
    assert lines.started(standing, event) == (
        "first resumes at step 25/40  epoch 2.50/4.00  1.2M parameters, cpu, bf16"
    )


def test_the_time_left_does_not_follow_a_clock_that_is_set(make):
    standing = clocked(0.0, 10.0)
    standing.start(make.started(time=5000.0))
    standing.log(make.logged(10, time=100.0, steps=10))
    assert standing.left == pytest.approx(30.0)


def test_case_r9_the_time_left_is_estimated_from_the_steps_of_this_process(make):
    standing = clocked(5000.0, 5010.0, 5020.0)
    standing.start(make.started(start=make.at(25)))
    assert standing.left is None
    # Five steps in ten seconds, evaluations and saves between them included: ten more steps take twenty.
    standing.log(make.logged(30, steps=5, seconds=4.0))
    assert standing.left == pytest.approx(20.0)
    standing.log(make.logged(40, steps=10))
    assert standing.left == 0


def test_an_evaluation_before_the_first_step_is_no_measure_of_the_steps(make):
    standing = clocked(0.0, 28.0, 33.0, 44.0)
    standing.start(make.started())
    standing.evaluate(make.evaluated(0))
    standing.log(make.logged(10, steps=10))
    assert standing.left == pytest.approx(15.0)
    standing.evaluate(make.evaluated(10))
    standing.log(make.logged(20, steps=10))
    assert standing.left == pytest.approx(16.0), "a later one is: it will come again"


def test_steps_that_a_roll_back_repeats_count_for_the_pace(make):
    standing = clocked(0.0, 20.0, 30.0)
    standing.start(make.started())
    standing.log(make.logged(20, steps=20))
    standing.log(make.logged(10, steps=10))
    assert standing.left == pytest.approx(30.0)


def test_a_run_without_epochs_shows_passes_alone(make):
    standing = Standing()
    standing.start(make.started(steps=2000, steps_per_epoch=None, world=4))
    assert lines.step_of(standing, make.at(7)) == "step     7/2,000  epoch 0.70"
    assert lines.started(standing, standing.started).endswith("cpu, bf16, 4 workers")


def test_an_evaluation(make):
    assert lines.evaluated(make.evaluated()) == (
        "validation at step 10  loss 2.4000  perplexity none  (1,014 samples in 3.2s)  best so far"
    )
    assert lines.evaluated(make.evaluated(best=False)).endswith("(1,014 samples in 3.2s)")


@pytest.mark.parametrize(
    ("done", "total", "unit", "text"),
    [
        (0.0, 12.0, "files", "reading  0/12 files  0%"),
        (5.0, 12.0, "files", "reading  5/12 files  42%"),
        (1234.0, None, "lines", "reading  1,234 lines"),
        (2.5e6, 1e7, "bytes", "reading  2.5 MB/10.0 MB  25%"),
        (123_456.0, 1e6, "tokens", "reading  123.5k/1.0M tokens  12%"),
        (2.0, 0.0, "", "reading  2/0"),
        (3.0, None, "", "reading  3"),
        (13.0, 12.0, "files", "reading  13/12 files  100%"),
    ],
)
def test_long_work(make, done, total, unit, text):
    assert lines.working(make.working(done, total, unit=unit)) == text


def test_the_others(standing, make):
    at = make.at(20)
    saved = events.VersionSaved(
        time=0, progress=at, version="20-3f9ac21b77d0", bytes=23_400_000, seconds=0.21
    )
    assert lines.saved(saved) == "saved 20-3f9ac21b77d0  23.4 MB in 0.2s"
    notice = events.Notice(time=0, level="warning", source="optim", message="no\nfused \x1b[31mkernel")
    assert lines.notice(notice) == "warning: optim: no | fused \\x1b[31mkernel"
    decided = events.Decided(
        time=0, progress=at, action="stop", reason="no better loss", source="early-stopping"
    )
    assert lines.decided(decided) == "stop: no better loss (early-stopping)"
    detached = events.ObserverDetached(time=0, source="x", hook="Logged", error="ValueError: y")
    assert lines.detached(detached) == "warning: x is not called any more for Logged: ValueError: y"
    ended = events.RunEnded(time=0, progress=at, status="stopped", reason="no better loss", seconds=200)
    assert (
        lines.ended(standing, ended) == "stopped at step 20/40  epoch 2.00/4.00 after 3m 20s: no better loss"
    )
