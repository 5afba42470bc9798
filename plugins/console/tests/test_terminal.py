"""The component in a process of its own: behind a pipe, on a pseudo-terminal, killed and interrupted."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

DRIVER = """
import os, signal, sys, time
from pathlib import Path
from nlpkernel import events
from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel.progress import Progress
from nlpkernel_console.component import Console

style, mode, folder = sys.argv[1:]
run = Run(name="first", folder=Path(folder), cache=Path(folder), train=Train())
console = Console(style=style)
console.subscribe(run, run.bus)
try:
    with run.working("reading", 4, "files") as task:
        for _ in range(4):
            time.sleep(0.15)
            task.advance()
    run.bus.publish(
        events.RunStarted(
            time=time.time(), name="first", folder=folder, start=Progress(step=25, epoch=2.5), steps=40,
            steps_per_epoch=10.0, parameters=1_234_567, device="cpu", precision="fp32", world=1,
        )
    )
    for step in range(26, 41):
        at = Progress(step=step, epoch=step / 10)
        run.bus.publish(
            events.Logged(
                time=time.time(), progress=at, steps=1, metrics={"loss": 100.0 - step, "norm": None, "rate": 3e-4},
                losses=(),
                seconds=0.1, tokens=1230, samples=8, skipped=0, memory=1_200_000_000,
            )
        )
        if step == 30:
            run.notice("optim", "\\x1b[31mhot\\x1b[0m", level="warning")
            run.bus.publish(events.WindowSkipped(time=time.time(), step=step, reason="overflow", samples=()))
            run.bus.publish(
                events.Evaluated(
                    time=time.time(), progress=at, split="validation", metrics={"loss": 71.5}, samples=10,
                    seconds=0.5, best=True,
                )
            )
            print("somebody prints")
            print("somebody errs", file=sys.stderr)
        time.sleep(0.05)
        if step == 35 and mode == "raise":
            raise ValueError("boom")
        if step == 35 and mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 35 and mode == "unclosed":
            console.close = lambda run: None
            sys.exit(3)
        if step == 35 and mode == "wait":
            Path(folder, "ready").touch()
            time.sleep(30)
    run.bus.publish(
        events.RunEnded(time=time.time(), progress=at, status="finished", reason="", seconds=12.0)
    )
finally:
    console.close(run)
    sys.stderr.write(f"rich={'rich' in sys.modules}\\n")
print("after")
Path(folder, "done").touch()
"""

#: Shows and hides the cursor.
CURSOR = re.compile(r"\x1b\[\?25([hl])")


def environment(**values):
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "CI", "COLUMNS", "LINES")
    }
    return kept | {"TERM": "xterm-256color", "PYTHONUNBUFFERED": "", **values}


def command(tmp_path, style, mode):
    return [sys.executable, "-c", textwrap.dedent(DRIVER), style, mode, str(tmp_path)]


def on_terminal(tmp_path, style="auto", mode="run", act=None, **values):
    """Run the driver on a pseudo-terminal of 100 columns; returns its output, its errors and its exit status."""
    leader, follower = pty.openpty()
    subprocess.run(["stty", "cols", "100", "rows", "30"], stdin=follower, check=True)
    with (tmp_path / "stderr").open("w+") as errors:
        child = subprocess.Popen(
            command(tmp_path, style, mode),
            stdin=follower,
            stdout=follower,
            stderr=errors,
            env=environment(**values),
        )
        os.close(follower)
        written = b""
        while True:
            if act is not None and (tmp_path / "ready").exists():
                act(child)
                act = None
            try:
                data = os.read(leader, 65536)
            except OSError:
                break
            if not data:
                break
            written += data
        os.close(leader)
        status = child.wait(timeout=20)
        errors.seek(0)
        return written.decode(), errors.read(), status


def control_codes(text):
    return re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text.replace("\r\n", "\n"))


def test_a_live_view_is_redrawn_and_leaves_the_terminal_in_order(tmp_path):
    written, errors, status = on_terminal(tmp_path)
    assert status == 0, errors
    # Lines above the view, once each.
    for line in (
        "first resumes at step 25/40  epoch 2.50/4.00  1.2M parameters, cpu, fp32",
        "warning: optim: \\x1b[31mhot\\x1b[0m",
        "validation at step 30  loss 71.5000  (10 samples in 0.5s)  best so far",
        "somebody prints",
        "finished at step 40/40  epoch 4.00/4.00 after 12s",
    ):
        assert written.count(line) == 1, line
    # The view itself, more than once, with bars.
    assert "reading  " in written
    assert written.count("skipped windows: 1 overflow") > 1
    assert "━━━" in written
    assert "step 40/40  epoch 4.00/4.00  100%" in written
    assert "\x1b[1A" in written
    assert "somebody errs" in errors
    assert written.rstrip().endswith("after")
    assert CURSOR.findall(written)[-1] == "h"


def test_the_view_is_drawn_at_most_four_times_a_second(tmp_path):
    began = time.monotonic()
    written, _, _ = on_terminal(tmp_path)
    took = time.monotonic() - began
    # Beside the ticks: the first drawing, the last one twice, and what others print.
    assert 2 < len(re.findall("\x1b\\[\\?25l|first\x1b\\[0m  step|first  step", written)) <= 4 * took + 4


@pytest.mark.parametrize("mode", ["raise", "kill", "unclosed"])
def test_the_cursor_is_back_however_the_process_ends(tmp_path, mode):
    written, errors, status = on_terminal(tmp_path, mode=mode)
    assert status == {"raise": 1, "kill": -signal.SIGKILL, "unclosed": 3}[mode]
    assert "step 25/40" in written
    assert CURSOR.findall(written)[-1] == "h"
    # The cursor stands at the start of a line, below the view.
    assert re.search(r"\n(\x1b\[[?0-9;]*[A-Za-z])*$", written)
    if mode == "raise":
        assert "ValueError: boom" in errors


def test_the_cursor_is_back_after_ctrl_c(tmp_path):
    written, errors, status = on_terminal(
        tmp_path, mode="wait", act=lambda child: child.send_signal(signal.SIGINT)
    )
    assert status == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert CURSOR.findall(written)[-1] == "h"


def test_a_live_view_without_colour_moves_the_cursor_only(tmp_path):
    written, _, status = on_terminal(tmp_path, style="live", NO_COLOR="1")
    assert status == 0
    assert "\x1b[1A" in written
    assert not [code for code in re.findall(r"\x1b\[([0-9;]*)m", written) if re.search(r"(^|;)[34]\d", code)]


@pytest.mark.parametrize(
    ("style", "values"),
    [("auto", {"NO_COLOR": "1"}), ("auto", {"TERM": "dumb"}), ("auto", {"CI": "true"}), ("plain", {})],
)
def test_a_terminal_that_wants_none_gets_no_control_codes(tmp_path, style, values):
    written, errors, status = on_terminal(tmp_path, style=style, **values)
    assert status == 0
    assert control_codes(written) == []
    assert "rich=False" in errors
    assert "step 40/40  epoch 4.00/4.00  loss 60.0000" in written


def test_case_r9_behind_a_pipe_there_are_plain_lines_and_no_control_codes(tmp_path):
    done = subprocess.run(command(tmp_path, "auto", "run"), capture_output=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert b"rich=False" in done.stderr
    assert control_codes(done.stdout.decode()) == []
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == [
        "reading  0/4 files  0%",
        "first resumes at step 25/40  epoch 2.50/4.00  1.2M parameters, cpu, fp32",
    ]
    assert lines[2].startswith(
        "step 26/40  epoch 2.60/4.00  loss 74.0000  norm none  rate 3.00e-04  12.3k tok/s"
    )
    assert lines[-2:] == ["finished at step 40/40  epoch 4.00/4.00 after 12s", "after"]


def test_a_wish_for_a_live_view_behind_a_pipe_is_answered(tmp_path):
    done = subprocess.run(command(tmp_path, "live", "run"), capture_output=True, env=environment(), text=True)
    first = done.stdout.splitlines()[0]
    assert first == "warning: console: there is no live view: standard output is no terminal"
    assert control_codes(done.stdout) == []


def test_a_closed_pipe_ends_the_output_and_not_the_run(tmp_path):
    child = subprocess.Popen(
        command(tmp_path, "auto", "run"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert child.stdout.readline().startswith(b"reading")
    child.stdout.close()
    errors = child.stderr.read()
    child.stderr.close()
    assert child.wait(timeout=20) == 0, errors
    assert (tmp_path / "done").exists()
    assert b"BrokenPipe" not in errors


def test_a_terminal_that_goes_away_ends_the_output_and_not_the_run(tmp_path):
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        command(tmp_path, "auto", "wait"),
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    os.close(follower)
    assert os.read(leader, 1)
    os.close(leader)
    deadline = time.monotonic() + 20
    while not (tmp_path / "ready").exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (tmp_path / "ready").exists()
    child.kill()
    child.wait(timeout=20)
