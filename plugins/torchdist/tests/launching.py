"""Workers that another launcher starts: torchrun, or processes with its variables, forked from one that has imported
torch, which saves seconds each."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from nlpkernel_sdk import tiny_values

PARTS = Path(__file__).parent / "parts"
JOINING = PARTS / "joining.py"
#: Whether everything is to be tried, and not only what is cheap.
EVERYTHING = os.environ.get("JOINING_ALL") == "1"
NLPKERNEL = [sys.executable, "-m", "nlpkernel"]

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        "nlpkernel.engine.api",
        "nlpkernel.cli.run",
        "nlpkernel.cli.resume",
        "nlpkernel_sdk.regression",
        "nlpkernel_store.store",
        "nlpkernel_torchdist.opening",
        "torch._dynamo",
    ]
)


def use(name: str, **settings: Any) -> dict[str, Any]:
    """A component of parts/joining.py."""
    return {"use": f"{JOINING}:{name}", **settings}


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """What `condition` says as soon as it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come in {seconds:g} s")


def port() -> int:
    """One that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def there(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Job:
    """A folder with a plan of a run named tiny, and the processes that a test starts in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "runs/tiny"
        self._number = 0
        self._seen: set[int] = set()
        self.port = port()

    def plan(self, *, monitor: Sequence[Any] = (), **sections: Any) -> None:
        """Write the plan."""
        communicator = {"use": "torchdist", "workers": 2, **sections.pop("communicator", {})}
        values = tiny_values(
            communicator=communicator,
            monitor=[{"use": "jsonl"}, *monitor],
            **{"train": {"seed": 3}, **sections},
        )
        (self.folder / "plan.json").write_text(json.dumps(values))

    def start(
        self,
        rank: int,
        *words: str,
        world: int = 2,
        environment: Mapping[str, str] | None = None,
    ) -> Worker:
        """A worker with the four variables, in a process that was forked."""
        self._number += 1
        told = self.folder / f"told-{self._number}"
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
        }
        given = {
            "folder": str(self.folder),
            "words": list(words or ("run", "plan.json", "-q")),
            "environment": {
                "OMP_NUM_THREADS": "1",
                "NLPKERNEL_CACHE": str(self.folder / "cache"),
                **variables,
                **(environment or {}),
            },
            "told": str(told),
        }
        process = _forks.Process(
            target=runpy.run_path,
            args=(str(PARTS / "forked.py"),),
            kwargs={"init_globals": {"given": given}, "run_name": "joined_command"},
        )
        process.start()
        assert process.pid is not None
        self._seen.add(process.pid)
        return Worker(process, told)

    def both(self, *words: str, **options: Any) -> list[Worker]:
        """Two of them."""
        return [self.start(rank, *words, **options) for rank in range(2)]

    def cold(self, command: Sequence[str], **environment: str) -> Launcher:
        """A command of a launcher, as an operator starts it."""
        self._number += 1
        told = self.folder / f"told-{self._number}"
        own = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "NLPKERNEL_CACHE": str(self.folder / "cache"),
            "JOINING_MARK": str(told),
        }
        with told.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**own, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._seen.add(process.pid)
        return Launcher(process, told)

    def torchrun(self, *words: str, restarts: int = 0) -> Launcher:
        """Two workers under torchrun."""
        agent = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        options = ["--max-restarts", str(restarts), "--no-python"]
        return self.cold([*agent, *options, *NLPKERNEL, *(words or ("run", "plan.json", "-q"))])

    def step(self, rank: int) -> int:
        """The last step that a worker did."""
        path = self.run / f"step-{rank}"
        return int(path.read_text()) if path.exists() else 0

    def reached(self, step: int, world: int = 2) -> None:
        """Wait until all have done a step."""
        until(lambda: all(self.step(rank) >= step for rank in range(world)), f"step {step}")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Events of a kind, in order."""
        path = self.run / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [each for each in map(json.loads, lines) if each["event"] == name]

    def children(self) -> list[int]:
        """Children of the component `Pace` that are there."""
        found = [int(path.name.partition("-")[2]) for path in self.run.glob("child-*")]
        return [pid for pid in found if there(pid)]

    def close(self) -> None:
        """End what a failed test left."""
        for pid in [*self._seen, *self.children()]:
            for each in [pid, *marked(self.folder)]:
                with contextlib.suppress(OSError):
                    os.kill(each, signal.SIGKILL)


def marked(folder: Path) -> list[int]:
    """Processes that a cold command of a job started, however they are related to it."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        try:
            if f"JOINING_MARK={folder}/".encode() in (path / "environ").read_bytes() and there(
                int(path.name)
            ):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def listening(pid: int) -> set[str]:
    """The addresses on which a process listens."""
    sockets = psutil.Process(pid).net_connections("inet")
    return {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}


class Worker:
    """A forked worker."""

    def __init__(self, process: Any, told: Path) -> None:
        self._process, self._told = process, told
        self.pid: int = process.pid

    @property
    def told(self) -> str:
        """What it told so far."""
        return self._told.read_text(errors="replace") if self._told.exists() else ""

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.exitcode is None

    def end(self, code: int | None = 0, seconds: float = 60.0) -> str:
        """Wait for its end, with this exit code; what it told."""
        self._process.join(seconds)
        found = self._process.exitcode
        assert found is not None, f"it did not end within {seconds:g} s: {self.told}"
        assert code is None or found == code, f"exit code {found}, not {code}: {self.told}"
        return self.told


class Launcher(Worker):
    """A launcher that was started as an operator does."""

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def workers(self) -> list[int]:
        """Its children that run the command."""
        found = []
        for path in Path("/proc").iterdir():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if path.name.isdigit() and int(fields[1]) == self.pid and fields[0] != "Z":
                    found.append(int(path.name))
            except OSError:
                continue
        return sorted(found)

    def end(self, code: int | None = 0, seconds: float = 60.0) -> str:
        try:
            found = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {seconds:g} s: {self.told}") from None
        assert code is None or found == code, f"exit code {found}, not {code}: {self.told}"
        return self.told
