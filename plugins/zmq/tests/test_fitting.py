"""What `check` says of a plan with servers: sizes, and how many files its processes may open."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.errors import UsageError
from nlpkernel.plan import Plan
from nlpkernel.plan.fit import estimate
from nlpkernel_zmq.descriptors import for_server, for_worker, reserve

from .parts.machines import Site, ended

INT8 = {"use": "int8"}


def gradient_bytes(folder: Path, **communicator: Any) -> int:
    site = Site(folder)
    site.plan("sized", **communicator)
    found = estimate(Plan.load(folder / "sized.json", ())).gradient_bytes
    assert found
    return found


def test_what_a_compressor_keeps_is_counted_where_it_is(tmp_path: Path) -> None:
    plain = gradient_bytes(tmp_path)
    assert gradient_bytes(tmp_path, down=INT8) == plain, "it is the servers'"
    up = gradient_bytes(tmp_path, compressor=INT8)
    assert up > plain
    assert gradient_bytes(tmp_path, compressor=INT8, down=INT8) == up


def test_more_workers_and_servers_need_more_files() -> None:
    assert for_server(100, 1) - for_server(99, 1) == 5
    assert for_server(9, 3) > for_server(9, 2)
    assert for_worker(5) > for_worker(4)


@pytest.mark.parametrize(("soft", "hard", "left"), [(64, 4096, 300), (512, 4096, 512), (64, 128, None)])
def test_case_7_the_limit_of_open_files_is_raised_as_far_as_it_may_be_or_named(
    soft: int, hard: int, left: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = (soft, hard)

    def limit(which: int, given: tuple[int, int]) -> None:
        nonlocal limits
        limits = given

    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", limit)
    if left is not None:
        reserve(300, "it")
        assert limits == (left, hard)
        return
    with pytest.raises(
        UsageError, match="it may need 300 file descriptors, and this process may open 128"
    ) as caught:
        reserve(300, "it")
    assert caught.value.problems[0].code == "ZPS010"
    assert "ulimit -n 1024" in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit")
def test_case_7_a_worker_that_may_not_open_enough_files_says_so_and_the_run_ends(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plan("narrow")
    process = site.start("run", "narrow.json")
    subprocess.run(["prlimit", f"--pid={process.pid}", "--nofile=80:80"], check=True)
    code, told = ended(process)
    site.close()
    assert code != 0
    assert (
        "ZPS010 a worker with 1 servers may need 104 file descriptors, and this process may open 80" in told
    )
