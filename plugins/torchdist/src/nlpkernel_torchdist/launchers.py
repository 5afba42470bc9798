"""Who started this process: what the variables of torchrun, Slurm, Kubernetes and the like say of it. Light."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import attrs

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel_torchdist.codes import OWNER

#: The four variables of torch's own convention.
_FOUR = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: Ports for jobs of Slurm: below those that systems give out by themselves.
_FIRST_PORT, _PORTS = 15000, 15000
#: How far apart the ports of a job's steps are; a prime.
_STRIDE = 7919

#: The variable by which a launcher of ours that gives torchrun's variables says its name.
LAUNCHER = "NLPKERNEL_LAUNCHER"

Environment = Mapping[str, str]


@attrs.frozen(kw_only=True)
class Place:
    """The place that another launcher gave this process.

    rank of world; local_rank of local_world on its machine (None: not known). host and port: where the workers meet;
    `agent` says that the launcher keeps torch's own store there, otherwise the first worker is to listen there. run_id:
    what the launcher calls the run. attempt: how often it started this process again, as far as it says.
    """

    launcher: str
    rank: int
    world: int
    local_rank: int = 0
    local_world: int | None = None
    host: str
    port: int
    agent: bool = False
    run_id: str = ""
    attempt: int = 0

    @property
    def one_machine(self) -> bool:
        """Whether all workers are known to be on this machine."""
        return self.local_world == self.world


def place(environment: Environment = os.environ) -> Place | None:
    """This process's place; None where no other launcher gave it one. Raise UsageError (TDI020) where the variables
    contradict each other or are half there."""
    found: Place | None
    if "TORCHELASTIC_RUN_ID" in environment:
        found = _torchrun(environment)
    elif _convention(environment):
        found = _plain(environment)
    elif "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        found = _slurm(environment)
    elif "PET_NNODES" in environment:
        found = _kubeflow(environment)
    else:
        return None
    if found is not None:
        _check(found)
    return found


def leftover(environment: Environment = os.environ) -> str | None:
    """What to say of variables that look like a launcher's and are none: None where there are none."""
    if place(environment) is not None:
        return None
    lone = [name for name in ("RANK", "WORLD_SIZE") if name in environment]
    if lone:
        there = f"{lone[0]}={environment[lone[0]]}"
        missing = ", ".join(name for name in _FOUR if name not in environment)
        return f"{there} is set and {missing} are not: taken for a leftover, not for a launcher's"
    tasks = environment.get("SLURM_NTASKS", "1")
    if "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" not in environment and tasks != "1":
        return f"Slurm gave this job {tasks} tasks, and srun did not start this process: it runs on this machine alone"
    return None


def _convention(environment: Environment) -> bool:
    """Whether the four variables are there. Raise UsageError (TDI020) where most of them are."""
    there = [name for name in _FOUR if name in environment]
    # An Indexed Job of Kubernetes tells the rank by a name of its own.
    indexed = "RANK" not in environment and "JOB_COMPLETION_INDEX" in environment
    if indexed and len(there) == 3:
        return True
    if len(there) == 4:
        return True
    if len(there) == 3 or ("RANK" in there and "WORLD_SIZE" in there):
        missing = [name for name in _FOUR if name not in environment]
        shown = ", ".join(f"{name}={environment[name]}" for name in there)
        raise _wrong(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set, and {shown} {_be(there)}",
            f"set all of {', '.join(_FOUR)}, or none",
        )
    return False


def _torchrun(environment: Environment) -> Place:
    return Place(
        launcher=environment.get(LAUNCHER) or "torchrun",
        rank=_number(environment, "RANK"),
        world=_number(environment, "WORLD_SIZE", 1),
        local_rank=_number(environment, "LOCAL_RANK"),
        local_world=_number(environment, "LOCAL_WORLD_SIZE", 1),
        host=_text(environment, "MASTER_ADDR"),
        port=_port(environment, "MASTER_PORT"),
        agent=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        run_id=environment["TORCHELASTIC_RUN_ID"],
        attempt=_number(environment, "TORCHELASTIC_RESTART_COUNT"),
    )


def _plain(environment: Environment) -> Place:
    index = "JOB_COMPLETION_INDEX"
    name = "RANK" if "RANK" in environment else index
    slurm = "SLURM_STEP_ID" in environment and "SLURM_PROCID" in environment
    world = _number(environment, "WORLD_SIZE", 1)
    local, beside = 0, None
    if "LOCAL_RANK" in environment:
        local = _number(environment, "LOCAL_RANK")
    elif slurm and "SLURM_LOCALID" in environment:
        # Scripts that set RANK from SLURM_PROCID often leave this one to Slurm.
        local = _number(environment, "SLURM_LOCALID")
        beside = _beside(environment, world)
    if "LOCAL_WORLD_SIZE" in environment:
        beside = _number(environment, "LOCAL_WORLD_SIZE", 1)
    found = Place(
        launcher="Kubernetes" if index in environment else "the environment",
        rank=_number(environment, name),
        world=world,
        local_rank=local,
        local_world=beside,
        host=_text(environment, "MASTER_ADDR"),
        port=_port(environment, "MASTER_PORT"),
        attempt=_restarts(environment),
    )
    if slurm:
        # One value for all tasks, exported before srun, is the usual mistake.
        for name, value, theirs in (
            ("RANK", found.rank, "SLURM_PROCID"),
            ("WORLD_SIZE", found.world, _tasks(environment)),
        ):
            if value != _number(environment, theirs):
                raise _wrong(
                    f"{name}={value} contradicts {theirs}={environment[theirs]}",
                    f"unset RANK and WORLD_SIZE, or set {name} to {environment[theirs]} in this task",
                )
    return found


def _slurm(environment: Environment) -> Place | None:
    world = _number(environment, _tasks(environment), 1)
    if world == 1:
        return None  # A task alone: what it starts is its own affair.
    job, step = _number(environment, "SLURM_JOB_ID"), _number(environment, "SLURM_STEP_ID")
    if "MASTER_PORT" in environment:
        port = _port(environment, "MASTER_PORT")
    else:
        port = _FIRST_PORT + (job + _STRIDE * step) % _PORTS
    return Place(
        launcher="Slurm",
        rank=_number(environment, "SLURM_PROCID"),
        world=world,
        local_rank=_number(environment, "SLURM_LOCALID"),
        local_world=_beside(environment, world),
        host=environment.get("MASTER_ADDR") or first_host(_nodes(environment)),
        port=port,
        run_id=f"{job}.{step}",
        attempt=_restarts(environment),
    )


def _nodes(environment: Environment) -> str:
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        if environment.get(name):
            return environment[name]
    raise _wrong(
        "SLURM_PROCID is set and SLURM_JOB_NODELIST is not", "start the workers with srun, or set MASTER_ADDR"
    )


def _beside(environment: Environment, world: int) -> int | None:
    """Workers of this machine, where Slurm says that there is no other machine."""
    nodes = environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES")
    return world if nodes == "1" else None


def _tasks(environment: Environment) -> str:
    return "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"


def _kubeflow(environment: Environment) -> Place | None:
    nodes = environment["PET_NNODES"]
    world = int(nodes) if nodes.isdecimal() else 0
    processes = environment.get("PET_NPROC_PER_NODE", "1")
    if world == 1:
        return None  # One pod: what it starts is its own affair.
    if processes != "1" or not world:
        raise _wrong(
            f"PET_NNODES={nodes} and PET_NPROC_PER_NODE={processes} are for torchrun, which did not start this process",
            "let the command be `torchrun --no-python nlpkernel run ...`, or start one process in each pod",
        )
    return Place(
        launcher="Kubeflow",
        rank=_number(environment, "PET_NODE_RANK"),
        world=world,
        local_world=1,
        host=_text(environment, "PET_MASTER_ADDR"),
        port=_port(environment, "PET_MASTER_PORT"),
    )


def first_host(nodes: str) -> str:
    """The first host of a list as Slurm writes it: "node[07-09,12],gpu-a" begins with node07. Raise UsageError (TDI020)
    where it is none."""
    first = re.match(r"(?:[^\[\],]|\[[^\[\]]*\])+", nodes)
    if first is None:
        raise _wrong(f"SLURM_JOB_NODELIST={nodes} names no host", "set MASTER_ADDR")
    return re.sub(r"\[([^\[\],-]*)[^\[\]]*\]", r"\1", first[0])


def _restarts(environment: Environment) -> int:
    return _number(environment, "SLURM_RESTART_COUNT") if "SLURM_RESTART_COUNT" in environment else 0


def _check(found: Place) -> None:
    if found.rank >= found.world:
        raise _wrong(
            f"this process is worker {found.rank} of {found.world} by the variables of {found.launcher}",
            f"numbers go from 0 to {found.world - 1}",
        )
    if found.local_world is not None and not found.local_rank < found.local_world <= found.world:
        raise _wrong(
            f"this process is worker {found.local_rank} of {found.local_world} on its machine, and of {found.world} in "
            f"all, by the variables of {found.launcher}",
            "LOCAL_RANK is less than LOCAL_WORLD_SIZE, which is at most WORLD_SIZE",
        )


def _text(environment: Environment, name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise _wrong(f"{name} is not set", "it says where the first worker is")
    return value


def _number(environment: Environment, name: str, least: int = 0) -> int:
    value = environment.get(name)
    if value is None:
        raise _wrong(f"{name} is not set", "it is a whole number")
    if not value.isdecimal() or int(value) < least:
        raise _wrong(f"{name}={value}", f"it is a whole number from {least} on")
    return int(value)


def _port(environment: Environment, name: str) -> int:
    port = _number(environment, name, 1)
    if port > 65535:
        raise _wrong(f"{name}={port}", "it is at most 65535")
    return port


def _be(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _wrong(message: str, hint: str) -> NlpkernelError:
    return fail(UsageError, "TDI020", message, owner=OWNER, hint=hint)
