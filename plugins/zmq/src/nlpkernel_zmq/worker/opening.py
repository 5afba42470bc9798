"""Opening the group of a worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nlpkernel.engine.group import SingleGroup, pick_device
from nlpkernel.errors import UsageError, fail
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.component import SERVED
from nlpkernel_zmq.descriptors import for_worker, reserve
from nlpkernel_zmq.security.folder import tell_how
from nlpkernel_zmq.worker.free import FreeGroup
from nlpkernel_zmq.worker.group import ZmqGroup
from nlpkernel_zmq.worker.link import Link
from nlpkernel_zmq.worker.way import Way

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.communicator import Group
    from nlpkernel_zmq.component import ZmqPs


def open_group(settings: ZmqPs, run: Run) -> Group:
    """The group of this run. Raise UsageError (ZPS007) where there are no servers."""
    if SERVED not in os.environ:
        if run.rehearsal:
            run.notice(
                "communicator zmq-ps",
                f"one process rehearses for {settings.workers} workers and {settings.servers} servers: times and "
                "memory are not theirs",
                level="warning",
            )
            return SingleGroup(pick_device(settings.device, run))
        raise fail(
            UsageError,
            "ZPS007",
            f"the plan wants workers: {settings.workers}, servers: {settings.servers}; this is one process",
            owner=OWNER,
            hint="`nlpkernel run` starts them",
        )
    reserve(for_worker(settings.servers), f"a worker with {settings.servers} servers")
    way = Way.given()
    tell_how(settings, run)
    # On another machine its number says nothing of the accelerators there.
    device = pick_device(settings.device, run, run.rank if way is None else 0)
    link = Link(run.launch, run.rank, settings.timeout, run.pulse, way)
    link.join()
    run.notice(
        "communicator zmq-ps",
        f"{run.world} workers, {len(link.servers)} server{'s' * (len(link.servers) > 1)}",
    )
    kind = ZmqGroup if settings.mode == "sync" else FreeGroup
    return kind(settings, run, link, device)
