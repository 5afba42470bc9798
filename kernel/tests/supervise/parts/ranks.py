"""Components of runs that are supervised: workers that train independently, and what can go wrong with them."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from nlpkernel import component, hookimpl, setting
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel.hookspecs.everywhere import Action, Decision


@component
class Ranks:
    """Workers without collectives: each trains on the whole window by itself."""

    workers: int = setting(default=2, ge=0, help="how many; 0: this process alone")
    servers: int = setting(default=0, ge=0, help="processes that are no workers, which nobody serves")
    same: bool = setting(default=False, help="give all the same rank, which is wrong")

    @hookimpl
    def launch(self, run):
        ranks = [0 if self.same else rank for rank in range(self.workers)]
        workers = [ProcessSpec(name=f"worker-{index}", rank=rank) for index, rank in enumerate(ranks)]
        return workers + [ProcessSpec(name=f"server-{index}") for index in range(self.servers)]

    @hookimpl
    def open_group(self, run):
        import torch

        from nlpkernel.engine.group import SingleGroup

        group = SingleGroup(torch.device("cpu"))
        group.rank, group.world = run.rank, run.world
        return group


@component
class Shelves:
    """A shelf for each worker: see `Shelf`."""

    every: int | None = setting(default=None, help="steps between two saves")

    @hookimpl
    def decide(self, progress):
        due = self.every is not None and progress.step % self.every == 0
        return Decision(Action.SAVE, "due") if due else None

    @hookimpl
    def open_store(self, run, folder):
        path = Path(__file__).parents[2] / "engine" / "parts" / "shelf.py"
        spec = importlib.util.spec_from_file_location("shelf", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.ShelfStore(folder / f"shelf-{run.rank}", None)


@component
class Pace:
    """A step takes at least so long, and the step that is done is written down."""

    seconds: float = setting(default=0.0, help="of a step")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def update_applied(self, run, progress):
        (run.folder / f"step-{run.rank}").write_text(str(progress.step))
        time.sleep(self.seconds)


@component
class Trouble:
    """Once, in a given step: see `what`."""

    what: str = setting(help="die or hang")
    step: int = setting(help="in which step")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def gradients_ready(self, run, stage):
        mark = run.folder / self.what
        if stage != "global" or run.progress.step != self.step - 1 or mark.exists():
            return
        mark.touch()
        if self.what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.what == "hang":
            time.sleep(600)


@component
class Nanny:
    """Starts children when the run is opened: one in the group, one in a session of its own."""

    @hookimpl
    def subscribe(self):
        command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
        for alone in (False, True):
            subprocess.Popen(command, start_new_session=alone)


@component
class Light:
    """Descent with momentum, without the class of torch that imports its compiler: that costs each process seconds."""

    lr: float = setting(default=0.01, help="rate")

    @hookimpl
    def create_optimizer(self, groups):
        return LightOptimizer(groups, self.lr)


class LightOptimizer:
    """What the engine asks of `torch.optim.Optimizer`."""

    def __init__(self, groups, lr):
        self.param_groups = [{"params": list(group.tensors), "lr": lr} for group in groups]
        self.state = defaultdict(dict)

    def step(self):
        for group in self.param_groups:
            for tensor in group["params"]:
                state = self.state[tensor]
                state["momentum"] = tensor.grad + 0.9 * state.get("momentum", 0.0)
                tensor.data.sub_(state["momentum"] * group["lr"])
