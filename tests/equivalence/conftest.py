"""Crews of workers for whole modules of tests, and the runs that they make."""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

from nlpkernel import open_model
from nlpkernel.plan import Plan

CREW = Path(__file__).parent / "parts" / "crew.py"
WORDS = ("river", "stone", "light", "on", "the", "of", "alpha", "beta", "gamma", "delta")


@attrs.frozen
class Ran:
    """What a run left: the loss of every step, the newest evaluation, the weights."""

    folder: Path
    losses: list[float]
    metrics: dict[str, float]
    weights: dict[str, torch.Tensor]

    @classmethod
    def read(cls, folder: Path) -> Ran:
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        losses = [loss for event in events for loss in event.get("losses", ())]
        report = json.loads((folder / "report.json").read_text())
        weights = dict(open_model(folder, device="cpu").model.named_parameters())
        return cls(folder, losses, report["metrics"], {name: each.detach() for name, each in weights.items()})


class Lab:
    """Plans that differ in their layout, and crews to run them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._crews: dict[int, list[subprocess.Popen[str]]] = {}
        self._servers: list[subprocess.Popen[str] | None] = []
        self._seen: dict[str, Ran] = {}
        draws = random.Random(1)
        lines = (" ".join(draws.choices(WORDS, k=draws.randint(1, 9))) for _ in range(600))
        (root / "corpus.txt").write_text("\n".join(lines) + "\n")

    def plan(self, name: str, **changes: Any) -> Path:
        """A small model on ragged rows, with what is changed section by section."""
        content: dict[str, Any] = {
            "name": name,
            "train": {
                "seed": 1,
                "steps": 50,
                "batch": 8,
                "micro": 2,
                "clip": 1.0,
                "threads": 1,
                "log": {"every": 5},
            },
            "data": {
                "use": "text",
                "paths": [str(self.root / "corpus.txt")],
                "window": 32,
                "format": {"use": "auto", "documents": "line"},
                "pack": "rows",
            },
            "model": {"use": "gpt", "layers": 4, "heads": 4, "width": 32, "bias": True},
            "optimizer": {"use": "adamw", "lr": 1e-3, "schedule": {"use": "cosine", "warmup": 5}},
            "checkpoint": {"use": "store", "every": 20, "keep": {"last": 9}},
            "monitor": [{"use": "jsonl"}],
        }
        for section, values in changes.items():
            content[section] = {**content.get(section, {}), **values} if isinstance(values, dict) else values
        path = self.root / f"{name}.json"
        path.write_text(json.dumps(content))
        return path

    def run(
        self,
        name: str,
        workers: int = 1,
        *,
        servers: int = 0,
        resume: str | None = None,
        of: str | None = None,
        **changes: Any,
    ) -> Ran:
        """Run a plan, or continue the run `of` another name in a folder of its own; raise AssertionError where a worker
        fails. servers: of the communicator zmq-ps."""
        if name in self._seen:
            return self._seen[name]
        if servers or workers > 1:
            use = {"use": "zmq-ps", "servers": servers} if servers else {"use": "torchdist"}
            changes["communicator"] = {**use, "workers": workers, **changes.get("communicator", {})}
        answers = self.ask(name, workers, servers=servers, resume=resume, of=of, **changes)
        assert [answer.get("error") for answer in answers] == [None] * (workers + servers)
        self._seen[name] = Ran.read(self.root / "runs" / name)
        return self._seen[name]

    def ask(
        self,
        name: str,
        workers: int,
        *,
        servers: int = 0,
        resume: str | None = None,
        of: str | None = None,
        **changes: Any,
    ) -> list[dict[str, str]]:
        """What each worker answers, and then each server."""
        path, folder = self.plan(name, **changes), self.root / "runs" / name
        if of is not None:
            subprocess.run(["cp", "-r", self.root / "runs" / of, folder], check=True)
        else:
            folder.mkdir(parents=True)
            (folder / "plan.toml").write_text(Plan.load(path).text())
        asked = {
            "plan": str(path),
            "run": str(folder),
            "launch": secrets.token_hex(4),
            "resume": resume,
            "workers": workers,
        }
        serving = [self._server(number) for number in range(servers)]
        for process in serving:
            self._say(process, asked)
        answers = self.tell(workers, [asked] * workers)
        for process in serving:
            process.terminate()
        return answers + [self._dismissed(process) for process in serving]

    def _dismissed(self, process: subprocess.Popen[str]) -> dict[str, str]:
        """What a server answers that was told to end. One that took that for itself has ended as well, with 0."""
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line and process.wait() == 0:
            self._servers[self._servers.index(process)] = None
            return {"status": "served"}
        assert line, f"a server ended with {process.wait()}: {(self.root / 'crew.log').read_text()[-2000:]}"
        answer: dict[str, str] = json.loads(line)
        return answer

    def tell(self, workers: int, asked: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
        """Send each worker a line, and read each one's answer."""
        crew = self._crew(workers)
        for process, line in zip(crew, asked, strict=True):
            self._say(process, line)
        return [self._answer(process) for process in crew]

    def _say(self, process: subprocess.Popen[str], line: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, str]:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"a worker ended with {process.wait()}: {(self.root / 'crew.log').read_text()[-2000:]}"
        answer: dict[str, str] = json.loads(line)
        return answer

    def _crew(self, workers: int) -> list[subprocess.Popen[str]]:
        if workers not in self._crews:
            self._crews[workers] = [self._start(str(rank), str(workers)) for rank in range(workers)]
        return self._crews[workers]

    def _server(self, number: int) -> subprocess.Popen[str]:
        self._servers += [None] * (number + 1 - len(self._servers))
        found = self._servers[number] or self._start(f"server-{number}")
        self._servers[number] = found
        return found

    def _start(self, *words: str) -> subprocess.Popen[str]:
        environment = {
            "NLPKERNEL_CACHE": str(self.root / "cache"),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "NLPKERNEL_ZMQ_SERVERS": "1",
        }
        return subprocess.Popen(
            [sys.executable, str(CREW), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.root / "crew.log").open("a"),
            text=True,
            env=os.environ | environment,
        )

    def close(self) -> None:
        """End the crews."""
        for crew in (*self._crews.values(), self._servers):
            for process in filter(None, crew):
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("layouts"))
    yield made
    made.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a module share runs and crews, so they stay on one of xdist's workers."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
