"""A script that runs a plan on a Ray cluster. Light."""

from __future__ import annotations

from nlpkernel_torchdist.render.job import Job
from nlpkernel_torchdist.render.shell import command
from nlpkernel_torchdist.render.shell import script as made


def script(job: Job) -> str:
    """The script, which runs the command of nlpkernel-plugin-ray on a machine of the cluster, or one that reaches it.
    That command continues a run by itself."""
    run = ["nlpkernel", "ray", *(word for word in job.words[2:] if word != "--continue")]
    where = ["--address", job.option("address") or "auto"]
    needs = ["--workers", str(job.workers), "--restarts", str(job.restarts)]
    each = ["--cpus", str(job.option("cpus")), "--gpus", str(job.option("gpus"))]
    return made(*job.head(), "set -euo pipefail", "", f"exec {command(run, where, needs, each)}")
