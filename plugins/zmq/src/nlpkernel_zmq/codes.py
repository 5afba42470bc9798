"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

#: Whose errors and notices are.
OWNER = "communicator zmq-ps (nlpkernel-plugin-zmq)"

CODES: dict[str, tuple[str, str]] = {
    "ZPS001": (
        "the servers of the run were not found",
        "A worker looks for the parameter servers when it starts, and waits for an answer of each later on. The\n"
        "message says which one gave none and for how long, or which workers and servers did not come to what they\n"
        "were waited for at. Look at logs/run.log and logs/server-N.log in the run's folder.",
    ),
    "ZPS002": (
        "workers do not agree",
        "Before the first round all workers compare the plan, the plugins and their sources, the versions of Python,\n"
        "torch and the kernel, the data, and the parameters of the model. The message names the first line that\n"
        "differs, and on which worker. Install the same releases everywhere, and start all workers with the same\n"
        "plan.",
    ),
    "ZPS003": (
        "a server came back, and what it lost is lost",
        "A server that is started again takes up its newest snapshot, and the workers send again what came after it.\n"
        "They keep as much as `replay` of [communicator] allows. Here more is missing: there was no snapshot, or a\n"
        "worker is gone that kept it, since which no snapshot could be written. So the run has to go on from a\n"
        "version: `nlpkernel resume`, or `--restarts N` for next time.",
    ),
    "ZPS004": (
        "this process was replaced",
        "Another process has come in under the same worker number, or this one was counted as lost because it was\n"
        "silent. What it computes since then counts nowhere, so it ends.",
    ),
    "ZPS005": (
        "a peer broke the protocol",
        "What came from the other side is not what the protocol (docs/protocol.md) allows there. The message says\n"
        "what. Different releases on two machines are the usual reason.",
    ),
    "ZPS006": (
        "a part of the plan needs what only the servers have",
        "With a parameter server the whole gradient exists on the servers alone. A component that looks at it in\n"
        "each step (`gradients_ready` at the stage `global`) cannot do so on a worker. Leave it out, or use the\n"
        "communicator torchdist.",
    ),
    "ZPS007": (
        "one process was told to run a plan of several",
        "`nlpkernel run` starts the workers and servers of a plan. From Python, a plan with `workers = 1` and\n"
        '`communicator.use = "single"` runs in the process itself.',
    ),
    "ZPS009": (
        "a roll-back where workers do not wait for each other",
        "With `mode` async or ssp each worker goes on by itself, so that no moment of the run can be taken back. Use\n"
        'a policy that stops the run or skips windows, or `mode = "sync"`.',
    ),
    "ZPS010": (
        "a process may not open enough files",
        "Each connection between workers and servers takes a file descriptor, and ZeroMQ ends a process that has\n"
        "none left. The system allows fewer than the workers and servers of the plan may need, so the process does\n"
        "not begin. Raise the limit (`ulimit -n`, `LimitNOFILE=` of systemd) or take fewer of them.",
    ),
    "ZPS014": (
        "parameters that cannot be read",
        "A reader asks the servers of a run that goes on for parameters after a number of steps. There are no such\n"
        "servers, they gave no answer in time, or that step is over already: read the newest, or a saved version.",
    ),
    "ZPS016": (
        "the compressor does not fit the pieces",
        "Gradients and parameters travel in pieces of `chunk` bytes of what lies on a server. A compressor that looks\n"
        "at whole matrices (powersgd) can only take pieces that have whole parameters, and none takes complex\n"
        "numbers. Raise `chunk` above the bytes of what lies on a server, or choose bf16, fp16, int8 or topk.",
    ),
    "ZPS011": (
        "the run ended where it was started",
        "A worker that had joined from another machine was told that the run goes on no longer: it was interrupted,\n"
        "or it failed. Its report and logs are in its folder, on the machine of `nlpkernel run`. Where it is started\n"
        "again, repeat the command that joined it.",
    ),
    "ZPS012": (
        "keys that are none, or not of this run",
        "Workers of other machines come in with keys that the servers make for one run and keep in .servers/keys of\n"
        "its folder, one file for each worker. The message says what is wrong with the file, or that the servers do\n"
        "not take its keys. Copy the file of the run that goes on now, readable by you alone (mode 600).",
    ),
    "ZPS013": (
        "servers cannot listen, or nobody does",
        "`listen` of [communicator] names the address, or the interface, where servers wait for workers of other\n"
        "machines. It is not one of this machine, or its port is taken by another process; or, for a worker that\n"
        "joins, nobody listens at the address of its command. The message says which.",
    ),
    "ZPS008": (
        "the optimizer on a server failed",
        "The message is the error of the optimizer of the plan, which runs on the servers. All workers end.",
    ),
}
