"""A batch script for Slurm. Light."""

from __future__ import annotations

from nlpkernel_torchdist.render.job import Job
from nlpkernel_torchdist.render.shell import command
from nlpkernel_torchdist.render.shell import script as made

#: The exit code of workers that SIGUSR1 ended: the time of the job is nearly up.
_TIME_IS_UP = 138


def script(job: Job) -> str:
    """The script, for sbatch: srun starts a task for each worker."""
    # Workers end all others where one fails, and save together before they end, which srun must not cut short. It
    # hands its tasks the cores of the job only where it is told to.
    cores = '--cpus-per-task="$SLURM_CPUS_PER_TASK"'
    srun = ["srun", "--kill-on-bad-exit=0", "--wait=120", cores]
    run = command(srun, list(job.words), indent=4, raw=(cores,))
    threads = 'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-' + str(job.option("cpus")) + '}"'
    loop = _LOOP.replace("RESTARTS", str(job.restarts)) if job.restarts else "workers"
    body = [threads, "workers() {", run, "}", "", loop]
    return made(*_directives(job), *job.head(), "set -uo pipefail", "", *body)


def _directives(job: Job) -> list[str]:
    gpus, memory = job.per_node * job.option("gpus"), job.memory(job.per_node)
    options = {
        "job-name": job.label,
        "nodes": job.nodes,
        "ntasks-per-node": job.per_node,
        "cpus-per-task": job.option("cpus"),
        "gpus-per-node": gpus or None,
        "mem": memory and memory.removesuffix("i"),
        "time": job.option("time"),
        "partition": job.option("partition"),
        "account": job.option("account"),
        "output": f"{job.label}-%j.log",
        "open-mode": "append",
        # To the workers, and not to this script, which waits for them.
        "signal": f"USR1@{job.option('lead')}",
    }
    lines = [f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None]
    return [*lines, "#SBATCH --requeue" if job.restarts else "#SBATCH --no-requeue"]


_LOOP = f"""\
left=RESTARTS
while :; do
    code=0
    workers || code=$?
    case $code in
    0 | 2 | 130 | 143) exit "$code" ;; # done; a mistake, which a restart does not mend; cancelled or pre-empted
    {_TIME_IS_UP}) # the time is nearly up, and the run is saved: it goes on in the next turn of the job
        scontrol requeue "$SLURM_JOB_ID"
        exit 0
        ;;
    esac
    [ "$left" -gt 0 ] || exit "$code"
    left=$((left - 1))
    echo "the workers ended with exit code $code and are started again, which $left more failures may follow" >&2
done"""
