"""A supervisor in a process of its own, so that it can be killed. What it is to supervise comes as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nlpkernel.errors import NlpkernelError
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel.supervise.heartbeat import Limits
from nlpkernel.supervise.restarts import Restarts
from nlpkernel.supervise.supervisor import Supervisor

asked = json.loads(sys.argv[1])
folder = Path(asked["folder"])
worker = [sys.executable, str(Path(__file__).parent / "worker.py")]
specs = [ProcessSpec(name=f"worker-{rank}", rank=rank) for rank in range(asked.get("world", 1))]
specs += [
    ProcessSpec(name=f"server-{number}", alone=asked.get("alone", True))
    for number in range(asked.get("servers", 0))
]
if "server" in asked:
    specs.append(ProcessSpec(name="server", command=(sys.executable, "-S", "-c", asked["server"])))
if "command" in asked:
    worker = asked["command"]


class Exploding(Supervisor):
    """Fails on a word of the test."""

    def _signalled(self):
        if (folder / "explode").exists():
            raise RuntimeError("exploded")
        return super()._signalled()


supervisor = (Exploding if asked.get("explode") else Supervisor)(
    specs,
    lambda number, saved: [*worker, json.dumps(asked)],
    log=folder / "run.log",
    restarts=Restarts(asked.get("restarts", 0), first=asked.get("first", 0.05)),
    limits=Limits(stall=asked.get("stall"), silence=asked.get("silence"), least=60.0),
    say=print,
)
try:
    code = supervisor.run()
except NlpkernelError as error:
    print(error)
    code = error.exit_code
print(f"missing {supervisor.missing}")
sys.exit(code)
