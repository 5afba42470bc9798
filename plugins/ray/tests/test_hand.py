"""What a hand does on a machine: files, a folder that is shared, a process and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nlpkernel_ray.hand import Hand
from nlpkernel_ray.keeper import Keeper

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")


def there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Any, what: str, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.01)


def keep(script: str, folder: Path) -> Keeper:
    return Keeper([sys.executable, "-S", "-c", script], dict(os.environ), str(folder))


def read_all(keeper: Keeper) -> tuple[list[tuple[str, str]], int]:
    lines: list[tuple[str, str]] = []
    while True:
        more, code = keeper.read(5.0)
        lines += more
        if code is not None:
            return lines, code


def test_files_are_written_where_they_are_not(tmp_path: Path) -> None:
    files = {str(tmp_path / "a/plan.toml"): b"one", str(tmp_path / "base.toml"): b"two"}
    assert Hand().provide(files) is None
    assert {name: Path(name).read_bytes() for name in files} == files
    assert Hand().provide(files) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "base.toml"]


def test_a_file_with_other_content_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b"mine")
    assert (
        Hand().provide({str(path): b"yours"}) == f"{path} is there, and has other content than the driver's"
    )
    assert path.read_bytes() == b"mine"
    assert "cannot be written: File exists" in str(Hand().provide({str(path / "below"): b""}))


def test_a_folder_that_is_shared_shows_the_file_of_another(tmp_path: Path) -> None:
    shared, other = str(tmp_path / "runs"), str(tmp_path / "elsewhere")
    assert Hand().mark(shared, "t") is None
    assert Hand().sees(shared, "t", 0.0)
    assert not Hand().sees(other, "t", 0.0)
    Hand().unmark(shared, "t")
    assert not Hand().sees(shared, "t", 0.0)
    (tmp_path / "file").touch()
    assert "cannot be written" in str(Hand().mark(str(tmp_path / "file"), "t"))


def test_lines_of_both_streams_come_with_the_exit_code_after_them(tmp_path: Path) -> None:
    script = (
        "import sys\nprint('one', flush=True)\nsys.stderr.write('two\\n')\n"
        "sys.stdout.buffer.write(b'\\xff\\nlast')\nsys.stdout.flush()\nsys.exit(7)"
    )
    lines, code = read_all(keep(script, tmp_path))
    assert code == 7
    assert [text for stream, text in lines if stream == "out"] == ["one", "\N{REPLACEMENT CHARACTER}", "last"]
    assert ("err", "two") in lines


def test_a_worker_that_writes_faster_than_it_is_read_waits_and_no_line_is_lost(tmp_path: Path) -> None:
    keeper = keep("for number in range(25_000): print(number)", tmp_path)
    lines, code = read_all(keeper)
    assert code == 0
    assert [text for _, text in lines] == [str(number) for number in range(25_000)]


def test_an_end_by_a_signal_is_told_as_one(tmp_path: Path) -> None:
    keeper = keep("import time; print('here', flush=True); time.sleep(600)", tmp_path)
    assert keeper.read(20.0)[0] == [("out", "here")]
    keeper.signal(signal.SIGKILL)
    assert read_all(keeper)[1] == -signal.SIGKILL
    keeper.signal(signal.SIGTERM)  # It is gone, which is no error.


def test_a_signal_that_ray_blocks_reaches_the_worker(tmp_path: Path) -> None:
    script = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        lines, _ = read_all(keep(script, tmp_path))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert lines == [("out", "set()")]


@linux
def test_the_end_of_a_worker_is_that_of_its_children_too(tmp_path: Path) -> None:
    child = "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])"
    script = f"import subprocess, sys, time; print({child}.pid, flush=True)"
    lines, code = read_all(keep(script, tmp_path))
    assert code == 0
    assert not there(int(lines[0][1]))

    keeper = keep(f"{script}; time.sleep(600)", tmp_path)
    pid = int(keeper.read(20.0)[0][0][1])
    keeper.end()
    assert read_all(keeper)[1] == -signal.SIGTERM
    assert not there(pid)


@linux
def test_a_worker_does_not_outlive_its_hand(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\nfrom nlpkernel_ray.keeper import Keeper\n"
        "inner = 'import os, time; print(os.getpid(), flush=True); time.sleep(600)'\n"
        "keeper = Keeper([sys.executable, '-S', '-c', inner], dict(os.environ), '.')\n"
        "print(keeper.read(20.0)[0][0][1], flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as hand:
        assert hand.stdout is not None
        pid = int(hand.stdout.readline())
        assert there(pid)
        hand.kill()
    until(lambda: not there(pid), "the end of the worker")


def test_what_cannot_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Hand().start(["run"], {}, str(tmp_path / "no")) == f"there is no folder {tmp_path / 'no'}"
    assert "cannot be started: embedded null byte" in str(Hand().start(["run"], {"A": "\0"}, str(tmp_path)))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert "python cannot be started: No such file" in str(Hand().start(["run"], {}, str(tmp_path)))


def test_a_free_port_is_found() -> None:
    first = Hand().port("127.0.0.1")
    assert 1024 <= first <= 65535
