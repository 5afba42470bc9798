"""Opening the group: meet the other workers, and set up torch's process group among them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import PrefixStore, Store

from nlpkernel.engine.group import pick_device
from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel_torchdist import launchers, meeting, network
from nlpkernel_torchdist.binding import bind
from nlpkernel_torchdist.component import OWNER
from nlpkernel_torchdist.compress.one import One
from nlpkernel_torchdist.group import TorchGroup
from nlpkernel_torchdist.joined import post_of

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.communicator import Group
    from nlpkernel_torchdist.component import TorchDist
    from nlpkernel_torchdist.seat import JoinedPost


def open_group(settings: TorchDist, run: Run) -> Group:
    """The group of this run. Raise UsageError where this process alone is to run a plan of several."""
    place = launchers.place()
    if place is not None and place.world == run.world != settings.workers:
        run.notice(
            "communicator torchdist",
            f"{place.launcher} started {run.world} workers, and the plan says {settings.workers}: the number of "
            f"{place.launcher} counts",
        )
    if run.world == 1:
        if settings.workers > 1 and not run.rehearsal and (place is None or place.world > 1):
            raise _alone(settings, place)
        if settings.workers > 1 and run.rehearsal:
            run.notice(
                "communicator torchdist",
                f"one process rehearses for {settings.workers} workers: times and memory are not theirs",
                level="warning",
            )
        return One(pick_device(settings.device, run))
    layout = settings.layout(run.world)
    post = post_of(run.launch)
    local, beside = (run.rank, run.world) if post is None else (post.place.local_rank, post.place.local_world)
    number = local % max(1, _devices())
    device = pick_device(own_device(settings.device, local, beside, number), run, number)
    if device.type != "cpu":
        # NCCL and torch's own allocations go by the current device, which otherwise is the first one everywhere.
        torch.accelerator.set_device_index(device)
    bind(settings, run, network.LOOPBACK if post is None else post.address)
    store = _meet(settings, run, post)
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


def own_device(name: str, local: int, beside: int | None, number: int) -> str:
    """What a plan's device means for the worker with the number `local` of `beside` (None: not known) on its machine:
    an accelerator without a number is the one of this worker's `number`. Raise UsageError (TDI009) where several
    workers would take the same."""
    kind, _, index = name.partition(":")
    if kind in ("auto", "cpu", "meta"):
        return name
    if not index:
        return f"{name}:{number}"
    if (local + 1 if beside is None else beside) > 1:
        several = "several" if beside is None else str(beside)
        raise fail(
            UsageError,
            "TDI009",
            f"device = {name!r} gives {several} workers of this machine the same device",
            owner=OWNER,
            hint=f'write device = "{kind}": each worker takes the one of its number',
        )
    return name


def _alone(settings: TorchDist, place: launchers.Place | None) -> NlpkernelError:
    """A plan of several workers that one process is to run by itself."""
    if place is None:
        hint = "`nlpkernel run` starts them; from Python, set communicator.workers to 1"
        return fail(
            UsageError,
            "TDI003",
            f"the plan wants {settings.workers} workers, and this is one process",
            owner=OWNER,
            hint=hint,
        )
    return fail(
        UsageError,
        "TDI020",
        f"{place.launcher} started {place.world} workers, and this one was told to run alone",
        owner=OWNER,
        hint=f"leave out --restarts: {place.launcher} itself starts the run again",
    )


def _meet(settings: TorchDist, run: Run, post: JoinedPost | None) -> Store:
    """A store of this start of the run: a prefix of its own keeps what a dead start left apart, which torch's own
    rendezvous reads (it gives every restart the same port and no prefix)."""
    if post is not None:
        if run.rank == 0:
            store, port = meeting.keep(post.address, settings.timeout)
            post.meet("store", str(port))
        else:
            store = meeting.visit(post.address, int(post.meet("store")), settings.timeout)
    elif run.rank == 0:
        store, port = meeting.keep(network.LOOPBACK, settings.timeout)
        meeting.publish(run.folder, run.launch, network.LOOPBACK, port)
    else:
        store = meeting.find(run.folder, run.launch, settings.timeout)
    return PrefixStore(f"nlpkernel/{run.name}/{run.launch}", store)


def _backend(settings: TorchDist, device: torch.device) -> str:
    if settings.backend == "gloo" or (settings.backend == "auto" and device.type != "cuda"):
        return "gloo"
    # What is plain data travels on the host.
    return "cpu:gloo,cuda:nccl"


def _devices() -> int:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return 0 if accelerator is None else torch.accelerator.device_count()
