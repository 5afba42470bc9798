"""Workers that count what they send and hold, in a network of their own.

    python cost_crew.py FOLDER

FOLDER/cases.json: for each number of workers, cases with "plan", "run" (a folder) and "launch". What each worker found
is left in FOLDER/found-WORKERS-RANK.json, case by case; and once all are done, in FOLDER/apart.json, whether the
network was their own. Imports are paid for once: workers are forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import multiprocessing
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

_NEWNET, _NEWUSER = 0x40000000, 0x10000000
_SETFLAGS, _UP, _RUNNING = 0x8914, 0x1, 0x40
#: The step after which all that is made once has been made, and the last that is counted.
BEFORE, AFTER = 2, 4


def apart() -> bool:
    """Leave for a network of our own, in which nobody else sends; False where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNET) and libc.unshare(_NEWNET | _NEWUSER):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SETFLAGS, struct.pack("16sH14x", b"lo", _UP | _RUNNING))
    return True


def on_the_wire() -> int:
    """Bytes that went over the loopback interface."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.strip().partition(":")
        if name == "lo":
            return int(numbers.split()[0])
    return 0


def storages(tensors: Iterable[Any]) -> int:
    """Bytes of memory behind tensors, each counted once."""
    memory = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}
    return sum(memory.values())


def local(parameters: Iterable[Any]) -> int:
    """Bytes of what of these parameters is here now."""
    from torch.distributed.tensor import DTensor

    return sum((each._local_tensor if isinstance(each, DTensor) else each).nbytes for each in parameters)


@contextlib.contextmanager
def watched(work: Any, found: dict[str, int]) -> Iterator[None]:
    """Note the most of the parameters that are here while blocks compute, and gradients just before an update."""
    module = work.model

    def look(*anything: object) -> None:
        found["whole"] = max(found.get("whole", 0), local(set(module.parameters())))

    def before_update(*anything: object) -> None:
        gradients = [tensor.grad for _, tensor in work.named if tensor.grad is not None]
        found["gradients"] = sum(each.nbytes for each in gradients)
        found["gradient_memory"] = storages(gradients)

    blocks = list(module.blocks)
    handles = [block.register_forward_pre_hook(look) for block in blocks]
    handles += [block.register_full_backward_pre_hook(look) for block in blocks]
    handles.append(work.optimizer.register_step_pre_hook(before_update))
    yield
    for handle in handles:
        handle.remove()


def run(rank: int, world: int, case: dict[str, str]) -> dict[str, int]:
    """A few steps of a plan, and what they sent and held."""
    import torch.distributed as dist

    from nlpkernel.engine.api import Loop
    from nlpkernel.plan import Plan
    from nlpkernel.supervise.post import Post

    post = Post()
    post.rank, post.world, post.launch, post.supervised = rank, world, case["launch"], True
    loop = Loop(Plan.load(case["plan"]), Path(case["run"]), quiet=True, post=post)
    steps = loop.steps()
    found: dict[str, int] = {}

    def counted() -> int:
        dist.barrier()
        seen = on_the_wire()
        dist.barrier()
        return seen

    for _ in range(BEFORE):
        next(steps)
    session = loop.session
    assert session is not None
    start = counted()
    for _ in range(AFTER - BEFORE):
        next(steps)
    found["sent"] = counted() - start
    with watched(session.work, found):
        next(steps)
    trained = [each.tensor for each in session.held if each.tensor.requires_grad]
    found["parameters"] = sum(each.nbytes for each in trained)
    found["parameter_memory"] = storages(trained)
    states = [
        value
        for state in session.work.optimizer.state.values()
        for name, value in state.items()
        if name != "step"
    ]
    found["optimizer"] = sum(each.nbytes for each in states)
    found["optimizer_memory"] = storages(states)
    found["tensors"] = len(trained)
    steps.close()
    return found


def work(rank: int, world: int, cases: dict[str, dict[str, str]], folder: Path) -> None:
    """All cases of one worker."""
    import torch

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    torch.set_num_threads(1)
    found = {name: run(rank, world, case) for name, case in cases.items()}
    (folder / f"found-{world}-{rank}.json").write_text(json.dumps(found))


def main() -> int:
    """Run all cases with as many workers as each wants."""
    folder = Path(sys.argv[1])
    measured = apart()
    import nlpkernel.engine.api  # noqa: F401  # Heavy, and shared by all workers.
    import nlpkernel_torchdist.group  # noqa: F401

    context = multiprocessing.get_context("fork")
    for world, cases in json.loads((folder / "cases.json").read_text()).items():
        crew = [
            context.Process(target=work, args=(rank, int(world), cases, folder), daemon=True)
            for rank in range(int(world))
        ]
        for each in crew:
            each.start()
        while crew:
            connection.wait([each.sentinel for each in crew])
            if any(each.exitcode for each in crew):
                return 1  # The others wait for it, and end with this process.
            crew = [each for each in crew if each.exitcode is None]
    (folder / "apart.json").write_text(json.dumps(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
