"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

#: Whose errors are.
OWNER = "command ray (nlpkernel-plugin-ray)"

CODES: dict[str, tuple[str, str]] = {
    "RAY001": (
        "Ray is not installed, or cannot be imported",
        "The command `nlpkernel ray` needs Ray on the machine where it is called and on all machines of the cluster,\n"
        "in the same release: `pip install ray`.",
    ),
    "RAY002": (
        "there is no Ray cluster to connect to",
        "`--address auto` finds a cluster that runs on this machine (`ray start`), or the one that RAY_ADDRESS\n"
        "names; HOST:PORT names a cluster that this machine belongs to; ray://HOST:10001 one that it does not belong\n"
        "to. `--local` starts one on this machine, for as long as the run takes.",
    ),
    "RAY003": (
        "the plan does not run on several workers of another launcher",
        "Each worker is a process that joins the others by the variables in its environment, which the plan's\n"
        'communicator has to do. torchdist does: write `use = "torchdist"` in [communicator].',
    ),
    "RAY004": (
        "there is nothing to restart from",
        "A restart continues from the newest version of the run, so the plan needs the section [checkpoint].",
    ),
    "RAY005": (
        "the cluster has no room for the workers",
        "Each worker reserves `--cpus` cores and `--gpus` GPUs on one machine. The message says what the cluster has\n"
        "and how long was waited. Take fewer workers, let `--workers MIN:MAX` take what is there, or wait longer for\n"
        "machines that are still starting (`--wait`).",
    ),
    "RAY006": (
        "the machines do not share the run's folder",
        "All workers write one run: events, versions, logs. The folder of runs therefore has to be on storage that\n"
        "all machines mount at the same path. Before the run begins, the first worker writes a file there, which\n"
        "every other one looks for. Name such a folder with `--runs`.",
    ),
    "RAY007": (
        "a file of the plan is another one on a machine",
        "The plan and what it extends travel: they are written on each machine where they are not. Where a file of\n"
        "that path is there and has other content, it is not overwritten. Copy the plan there, or call it something\n"
        "else.",
    ),
    "RAY008": (
        "a worker cannot be started on its machine",
        "The message says why. Install nlpkernel, nlpkernel-plugin-ray and the plugins of the plan, in the same\n"
        "releases, into the environment that the Ray of each machine runs in.",
    ),
    "RAY010": (
        "a Ray cluster on another machine needs trusted_network",
        "Who can talk to a Ray cluster can run code on it, and what Ray sends is neither encrypted nor authenticated.\n"
        "Where nobody else can reach its network, write `trusted_network = true` in [communicator] (of torchdist).\n"
        "`auto`, `--local` and addresses of this machine do not need it; workers on several machines do.",
    ),
    "RAY009": (
        "a worker was lost",
        "A worker ended with an error, was killed, or its machine is gone, and there were no restarts left. What the\n"
        "workers wrote stands before it, each line with its worker. `--restarts N` starts them again from the newest\n"
        "version.",
    ),
}
