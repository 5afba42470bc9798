"""What a worker opens: its device, its store, and what it says when others do not come or are lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nlpkernel.context import Run
from nlpkernel.errors import TrainingError, UsageError
from nlpkernel.plan.train import Train
from nlpkernel_torchdist import meeting, opening, seat
from nlpkernel_torchdist.agreement import agree
from nlpkernel_torchdist.blame import Cause
from nlpkernel_torchdist.component import TorchDist
from nlpkernel_torchdist.compress.breakeven import measure
from nlpkernel_torchdist.seat import JoinedPost

HERE = "127.0.0.1"


@pytest.mark.parametrize(
    ("name", "local", "beside", "number", "found"),
    [
        ("auto", 3, 4, 3, "auto"),
        ("cpu", 3, 4, 0, "cpu"),
        ("cuda", 0, 4, 0, "cuda:0"),
        ("cuda", 3, 4, 3, "cuda:3"),
        # Each sees but one of them.
        ("cuda", 3, 4, 0, "cuda:0"),
        ("cuda", 2, None, 2, "cuda:2"),
        ("cuda:1", 0, 1, 0, "cuda:1"),
        ("cuda:1", 0, None, 0, "cuda:1"),
    ],
)
def test_each_worker_of_a_machine_takes_the_device_of_its_number(
    name: str, local: int, beside: int | None, number: int, found: str
) -> None:
    assert opening.own_device(name, local, beside, number) == found


@pytest.mark.parametrize(("local", "beside", "told"), [(0, 2, "2"), (1, 2, "2"), (1, None, "several")])
def test_one_device_for_several_workers_is_refused(local: int, beside: int | None, told: str) -> None:
    with pytest.raises(UsageError, match=f"TDI009 device = 'cuda:0' gives {told} workers") as caught:
        opening.own_device("cuda:0", local, beside, local)
    assert 'write device = "cuda"' in str(caught.value)


@pytest.mark.parametrize(("name", "wanted"), [("cuda", "cuda:1"), ("auto", "cuda:1"), ("cpu", None)])
def test_the_current_device_is_the_workers_before_anything_is_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wanted: str | None
) -> None:
    """On a machine that would have two of them."""
    done: list[Any] = []

    class Enough(Exception):
        pass

    def begin(**_: Any) -> None:
        done.append("begin")
        raise Enough

    def pick(name: str, run: Run, index: int = 0) -> torch.device:
        return torch.device(f"cuda:{index}" if name == "auto" else name)

    monkeypatch.setattr(opening, "pick_device", pick)
    monkeypatch.setattr(opening, "_devices", lambda: 2)
    monkeypatch.setattr(opening, "_meet", lambda *_: None)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda device: done.append(str(device)))
    monkeypatch.setattr(opening.dist, "init_process_group", begin)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    run = Run(name="r", folder=tmp_path, cache=tmp_path, train=Train(), rank=1, world=2)
    with pytest.raises(Enough):
        opening.open_group(TorchDist(workers=2, device=name), run)
    assert done == [*([wanted] if wanted else []), "begin"]


# -- the store --------------------------------------------------------------------------------------------------------


def test_who_does_not_come_is_told_from_a_store_that_is_lost() -> None:
    store, _ = meeting.keep(HERE, 5.0)
    store.set("agree/0", "")
    with pytest.raises(TrainingError, match=r"TDI003 workers 1, 2 did not come within 0\.1 s"):
        meeting.gathered(store, "agree", 3, 0.1)
    with pytest.raises(TrainingError, match=r"TDI003 worker 0 did not come within 0\.1 s"):
        agree(store, 1, 2, {}, 0.1)


KEEPER = """
import sys
from nlpkernel_torchdist import meeting
store, port = meeting.keep("127.0.0.1", 5.0)
print(port, flush=True)
sys.stdin.read()
"""


def test_a_store_that_is_lost_is_not_told_as_a_worker_that_is_late() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as keeper:
        assert keeper.stdout is not None
        store = meeting.visit(HERE, int(keeper.stdout.readline()), 5.0)
        os.kill(keeper.pid, signal.SIGKILL)
        keeper.wait()
    with pytest.raises(TrainingError, match="TDI003 the connection to worker 0's store was lost"):
        meeting.said(store, "agree/texts", 30.0)
    with pytest.raises(TrainingError, match="TDI003 the connection to worker 0's store was lost"):
        meeting.gathered(store, "agree", 2, 30.0)


# -- the end ----------------------------------------------------------------------------------------------------------


class Left(Exception):
    pass


def post(monkeypatch: pytest.MonkeyPatch, **values: Any) -> tuple[Any, list[int]]:
    """A worker's post, but for its connections, and the exit codes with which it leaves."""
    made, codes = JoinedPost.__new__(JoinedPost), []
    own = {"rank": 1, "_over": False, "_own": "", "_stack": None, "_sent": []}
    for name, value in {**own, **values}.items():
        setattr(made, name, value)
    made._leaving, made._left, made._noted = (
        seat.threading.Event(),
        seat.threading.Event(),
        seat.threading.Event(),
    )
    made._sender = SimpleNamespace(send=lambda *each, **_: made._sent.append(each))
    monkeypatch.setattr(seat.os, "_exit", codes.append)
    monkeypatch.setattr(seat, "_CLOSING", 0.05)
    monkeypatch.setattr(seat, "_NOTED", 0.0)
    monkeypatch.setattr(seat, "_MOMENT", 0.0)
    return made, codes


@pytest.mark.parametrize("over", [False, True])
def test_a_worker_that_is_slow_to_close_after_a_good_run_does_not_miss_the_first(
    monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    silent = SimpleNamespace(look=lambda now: "silent", silent=lambda now: 60.0, where="in step 9")
    made, codes = post(monkeypatch, _over=over, _first=silent)
    made._beat({})
    assert codes == ([] if over else [1])
    assert len(made._sent) == 1


def test_a_worker_that_failed_itself_does_not_close_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it closes may wait for the others. It says nothing more: its error is its own."""
    made, codes = post(monkeypatch)
    made._leaving.set()
    start = seat.time.monotonic()
    made._end(Cause(error="TDI023", text="worker 1 failed", ranks=(1,), exit_code=3))
    assert seat.time.monotonic() - start < 0.04, "who listens goes on listening"
    while not codes and seat.time.monotonic() - start < 5.0:
        seat.time.sleep(0.01)
    assert codes == [3]
    assert capsys.readouterr().err == ""
    made, codes = post(monkeypatch)
    made._leaving.set()
    made._left.set()
    made._end(Cause(error="TDI023", text="worker 1 failed", ranks=(1,), exit_code=3))
    seat.time.sleep(0.15)
    assert codes == []


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (143, "ended by SIGTERM before its first step was done"),
        (255, "ended by signal 127 before its first step was done"),
        (3, "SystemExit: 3"),
    ],
)
def test_any_exit_code_of_a_worker_is_told(monkeypatch: pytest.MonkeyPatch, code: int, text: str) -> None:
    made, _ = post(monkeypatch)
    made.pulse = SimpleNamespace(phase="step", step=0, moves=0)
    made._first = SimpleNamespace(look=lambda now: None)
    made._tell(SystemExit(code))
    kind, body = made._sent[-1]
    assert (kind, body["text"], body["exit_code"]) == ("failed", text, code)


def test_a_stage_that_trains_nothing_has_nothing_to_measure() -> None:
    reduction: Any = SimpleNamespace(encoders={})
    assert measure(reduction, SimpleNamespace(), 0) is None  # type: ignore[arg-type]
