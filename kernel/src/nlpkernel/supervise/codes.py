"""Error codes of supervision."""

from __future__ import annotations

CODES = {
    "NK601": (
        "a process of the run ended before its time",
        """It was killed, or ended with an error of its own, which it has told above. The message says in which step. A
process that is killed by SIGKILL without anybody having done so was mostly ended by the system, for want of memory.
`run --restarts N` starts a run again from its newest version; logs/run.log in the run's folder has all restarts.""",
    ),
    "NK602": (
        "a process of the run is stuck",
        """It still beats, but its loop has not got on for longer than `train.stall` allows (six times that outside the
steps). The message says where its main thread is, and logs/rank-N.stack in the run's folder has all threads. Where a
step rightly takes that long, write a larger `train.stall`, or "never".""",
    ),
    "NK603": (
        "a process of the run is silent",
        """It runs, but has sent no beat: it is stopped (SIGSTOP, a debugger), the machine does not let it run, or a
library keeps the interpreter to itself.""",
    ),
    "NK604": (
        "processes cannot be supervised on this system",
        """Process groups, signals and inherited sockets are needed, which Windows does not have. A run of one process
without `--restarts` needs none of them.""",
    ),
    "NK605": (
        "the processes that a communicator wants do not fit together",
        """`launch` gives each worker a rank of its own, from 0 on without a gap, and each process a name of its
own; one without a rank and a command of its own needs the hook `serve`. Its author has to mend it.""",
    ),
    "NK606": (
        "there is no channel to a supervisor",
        """The environment says that this process was started by a supervisor (NLPKERNEL_CHANNEL), and the descriptor
that it names is none. The variable is meant for one process and not for those that it starts: unset it.""",
    ),
}
