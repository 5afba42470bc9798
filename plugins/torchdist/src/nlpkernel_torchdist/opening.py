"""Opening the group: meet the other workers, and set up torch's process group among them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from nlpkernel.engine.group import SingleGroup, pick_device
from nlpkernel.errors import UsageError, fail
from nlpkernel_torchdist import meeting
from nlpkernel_torchdist.component import OWNER
from nlpkernel_torchdist.group import TorchGroup

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.communicator import Group
    from nlpkernel_torchdist.component import TorchDist

#: The interface of this machine alone.
LOOPBACK = "127.0.0.1"


def open_group(settings: TorchDist, run: Run) -> Group:
    """The group of this run. Raise UsageError where this process alone is to run a plan of several."""
    if run.world == 1:
        if settings.workers > 1 and not run.rehearsal:
            raise fail(
                UsageError,
                "TDI003",
                f"the plan wants {settings.workers} workers, and this is one process",
                owner=OWNER,
                hint="`nlpkernel run` starts them; from Python, set communicator.workers to 1",
            )
        return SingleGroup(pick_device(settings.device, run))
    layout = settings.layout(run.world)
    device = pick_device(settings.device, run, run.rank % max(1, _devices()))
    store = _meet(settings, run)
    dist.init_process_group(
        backend=_backend(settings, device),
        store=store,
        rank=run.rank,
        world_size=run.world,
        timeout=timedelta(seconds=settings.timeout),
    )
    shape = torch.arange(run.world).view(layout.pipe, layout.data, layout.tensor)
    mesh = DeviceMesh(device.type, shape, mesh_dim_names=("pipe", "data", "tensor"))
    run.notice("communicator torchdist", f"{run.world} workers: {layout}, {dist.get_backend()}")
    return TorchGroup(settings, run, layout, mesh, store, device)


def _meet(settings: TorchDist, run: Run) -> dist.Store:
    """A store of this start of the run: a prefix of its own keeps what a dead start left apart, which torch's own
    rendezvous reads (it gives every restart the same port and no prefix)."""
    if run.rank == 0:
        store, port = meeting.keep(LOOPBACK, settings.timeout)
        meeting.publish(run.folder, run.launch, LOOPBACK, port)
    else:
        store = meeting.find(run.folder, run.launch, settings.timeout)
    return dist.PrefixStore(f"nlpkernel/{run.name}/{run.launch}", store)


def _backend(settings: TorchDist, device: torch.device) -> str:
    if settings.backend == "gloo" or (settings.backend == "auto" and device.type != "cuda"):
        return "gloo"
    # What is plain data travels on the host.
    return "cpu:gloo,cuda:nccl"


def _devices() -> int:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return 0 if accelerator is None else torch.accelerator.device_count()
