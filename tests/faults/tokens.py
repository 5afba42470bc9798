"""A token test: servers and workers in processes of their own, what befalls them, and what must come of it."""

from __future__ import annotations

import json
import os
import random
import runpy
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from .lab import PARTS, answers, forks, in_session, until
from .parts.proxy import Proxy
from .parts.token_server import POINTS
from .parts.tokens import Given


class Tokens:
    """One start of a run. Its folder has a short name, since that of a unix socket may have 107 bytes."""

    def __init__(self, *, proxied: bool = True, **values: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tok"))
        self.given = Given(
            **{
                "folder": str(self.folder),
                "launch": "f00d",
                "workers": 2,
                "servers": 1,
                "rounds": 40,
                "payload": "memory",
                "slots": 4,
                "momentum": 0.0,
                "seed": "1",
                **values,
            }
        )
        for name in ("tmp", "run", "proxy"):
            (self.folder / name).mkdir()
        self.servers: list[Any] = []
        self.workers: list[Any] = []
        #: What befell it, in the order in which it did.
        self.told: list[str] = []
        self._began = time.monotonic()
        self._back: dict[int, float] = {}
        self.delay: Callable[[], float] = lambda: 0.0
        #: How a server may end, and is started again.
        self.endings = {-signal.SIGKILL}
        sockets = self.folder / "tmp" / f"nlpkernel-{os.getuid()}" / self.given.launch
        self.sockets = sockets
        self.proxies = {
            name: Proxy(self.folder / "proxy" / name, sockets / name)
            for name in ("control", *(f"shard-{number}" for number in range(self.given.servers)))
            if proxied
        }

    def start(self) -> None:
        """Start the servers and the workers."""
        self.start_servers()
        for number in range(self.given.shares):
            self.workers.append(self._process("token_worker", number, worker=True))

    def start_servers(self) -> None:
        """Start the servers alone."""
        for number in range(self.given.servers):
            self.servers.append(self._process("token_server", number, worker=False))

    def _process(self, part: str, number: int, *, worker: bool) -> Any:
        table = attrs.asdict(attrs.evolve(self.given, number=number, worker=worker))
        process = forks.Process(
            target=runpy.run_path,
            args=(str(PARTS / f"{part}.py"),),
            kwargs={"init_globals": {"given": table}, "run_name": "faults_command"},
        )
        process.start()
        return process

    # -- what befalls it -------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Write down what befell it."""
        self.told.append(f"{time.monotonic() - self._began:.3f} s, round {self.round()}: {text}")

    def round(self) -> int:
        """The round that the workers are at; -1 before the first."""
        found = []
        for number in range(self.given.shares):
            try:
                found.append(int((self.folder / f"progress-{number}").read_bytes() or b"-1"))
            except FileNotFoundError:
                found.append(-1)
        return min(found)

    @property
    def over(self) -> bool:
        """Whether all rounds are done, or a worker has ended."""
        return any(each.exitcode is not None for each in self.workers) or all(
            (self.folder / f"result-{number}").exists() for number in range(self.given.shares)
        )

    def tend(self) -> None:
        """Start servers again that were killed."""
        now = time.monotonic()
        for number, server in enumerate(self.servers):
            if server.exitcode is None:
                continue
            assert server.exitcode in self.endings, f"server {number} ended with {server.exitcode}"
            if number not in self._back:
                self._back[number] = now + self.delay()
            elif now >= self._back[number]:
                del self._back[number]
                server.close()
                self.servers[number] = self._process("token_server", number, worker=False)
                self.say(f"server {number} is started again")

    def wait(self, until_: Callable[[], bool], seconds: float = 40.0) -> bool:
        """Tend the servers until something holds, or the run is over: whether it holds."""
        deadline = time.monotonic() + seconds
        while not until_():
            if self.over:
                return False
            assert time.monotonic() < deadline, "it does not get on"
            self.tend()
            time.sleep(0.002)
        return True

    def kill(self, number: int) -> None:
        """SIGKILL a server, if it runs."""
        if self.servers[number].exitcode is None:
            self.say(f"server {number} is killed")
            self.servers[number].kill()
            self.servers[number].join()

    def trap(self, number: int, point: str, skip: int) -> None:
        """Let a server kill itself at a point."""
        fresh = self.folder / f"trap-{number}.made"
        fresh.write_text(json.dumps({"point": point, "skip": skip}))
        fresh.replace(self.folder / f"trap-{number}")

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= end)

    # -- its end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait for the end of all rounds, ask for exact counters, and for nothing to be left."""
        self.wait(lambda: False)
        (self.folder / "over").touch()
        deadline = time.monotonic() + 40.0
        while any(each.exitcode is None for each in self.workers) and time.monotonic() < deadline:
            if any(each.exitcode for each in self.workers):
                break
            self.tend()
            time.sleep(0.002)
        for number, each in enumerate(self.workers):
            assert each.exitcode == 0, f"worker {number} ended with {each.exitcode}"
        results = [json.loads((self.folder / f"result-{n}").read_text()) for n in range(self.given.shares)]
        assert all(result == results[0] for result in results)
        if not self.given.momentum:
            part = [
                sum(self.given.takes_part(worker, round) for round in range(self.given.rounds))
                for worker in range(self.given.shares)
            ]
            assert all(counters == part[: len(counters)] for counters in results[0].values())
        self.wait_for_servers()
        for each in self.servers:
            each.terminate()
        for number, each in enumerate(self.servers):
            each.join(10.0)
            assert each.exitcode == 0, f"server {number} ended with {each.exitcode}"
        assert [line for each in (*self.servers, *self.workers) for line in in_session(each.pid)] == []
        left = [path for path in (self.folder / "tmp").rglob("*") if path != self.sockets.parent]
        assert left == [], f"of the sockets: {left}"
        assert list((self.folder / "run").iterdir()) == [], "in the folder of the run"

    def wait_for_servers(self) -> None:
        """Until none is being started again, and all are at work: what is asked to end before it has begun to take up
        what there is knows of nothing that it could remove."""
        assert until(lambda: (self.tend(), not self._back)[1], 10.0)
        for number in range(len(self.servers)):
            path = self.sockets / f"shard-{number}"
            assert until(lambda path=path: answers(path), 10.0), f"server {number} does not come up"

    def close(self) -> None:
        """End what is left, and remove it."""
        for each in (*self.servers, *self.workers):
            if each.exitcode is None:
                os.kill(each.pid, signal.SIGKILL)
                each.join()
        for proxy in self.proxies.values():
            proxy.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def report(self) -> str:
        """What befell it, and what its processes told."""
        logs = [
            f"--- {path.name}\n{path.read_text(errors='replace')[-6000:]}"
            for path in sorted(self.folder.glob("*.log"))
        ]
        return "\n".join([str(self.given), *self.told, *logs])


# -- faults --------------------------------------------------------------------------------------------------


class Faults:
    """What befalls one run, drawn by its number."""

    def __init__(self, seed: int, number: int) -> None:
        self.draw = draw = random.Random(f"{seed} tokens {number}")
        self.servers = draw.choice((1, 2, 2))
        self.values = {
            "workers": draw.choice((2, 2, 3)),
            "servers": self.servers,
            "payload": ("memory", "frames")[number % 2],
            "slots": draw.choice((2, 3, 4, 6)),
            "rounds": 36,
            "momentum": 0.5 if number % 3 == 2 else 0.0,
            "fetch": 5 if number % 3 == 2 else 0,
            "seed": f"{seed} {number}",
        }
        kinds = [
            "kill",
            "trap",
            "trap",
            "stop server",
            "stop worker",
            "cut",
            "cut",
            "cut now",
            "hold",
            "full",
            "twice",
        ]
        if self.servers == 2:
            kinds += ["all", "all"]
        # In turn, so that a few runs have all of them.
        first = kinds[number % len(kinds)]
        self.kinds = [first, *(draw.choice(kinds) for _ in range(draw.randint(2, 4)))]
        draw.shuffle(self.kinds)
        self.early = draw.random() < 0.4

    def befall(self, run: Tokens) -> None:
        """Let it all happen to a run that was made of `values`."""
        draw = self.draw
        run.delay = lambda: draw.choice((0.0, draw.random() * 0.4))
        if self.early:
            self._early(run)
        run.start()
        if self.early and draw.random() < 0.5:
            run.wait(lambda: (run.folder / "uploading").exists())
            run.pause(draw.random() * 0.03)
            run.kill(draw.randrange(self.servers))
        rounds = sorted(draw.randrange(0, run.given.rounds - 4) for _ in self.kinds)
        for round, kind in zip(rounds, self.kinds, strict=True):
            if not run.wait(lambda round=round: run.round() >= round):  # type: ignore[misc]
                break
            run.pause(draw.random() * 0.01)
            getattr(self, "_" + kind.replace(" ", "_"))(run)
        run.finish()

    def _early(self, run: Tokens) -> None:
        """While worker 0 uploads what the run begins with."""
        number, point = draw_of(
            self.draw, range(self.servers), ("put", "put", "begin", "begun", "renamed", "fsync")
        )
        run.say(f"server {number} will be killed at {point}")
        run.trap(number, point, self.draw.randrange(12 if point == "put" else 2))

    def _kill(self, run: Tokens) -> None:
        run.kill(self.draw.randrange(self.servers))

    def _all(self, run: Tokens) -> None:
        order = list(range(self.servers))
        self.draw.shuffle(order)
        for number in order:
            run.kill(number)

    def _twice(self, run: Tokens) -> None:
        number = self.draw.randrange(self.servers)
        for _ in range(self.draw.choice((2, 2, 3))):
            run.kill(number)
            run.wait(lambda: run.servers[number].exitcode is None)
            # It takes so long to be ready, about.
            run.pause(self.draw.random() * 0.15)
        run.kill(number)

    def _trap(self, run: Tokens) -> None:
        number = self.draw.randrange(self.servers)
        points = [each for each in POINTS if each not in ("put", "begin", "begun")]
        if not run.given.fetch:
            points.remove("state")
        if run.given.payload == "memory":
            points.remove("params")
        point = self.draw.choice(points)
        run.trap(number, point, self.draw.randrange(8 if point in ("params", "state") else 3))
        run.say(f"server {number} will be killed at {point}")

    def _stop_server(self, run: Tokens) -> None:
        self._stop(run, run.servers[self.draw.randrange(self.servers)], "a server")

    def _stop_worker(self, run: Tokens) -> None:
        self._stop(run, self.draw.choice(run.workers), "a worker")

    def _stop(self, run: Tokens, process: Any, name: str) -> None:
        seconds = self.draw.choice((0.2, 0.2, 0.5, 1.5)) * (0.5 + 0.5 * self.draw.random())
        if process.exitcode is not None:
            return
        run.say(f"{name} is stopped for {seconds:.2f} s")
        os.kill(process.pid, signal.SIGSTOP)
        run.pause(seconds)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGCONT)

    def _cut(self, run: Tokens) -> None:
        name, way = draw_of(self.draw, sorted(run.proxies), ("up", "down"))
        after = (
            int(
                2 ** (self.draw.random() * (13 if run.given.payload == "memory" or name == "control" else 17))
            )
            + 1
        )
        run.say(f"{name} is cut after {after} bytes {way}")
        run.proxies[name].cut(way, after)

    def _cut_now(self, run: Tokens) -> None:
        for name in self.draw.sample(sorted(run.proxies), self.draw.randint(1, len(run.proxies))):
            run.say(f"{name} is cut")
            run.proxies[name].cut("up", 0)

    def _hold(self, run: Tokens) -> None:
        name, way = draw_of(self.draw, sorted(run.proxies), ("up", "down"))
        seconds = self.draw.random() * 0.4
        run.say(f"{name} passes nothing {way} for {seconds:.2f} s")
        run.proxies[name].hold(way, seconds)
        if self.draw.random() < 0.5:
            run.pause(seconds * self.draw.random())
            run.say(f"{name} is cut")
            run.proxies[name].cut(way, 0)

    def _full(self, run: Tokens) -> None:
        """Disk full: until it has room again a server that is lost is lost for good, so none is killed."""
        number = self.draw.randrange(self.servers)
        (run.folder / f"trap-{number}").unlink(missing_ok=True)
        file, hits = run.folder / f"full-{number}", run.folder / f"full-{number}.hits"
        hits.unlink(missing_ok=True)
        file.touch()
        run.say(f"the disk of server {number} is full")
        times = self.draw.randint(1, 4)
        run.wait(lambda: hits.exists() and hits.stat().st_size >= times)
        file.unlink()
        state = run.folder / "run" / ".servers" / f"shard-{number}" / "state"
        before = state.stat().st_ino if state.exists() else 0
        run.say(f"the disk of server {number} has room again")
        run.wait(lambda: state.exists() and state.stat().st_ino != before)


def draw_of(draw: random.Random, *choices: Any) -> list[Any]:
    """One of each."""
    return [draw.choice(list(each)) for each in choices]
