"""A script that starts torchrun on a machine. Light."""

from __future__ import annotations

from collections.abc import Sequence

from nlpkernel_torchdist.render.job import PORT, Job
from nlpkernel_torchdist.render.shell import command
from nlpkernel_torchdist.render.shell import script as made

#: Seconds that workers get to save when torchrun is ended, before it kills them.
SHUTDOWN = 120


def script(job: Job) -> str:
    """The script, to be run on each machine."""
    if job.nodes == 1:
        notes, meeting = ["# Run it on one machine."], [["--standalone"]]
        raw: tuple[str, ...] = ()
    else:
        endpoint = job.option("endpoint")
        where = endpoint or '"${ENDPOINT:?HOST:PORT of the first machine}"'
        notes = [f"# Run it on each of {job.nodes} machines, of which the first one is at HOST:PORT."]
        if endpoint is None:
            notes[0] += f" Port {PORT} is usual."
        raw = () if endpoint else (where,)
        meeting = [["--rdzv-backend", "c10d", "--rdzv-id", job.label], ["--rdzv-endpoint", where]]
    agent = command(*agent_lines(job, job.restarts, meeting), list(job.words), raw=raw).removeprefix(
        "torchrun"
    )
    return made(*job.head(), *notes, "set -euo pipefail", "", f"exec torchrun{agent}")


def agent_lines(job: Job, restarts: int, meeting: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The command of torchrun, without that of the workers."""
    return [
        ["torchrun", "--nnodes", str(job.nodes), "--nproc-per-node", str(job.per_node)],
        ["--max-restarts", str(restarts), "--shutdown-timeout", str(SHUTDOWN)],
        *meeting,
        ["--no-python"],
    ]
