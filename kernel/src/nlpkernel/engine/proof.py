"""The proof that a plan resumes bit for bit: it runs unbroken, and killed and resumed, and both are compared."""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs

from nlpkernel import runs
from nlpkernel.engine.equality import difference, uncounted
from nlpkernel.engine.opening import activate, reading
from nlpkernel.errors import CheckpointError, TrainingError, UsageError, fail
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel.plan import Plan
from nlpkernel.state import Addends, Leaf, Snapshot, Spread
from nlpkernel.supervise.launch import wanted
from nlpkernel.supervise.post import WORLD

#: Steps between two saves, as a share of all.
_SAVES = 5
#: Seconds in which servers close once their workers are done.
_CLOSING = 60.0


@attrs.frozen(kw_only=True)
class Part:
    """One process of the broken run: the step that it began after, the last one that it told, how it ended."""

    began: int
    told: int
    killed: bool


@attrs.frozen(kw_only=True)
class Compared:
    """One row of the proof: `number` values of a kind, and what differs, worst first."""

    what: str
    number: int
    differences: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Proof:
    """What was run and what was compared."""

    steps: int
    saves: tuple[int, ...]
    parts: tuple[Part, ...]
    rows: tuple[Compared, ...]

    @property
    def holds(self) -> bool:
        """Whether everything was equal, bit for bit."""
        return not any(row.differences for row in self.rows)


def prove(plan: Plan, folder: Path, *, steps: int, kills: int, seed: int) -> Proof:
    """Run a plan in `folder`, once unbroken and once killed `kills` times (SIGKILL) at moments drawn from `seed`.

    The unbroken run saves at its end alone, so that saving is proved to change nothing as well. Servers are started,
    killed and started again with the workers. Raise UsageError where the plan keeps no versions, or is one that cannot
    be proved here, TrainingError where a run fails by itself.
    """
    if "checkpoint" not in plan.filled.value:
        raise fail(UsageError, "NK304", "the plan has no [checkpoint], so there is nothing to resume from")
    file = folder / "plan.toml"
    file.write_text(plan.text(), encoding="utf-8")
    specs = wanted(plan, folder) or (ProcessSpec(name="worker-0", rank=0),)
    _check(plan, specs)
    if plan.train.steps is not None:
        steps = min(steps, plan.train.steps)
    saves = tuple(range(0, steps, max(1, steps // _SAVES)))[1:]
    trial = _Trials(file, folder, steps, seed, specs)
    whole = trial.run("unbroken", (), None, resume=False)
    parts: list[Part] = []
    numbers: list[Mapping[int, Any]] = []
    while not parts or parts[-1].killed:
        begins = parts[-1].told if parts else 0
        kill = trial.moment(begins, kills - len(parts)) if len(parts) < kills else None
        resume = bool(parts) and trial.kept("broken")
        part = trial.run("broken", saves, kill, resume=resume)
        parts.append(Part(began=part.began, told=max(part.numbers, default=part.began), killed=part.killed))
        numbers.append(part.numbers)
    rows = [_steps(whole.numbers, numbers), *_state(trial.version("unbroken"), trial.version("broken"))]
    return Proof(steps=steps, saves=saves, parts=tuple(parts), rows=tuple(rows))


def _check(plan: Plan, specs: Sequence[ProcessSpec]) -> None:
    """Raise UsageError (NK314) where no two runs of a plan are alike, or not all of it can be started here."""
    reason = getattr(plan.compose().slot("communicator").component, "unlike", None)
    if reason:
        raise fail(UsageError, "NK314", f"two unbroken runs of the plan differ already: {reason}")
    own = [spec.name for spec in specs if spec.command is not None]
    if own:
        raise fail(UsageError, "NK314", f"{', '.join(own)} of the plan is no process of nlpkernel")
    here = sum(spec.rank is not None for spec in specs)
    if any(int(spec.environment.get(WORLD, here)) != here for spec in specs):
        raise fail(
            UsageError,
            "NK314",
            "some workers of the plan join from other machines",
            hint="prove it with all workers on this one: leave out `local` and `listen` of [communicator]",
        )


@attrs.frozen
class _Told:
    began: int
    numbers: Mapping[int, Any]
    killed: bool


class _Trials:
    """Starts the arms, kills them, and opens what they saved."""

    def __init__(self, plan: Path, folder: Path, steps: int, seed: int, specs: Sequence[ProcessSpec]) -> None:
        # The first worker first: it tells.
        self.specs = sorted(specs, key=lambda spec: (spec.rank is None, spec.rank))
        self.plan, self.folder, self.steps = plan, folder, steps
        self.workers = sum(spec.rank is not None for spec in specs)
        self.draws = random.Random(seed)

    def moment(self, begins: int, left: int) -> tuple[int, float]:
        """After which step to kill, beyond those that were told before, and how many steps' time after that."""
        span = max(1, (self.steps - 1 - begins) // left)
        return min(self.steps - 1, begins + self.draws.randint(1, span)), self.draws.random()

    def run(self, name: str, saves: Sequence[int], kill: tuple[int, float] | None, *, resume: bool) -> _Told:
        asked = {
            "plan": str(self.plan),
            "folder": str(self.folder / name),
            "steps": self.steps,
            "saves": list(saves),
            "resume": resume,
            "world": self.workers,
            "launch": secrets.token_hex(8),
        }
        if not resume:
            self._clear(name)
        log = self.folder / f"{name}.log"
        began, numbers, killed = 0, {}, False
        last = time.monotonic()
        with log.open("wb") as errors, _started(asked, self.specs, errors) as processes:
            first, servers = processes[0], processes[self.workers :]
            for server in servers:
                threading.Thread(target=_watch, args=(server, processes), daemon=True).start()
            assert first.stdout is not None
            for line in first.stdout:
                told = json.loads(line)
                began = told.get("begins", began)
                if "step" not in told:
                    last = time.monotonic()
                    continue
                numbers[told["step"]] = told["numbers"]
                now = time.monotonic()
                if kill is not None and told["step"] >= kill[0]:
                    time.sleep((now - last) * kill[1])
                    for process in processes:
                        process.kill()
                    killed = True
                    # What it had told before it died belongs to it.
                    kill = None
                last = now
            code = max(abs(process.wait()) for process in processes[: self.workers])
            for server in servers:
                server.terminate()
            code = max([code, *(abs(server.wait(_CLOSING)) for server in servers)])
        if code and not killed:
            tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-15:]
            message = f"the {name} run failed by itself with exit code {code}:"
            raise fail(TrainingError, "NK509", "\n  ".join([message, *tail]))
        # It may have ended before the signal reached it.
        return _Told(began, numbers, killed and code != 0)

    def _clear(self, name: str) -> None:
        import shutil

        folder = self.folder / name
        if folder.exists():
            shutil.rmtree(folder)
        if len(self.specs) > 1:
            # As a supervisor would: the first worker makes it only where it is alone.
            folder.mkdir()
            shutil.copy(self.plan, folder / runs.PLAN)

    def kept(self, name: str) -> bool:
        """Whether a run has a complete version."""
        with self._store(name) as store:
            return bool(store.list())

    def version(self, name: str) -> Snapshot:
        """The newest version of a run."""
        with self._store(name) as store:
            snapshot: Snapshot = store.load()
            return snapshot

    @contextmanager
    def _store(self, name: str) -> Iterator[Any]:
        run, hooks, composition = activate(Plan.load(self.plan), self.folder / name)
        run.rehearsal = True
        with reading(run, hooks, composition) as store:
            yield store


def _watch(server: subprocess.Popen[bytes], processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Workers whose server has failed are not left to wait for it."""
    if server.wait() > 0:
        for process in processes:
            process.kill()


@contextmanager
def _started(
    asked: Mapping[str, Any], specs: Sequence[ProcessSpec], errors: Any
) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """The processes of one start; the first one tells."""
    with ExitStack() as stack:
        processes = []
        for spec in specs:
            own = {"rank": spec.rank, "name": spec.name, "several": len(specs) > 1}
            command = [sys.executable, "-m", "nlpkernel.engine.trial", json.dumps({**asked, **own})]
            process = subprocess.Popen(
                command,
                # Its end tells it that this process is gone.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL if spec.rank != 0 else subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **spec.environment},
            )
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        yield processes


def _steps(whole: Mapping[int, Any], parts: Sequence[Mapping[int, Any]]) -> Compared:
    """Losses and norms of every step that any process took, against the unbroken run's."""
    seen = {step for part in parts for step in part}
    wrong = [
        f"step {step}: {name} is {_read(part[step][name])}, and {_read(whole[step][name])} in the unbroken run"
        for part in parts
        for step in sorted(part)
        for name in part[step]
        if part[step][name] != whole[step].get(name)
    ]
    wrong += [f"step {step} was never taken" for step in sorted(whole.keys() - seen)]
    return Compared(what="losses and norms of steps", number=sum(map(len, parts)), differences=tuple(wrong))


def _read(value: str | None) -> str:
    return "nothing" if value is None else f"{float.fromhex(value)!r}"


def _state(whole: Snapshot, broken: Snapshot) -> Iterator[Compared]:
    """The whole state after the last step, kind by kind."""
    left, right = _leaves(whole), _leaves(broken)
    kinds = list(dict.fromkeys(path.partition("/")[0] for path in [*left, *right]))
    for kind in kinds:
        paths = [path for path in [*left, *right] if path.partition("/")[0] == kind]
        paths = list(dict.fromkeys(paths))
        found = [(path, difference(left.get(path), right.get(path))) for path in paths]
        wrong = tuple(f"{path}: {what}" for path, what in found if what)
        yield Compared(what=f"state: {kind}", number=len(paths), differences=wrong)


def _leaves(snapshot: Snapshot) -> dict[str, Leaf]:
    return {path: _one(leaf) for path, leaf in snapshot.tree.items() if not uncounted(path)}


def _one(leaf: Leaf) -> Leaf:
    """A leaf whose value is one tensor, wherever its pieces were."""
    value = leaf.value
    if isinstance(value, Spread):
        return Leaf(value.whole(), leaf.kind)
    return Leaf(value.total(), leaf.kind) if isinstance(value, Addends) else leaf


def refuse(proof: Proof) -> None:
    """Raise CheckpointError (NK508) where the proof fails."""
    if not proof.holds:
        first = next(row for row in proof.rows if row.differences)
        raise fail(
            CheckpointError,
            "NK508",
            f"the plan does not resume bit for bit: {first.what}: {first.differences[0]}",
            hint="`nlpkernel explain NK508` lists the usual causes",
        )
