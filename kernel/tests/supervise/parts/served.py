"""A communicator with one worker and one server, which count updates together over a socket of the standard library."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time

import torch

from nlpkernel import component, hookimpl, setting
from nlpkernel.engine.group import SingleGroup
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel.hookspecs.model import ParameterGroup


@component
class Served:
    """The worker asks the server in each update, and waits for one that is not there."""

    trouble: str = setting(default="", help="what the server does in place of serving: raise or leave")

    @hookimpl
    def launch(self):
        return [ProcessSpec(name="worker-0", rank=0), ProcessSpec(name="server-0", alone=True)]

    @hookimpl
    def open_group(self, run):
        return Asking(run) if self.trouble != "leave" else SingleGroup(torch.device("cpu"))

    @hookimpl
    def serve(self, run, make_optimizer, make_schedule):
        tensor = torch.ones(3)
        optimizer = make_optimizer(
            [ParameterGroup(names=["w"], tensors=[tensor], decay=True, tags=frozenset())]
        )
        told = {
            "pid": os.getpid(),
            "words": sys.argv[1:],
            "process": run.process,
            "rank": run.rank,
            "world": run.world,
            "launch": run.launch,
            "phase": run.pulse.phase,
            "threads": torch.get_num_threads(),
            "group": run.group is None and run.data is None and run.model is None,
            "peaks": [group["peak"] for group in optimizer.param_groups],
            "factors": [make_schedule(4).factor(number) for number in range(4)],
        }
        with (run.folder / "served").open("a") as file:
            file.write(json.dumps(told) + "\n")
        if self.trouble == "raise":
            raise ValueError("it cannot serve")
        if self.trouble == "leave":
            return
        logging.getLogger("nlpkernel").info("the server listens")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(address(run))
        listening.listen()
        try:
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(b"%d" % os.getpid())
        finally:
            listening.close()
            (run.folder / "left").write_text(str(os.getpid()))

    @hookimpl
    def close(self, run):
        (run.folder / f"closed-{run.process}").touch()


def address(run) -> str:
    """An abstract one, which is gone with its owner."""
    return f"\0nlpkernel-test-{run.launch}"


class Asking(SingleGroup):
    """See `Served`."""

    def __init__(self, run):
        super().__init__(torch.device("cpu"))
        self._run = run

    def update(self, work, number, sums):
        answer = self._ask()
        with (self._run.folder / "answers").open("a") as file:
            file.write(f"{number} {answer}\n")
        return super().update(work, number, sums)

    def _ask(self) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket(socket.AF_UNIX) as connection:
                try:
                    connection.connect(address(self._run))
                    answer = connection.recv(100)
                except OSError:
                    answer = b""
            if answer:
                return answer.decode()
            time.sleep(0.02)
        raise TimeoutError("there is no server")
