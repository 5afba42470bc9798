"""Where a run can be killed: what it does, recorded once, and draws from it by a seed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

#: What a run does, and the functions that do it: each phase of a run, of a step and of a save. The `LAST` ones come
#: when the last step is over, those of `OPENING` before the first.
PHASES: dict[str, str] = {
    "taking the folder": r"nlpkernel.runs:(create|claim|point_latest)",
    "opening": r"nlpkernel.engine.opening:(activate|open_session)|nlpkernel_text.cache:Cache\.\w+",
    "cleaning up": r"nlpkernel_store.(store:VersionStore._clean|places.local:Local.clean)",
    "taking up a version": r"nlpkernel_store.store:VersionStore.load|nlpkernel.engine.\w+:(restore|Session.load)",
    "writing the lock": r"nlpkernel.lock:Lock.write",
    "window": r"nlpkernel_text.data:TextData.(window|microbatch)",
    "forward": r"nlpkernel_transformer.module:Transformer.forward|nlpkernel_text.lm:LanguageModelling.loss",
    "backward": r"torch.autograd:backward",
    "gradients ready": r"nlpkernel_local_witness\w+:Witness.gradients_ready",
    "update": r"nlpkernel.engine.group:update|torch.optim.adam:Adam.step",
    "update applied": r"nlpkernel_local_witness\w+:Witness.update_applied",
    "publishing": r"nlpkernel.bus:Bus.publish",
    "logging": r"nlpkernel.engine.session:Session.log|nlpkernel.engine.readings:Readings.read",
    "evaluation": r"nlpkernel.engine.(evaluation:evaluate|session:Session.evaluate)",
    "deciding": r"nlpkernel.engine.session:Session.decide",
    "snapshot": r"nlpkernel.engine.capture:capture|nlpkernel_store.(capture:capture|buffers:Buffers.take)",
    "hashing": r"nlpkernel_store.hashing:digests",
    "writing a pack": r"nlpkernel_store.commit:Committer._create|nlpkernel_store.places.local:Local.(create|_write)",
    "commit": r"nlpkernel_store.commit:Committer._(manifest|commit)|nlpkernel_store.catalog:Catalog.commit",
    "rotation": r"nlpkernel_store.commit:Committer._rotate|nlpkernel_store.catalog:Catalog.(remove|sweep)",
    "settling": r"nlpkernel.engine.session:Session.settle|nlpkernel_store.writer:Writer.settle",
    "finishing": r"nlpkernel.engine.session:Session.finish",
    "report": r"nlpkernel.report:Report.write|nlpkernel.engine.api:Loop._end",
    "closing": r"nlpkernel_store.store:VersionStore.close|nlpkernel_local_witness\w+:Witness.close",
}
#: Kinds of kills, and how many of a hundred each gets.
KINDS = {"phase": 56, "disk": 18, "torn": 8, "anywhere": 10, "moment": 8}
#: A kill comes at most so many steps after the process began, so that a run survives several.
_NEAR = 7


@attrs.frozen(kw_only=True)
class Kill:
    """One kill: of which kind, where, the trap for it (none for one that comes from outside, after `seconds`)."""

    kind: str
    where: str
    trap: dict[str, Any] | None = None
    seconds: float = 0.0


@attrs.frozen(kw_only=True)
class Record:
    """What a process did, by step (0: before the first): calls of functions, changes of the disk, files opened for
    writing; and how long it took in seconds."""

    calls: Mapping[str, Mapping[int, int]]
    changes: Mapping[int, int]
    opened: Mapping[int, int]
    seconds: float

    @classmethod
    def read(cls, path: Path, seconds: float) -> Record:
        """What the trap `record` wrote."""
        calls: dict[str, dict[int, int]] = {}
        changes: dict[int, int] = {}
        opened: dict[int, int] = {}
        told, disk = json.loads(path.read_text())
        for label, step, number in told:
            calls.setdefault(label, {})[step] = number
        for event, step, number in disk:
            changes[step] = changes.get(step, 0) + number
            if event == "open":
                opened[step] = number
        return cls(calls=calls, changes=changes, opened=opened, seconds=seconds)

    def of(self, phase: str) -> list[str]:
        """The functions of a phase that were called."""
        return [label for label in self.calls if re.fullmatch(PHASES[phase], label)]


def wishes(seed: int, number: int) -> list[tuple[str, str]]:
    """Kinds of `number` kills, phases among them, in the order in which they are dealt out: all phases alike."""
    draw = random.Random(f"faults {seed}")
    dealt: list[tuple[str, str]] = []
    phases: list[str] = []
    for kind, share in KINDS.items():
        for _ in range(round(number * share / 100)):
            if kind == "phase" and not phases:
                phases = draw.sample(list(PHASES), len(PHASES))
            dealt.append((kind, phases.pop() if kind == "phase" else kind))
    dealt += [("anywhere", "anywhere")] * (number - len(dealt))
    draw.shuffle(dealt)
    return dealt[:number]


def place(kind: str, phase: str, record: Record, start: int, draw: random.Random) -> Kill | None:
    """A kill of a process that begins after step `start`; None where what is wished for does not come any more.

    record: of a process that began as this one does, run or resumed.
    """
    if kind == "moment":
        return Kill(kind=kind, where=phase, seconds=draw.random() * record.seconds)
    if kind in ("disk", "torn"):
        step, number = _drawn(record.changes if kind == "disk" else record.opened, start, draw)
        if not number:
            return None
        table: dict[str, Any] = {"what": kind, "step": step, "turn": draw.randint(1, number)}
        if kind == "torn":
            table["bytes"] = int(10 ** draw.uniform(0, 5.3))
        return Kill(kind=kind, where=f"change {table['turn']} of step {step}", trap=table)
    labels = sorted(record.of(phase) if kind == "phase" else record.calls)
    draw.shuffle(labels)
    for label in labels:
        step, number = _drawn(record.calls[label], start, draw)
        if number:
            event = draw.choice(["call", "return"])
            turn = draw.randint(1, number)
            table = {"what": "call", "function": label, "event": event, "step": step, "turn": turn}
            return Kill(kind=kind, where=phase if kind == "phase" else label, trap=table)
    return None


def _drawn(by_step: Mapping[int, int], start: int, draw: random.Random) -> tuple[int, int]:
    """One of the steps after `start` in which something happens, a near one, and how often it does; 0 times: none."""
    # A run that has no version yet cannot be resumed, which is seen often enough.
    start = start or draw.choice((0, 3, 3, 3, 3))
    near = [step for step in sorted(by_step) if step == 0 or start < step]
    near = [step for step in near if step <= start + _NEAR] or near[:1]
    step = draw.choice(near) if near else 0
    return step, by_step.get(step, 0)


def missing(records: Sequence[Record]) -> list[str]:
    """Phases of which no function was seen."""
    return [phase for phase in PHASES if not any(record.of(phase) for record in records)]
