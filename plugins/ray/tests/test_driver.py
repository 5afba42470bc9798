"""Starts and restarts, on a cluster without Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.errors import TrainingError, UsageError
from nlpkernel_ray.cluster import Needs
from nlpkernel_ray.driver import Driver, collected

from .fakes import FakeCluster, work


class Play:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.lines: list[str] = []
        self.signals: list[int] = []
        self.cluster = FakeCluster("")

    def run(
        self, script: str, numbers: Sequence[int] = (2,), *, rooms: Sequence[int] = (99,), **options: Any
    ) -> int:
        self.cluster = FakeCluster(script, rooms=rooms)
        given = {"restarts": 0, "patience": 0.0, "settle": 0.0, "first": 0.01, "tell": self.told.append}
        driver = Driver(
            cluster=self.cluster,
            work=work(self.folder),
            numbers=numbers,
            needs=Needs(1, 0),
            signals=self.signals,
            echo=lambda rank, stream, text: self.lines.append(text),
            **{**given, **options},
        )
        return driver.run()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    made = Play(tmp_path)
    yield made
    made.cluster.close()


def test_a_run_that_finishes_is_started_once(play: Play) -> None:
    assert play.run("print(attempt)", restarts=3) == 0
    assert play.lines == ["0", "0"]


def test_workers_are_started_again_within_the_budget_and_know_which_start_it_is(play: Play) -> None:
    assert play.run("print(attempt); sys.exit(attempt < 2)", (1,), restarts=2) == 0
    assert play.lines == ["0", "1", "2"]
    first, second = (text for text in play.told if "restart" in text)
    assert first.endswith("ended with exit code 1; restart 1 of 2 in 0.01 s")
    assert second.endswith("restart 2 of 2 in 0.02 s")


def test_a_run_that_is_lost_for_good_names_who_failed(play: Play) -> None:
    script = "time.sleep(600) if rank == 0 and attempt > 1 else os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(
        TrainingError, match=r"RAY009 worker 0 on .* was killed by SIGKILL .*after 1 restarts"
    ):
        play.run(script, (1,), restarts=1)
    assert play.cluster.starts == 2


def test_a_mistake_of_the_plan_is_not_tried_again(play: Play) -> None:
    assert play.run("sys.exit(2)", restarts=5) == 2
    assert play.cluster.starts == 1
    assert play.told[-1].endswith("ended with exit code 2: the plan, a plugin or the command line is wrong")


def test_a_run_that_a_signal_ended_is_not_started_again(play: Play) -> None:
    assert play.run("sys.exit(143)", restarts=5) == 143
    assert play.cluster.starts == 1


def test_where_the_cluster_has_shrunk_fewer_workers_go_on(play: Play) -> None:
    script = "print(os.environ['WORLD_SIZE']); sys.exit(attempt == 0)"
    assert play.run(script, (4, 2), rooms=(4, 3), restarts=1) == 0
    assert play.lines == ["4"] * 4 + ["2"] * 2
    assert play.cluster.asked == [4, 4, 2]
    assert "there is no room for 4 workers: 2 go on" in play.told


def test_a_cluster_without_room_is_an_error_that_tells_what_there_is(play: Play) -> None:
    with pytest.raises(UsageError) as caught:
        play.run("", (4, 2), rooms=(1,))
    assert (
        "RAY005 the cluster had no room for 2 workers of 1 core each within 0 s; there is room for 1"
        in str(caught.value)
    )


def test_a_signal_while_there_is_no_room_ends_the_waiting(play: Play) -> None:
    play.signals.append(signal.SIGINT)
    assert play.run("", (4,), rooms=(1,), patience=600.0) == 130


def test_a_signal_before_a_restart_ends_the_waiting(play: Play) -> None:
    def tell(text: str) -> None:
        if "restart 1" in text:
            play.signals.append(signal.SIGTERM)

    assert play.run("sys.exit(1)", (1,), restarts=1, first=600.0, tell=tell) == 143
    assert play.cluster.starts == 1


def test_signals_are_kept_while_a_run_goes_on() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with collected() as received:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        signal.sigtimedwait([], 0.01)
        assert sorted(received) == [signal.SIGINT, signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before
