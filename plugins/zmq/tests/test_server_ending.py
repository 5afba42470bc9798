"""A server that is asked to end while it takes up what there is leaves nothing behind either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel_zmq.component import ZmqPs
from nlpkernel_zmq.server import serve as serving
from nlpkernel_zmq.server.snapshots import Snapshots


@pytest.mark.parametrize(("asked", "left"), [(SystemExit(0), False), (RuntimeError("broken"), True)])
def test_an_end_during_the_start_removes_the_snapshot_and_a_failure_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: BaseException, left: bool
) -> None:
    run = Run(name="test", folder=tmp_path / "run", cache=tmp_path / "cache", train=Train(steps=1))
    run.process, run.launch = "server-1", "f00d"
    folder = run.folder / ".servers" / "shard-1"
    Snapshots(folder, run.launch).write({"next": 3}, {})

    def ends(*arguments: Any) -> None:
        raise asked

    monkeypatch.setattr(serving, "Server", ends)
    with pytest.raises(type(asked)):
        serving.serve(ZmqPs(workers=2, servers=2), run, lambda *_: None)  # type: ignore[arg-type, return-value]
    assert folder.exists() == left
    assert (Snapshots(folder, run.launch).read() is not None) == left
