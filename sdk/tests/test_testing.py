"""The harness for authors does what it says, also the parts that fail on purpose."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import nlpkernel
from nlpkernel.errors import CheckpointError
from nlpkernel.events import Logged, Notice, VersionFailed
from nlpkernel_sdk import record, tiny_plan
from nlpkernel_sdk.testing import FakeClock, FaultyPipe, Recorder, make_run


def test_a_clock_moves_by_hand_and_by_sleeping() -> None:
    clock, real = FakeClock(100.0), time.time
    with clock.set():
        time.sleep(2.5)
        clock.advance(1)
        assert time.time() == time.monotonic() == 103.5
    assert clock.slept == [2.5]
    assert time.time is real
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_events_are_written_down_by_class(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    book = Recorder(run.bus)
    run.notice("me", "hello")
    assert [event.message for event in book.of(Notice)] == ["hello"]
    assert book.of(Logged) == []


def test_each_fault_of_a_pipe_comes_at_its_number() -> None:
    pipe = FaultyPipe({1: "drop", 2: "twice", 3: "late", 5: "damage", 6: "cut"})
    for number in range(6):
        pipe.send(bytes([number]))
    came = []
    while (message := pipe.receive()) is not None:
        came.append(message[0])
    assert came == [0, 2, 2, 4, 3, 5 ^ 0xFF]
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            pipe.send(b"x")
    with pytest.raises(ConnectionResetError):
        pipe.receive()


def test_a_store_that_fails_ends_the_run_or_is_told(tmp_path: Path) -> None:
    store = {"use": "memory", "every": 2, "fail_at": [0]}
    with pytest.raises(CheckpointError, match="SDK022"):
        nlpkernel.run(tiny_plan(checkpoint=store), runs_folder=tmp_path / "stop")
    events = record(tiny_plan(checkpoint={**store, "on_failure": "continue"}), tmp_path / "continue")
    assert [event.progress.step for event in events if isinstance(event, VersionFailed)] == [2]


def test_data_of_text_opens_every_point_of_text(tmp_path: Path) -> None:
    (tmp_path / "stage.py").write_text(
        "from nlpkernel import component, hookimpl\n"
        "from nlpkernel.hookspecs.stage import Outcome\n"
        "@component\n"
        "class Short:\n"
        "    ordered = False\n"
        "    @hookimpl\n"
        "    def create_stage(self):\n"
        "        return self\n"
        "    def apply(self, documents):\n"
        "        return Outcome(dropped={0: 'first'})\n"
    )
    data = {
        "use": "tiny-text",
        "stages": [{"use": str(tmp_path / "stage.py") + ":Short"}],
        "sampler": "order",
    }
    report = nlpkernel.run(tiny_plan(data=data, model={"use": "tiny-text"}), runs_folder=tmp_path)
    assert report.status == "finished"
    assert [each.number for each in report.counts if each.what == "documents dropped by stages"] == [1]


def test_gradients_go_through_the_wire(tmp_path: Path) -> None:
    def losses(name: str, **communicator: object) -> list[float | None]:
        events = record(tiny_plan(communicator={"use": "wire", **communicator}), tmp_path / name)
        return [loss for event in events if isinstance(event, Logged) for loss in event.losses]

    plain, coarse = losses("plain"), losses("coarse", compressor="bf16")
    assert plain[0] == coarse[0]
    assert plain[-1] == pytest.approx(coarse[-1], rel=1e-2)
    assert plain[-1] != coarse[-1]
