"""A run on a real Ray, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from nlpkernel_sdk import tiny_values

pytest.importorskip("ray")
pytest.importorskip("nlpkernel_torchdist")
pytest.importorskip("nlpkernel_store")
pytest.importorskip("nlpkernel_jsonl")

DYING = Path(__file__).parent / "parts/dying.py"
#: A variable that all processes of the test inherit, however they are related.
MARK = "NLPKERNEL_RAY_TEST"


def command(folder: Path, *words: str, **environment: str) -> tuple[int, str, str, set[str]]:
    """Exit code, standard output and standard error of a command, and where its processes listened."""
    own = {"OMP_NUM_THREADS": "1", "NLPKERNEL_CACHE": str(folder / "cache"), "TMPDIR": str(folder)}
    listened: set[str] = set()
    with subprocess.Popen(
        [sys.executable, "-m", "nlpkernel", *words],
        cwd=folder,
        env={**os.environ, **own, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while True:
            try:
                out, err = process.communicate(timeout=2.0)
                return process.returncode, out, err, listened
            except subprocess.TimeoutExpired:
                listened |= listening(process.pid)


def listening(pid: int) -> set[str]:
    """Addresses on which a process and its children listen."""
    found: set[str] = set()
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                sockets = each.net_connections("inet")
                found |= {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN}
    return found


def losses(run: Path) -> dict[int, Any]:
    """The loss of each step; of one that was done twice, the last."""
    lines = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return {each["progress"]["step"]: each["metrics"] for each in lines if each["event"] == "Logged"}


def events(run: Path, name: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return [each for each in lines if each["event"] == name]


def marked(value: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={value}".encode() in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
def test_a_run_on_ray_is_that_of_this_machine_also_where_a_worker_is_killed(tmp_path: Path) -> None:
    """Two workers train; one is killed after step 7, and all go on from the version of step 4. Every loss, before and
    after that, is the one of a supervised run without Ray. Nothing is left."""
    values = tiny_values(
        communicator={"use": "torchdist", "workers": 2},
        train={"seed": 3, "steps": 12},
        checkpoint={"use": "store", "every": 4},
        monitor=[{"use": "jsonl"}, {"use": f"{DYING}:Dying", "step": 7}],
    )
    (tmp_path / "plan.json").write_text(json.dumps(values))
    # Paths of sockets are short, and pytest's folders are not.
    short = Path(f"/tmp/{os.getpid()}-ray")
    short.mkdir()
    try:
        code, out, told, listened = command(
            tmp_path,
            *("ray", "plan.json", "--local", "--restarts", "1"),
            **{MARK: str(tmp_path), "TMPDIR": str(short)},
        )
        assert code == 0, told
        left = list(short.glob("nlpkernel-ray-*"))
    finally:
        subprocess.run(["rm", "-rf", str(short)], check=True)
    assert left == []

    assert {address.removeprefix("::ffff:") for address in listened} == {"127.0.0.1"}
    assert "nlpkernel: 2 workers on 1 machine" in told
    assert re.search(
        r"nlpkernel: worker 1 on \S+ \(127.0.0.1\) was killed by SIGKILL .*restart 1 of 1", told
    ), told
    assert "[worker-0] run tiny: finished" in out
    run = tmp_path / "runs/tiny"
    assert len(events(run, "RunStarted")) == 2
    (restarted,) = events(run, "Restarted")
    assert (restarted["number"], restarted["progress"]["step"]) == (1, 4)

    plain = tmp_path / "plain"
    plain.mkdir()
    values["monitor"] = [{"use": "jsonl"}]
    (plain / "plan.json").write_text(json.dumps(values))
    code, _, told, _ = command(plain, "run", "plan.json", "-q")
    assert code == 0, told
    expected = losses(plain / "runs/tiny")
    assert sorted(expected) == list(range(1, 13))
    assert losses(run) == expected

    end = time.monotonic() + 10.0
    while marked(str(tmp_path)) and time.monotonic() < end:
        time.sleep(0.1)
    assert marked(str(tmp_path)) == []
