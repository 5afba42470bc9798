"""Which observer of a plan changes what is trained, or how fast: each is left out in turn, in processes of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.errors import NlpkernelError, TrainingError, fail
from nlpkernel.plan import Plan
from nlpkernel.plan.plan import written
from nlpkernel.plan.writer import write_toml

#: Points whose components watch, and so may change neither the numbers nor, by much, the speed. A policy may, where it
#: decides to end a run or to save; the report says so.
OBSERVERS = ("monitor", "policy")
#: Steps at the beginning that set things up, and are not measured.
_FIRST = 3


@attrs.frozen(kw_only=True)
class Arm:
    """What came of leaving out one observer; of the plan as it is, where `address` is empty.

    seconds: the median of a step, for each turn. changes: parts of the state ("model", "optimizer", "random") that are
    others than with it. error: why the plan does not run without it.
    """

    address: str
    owner: str
    seconds: tuple[float, ...] = ()
    changes: tuple[str, ...] = ()
    error: str = ""


@attrs.frozen(kw_only=True)
class Bisected:
    """All arms. `differs`: parts of the state in which two runs of the plan as it is differ already."""

    steps: int
    whole: Arm
    arms: tuple[Arm, ...]
    differs: tuple[str, ...]

    def cost(self, arm: Arm) -> tuple[float, float, float]:
        """Seconds that a step takes longer with an observer: median, least and most of the turns."""
        gaps = [with_it - without for with_it, without in zip(self.whole.seconds, arm.seconds, strict=True)]
        return statistics.median(gaps), min(gaps), max(gaps)

    def slows(self, arm: Arm) -> bool:
        """Whether a step takes longer in every turn, and by a hundredth."""
        if arm.error:
            return False
        median, least, _ = self.cost(arm)
        return least > 0 and median > 0.01 * statistics.median(self.whole.seconds)


def bisect(plan: Plan, *, steps: int, turns: int, say: Callable[[str], None]) -> Bisected:
    """Run the first `steps` steps of a plan as it is, and without each of its observers, `turns` times in turn. Raise
    TrainingError (NK408) where the plan itself does not run, or ends before it can be measured."""
    observers = [
        (placed.address, placed.found.owner)
        for placed in plan.compose().placed
        if placed.found.point in OBSERVERS and placed.address.endswith("]")
    ]
    plain = written(plan.filled)
    train = plain["train"]
    # It is the same in all arms, and takes long.
    plain["train"] = {**train, "evaluate": {**train.get("evaluate", {}), "start": False}}
    with tempfile.TemporaryDirectory(prefix="nlpkernel-bisect-") as name:
        folder = Path(name)
        whole: list[Mapping[str, Any]] = []
        found: dict[str, list[Mapping[str, Any]]] = {address: [] for address, _ in observers}
        errors: dict[str, str] = {}
        for turn in range(turns):
            say(
                f"turn {turn + 1} of {turns}: the plan as it is, and without each of {len(observers)} observers"
            )
            whole.append(_run(folder, plain, steps))
            for address, _ in observers:
                if address not in errors:
                    try:
                        found[address].append(_run(folder, _without(plain, address), steps))
                    except NlpkernelError as error:
                        errors[address] = error.problems[0].message
        # With one turn there is still a second run to tell whether two are alike.
        again = whole[1] if turns > 1 else _run(folder, plain, steps)
    arms = tuple(
        Arm(address=address, owner=owner, error=errors[address])
        if address in errors
        else Arm(
            address=address,
            owner=owner,
            seconds=tuple(map(_median, found[address])),
            changes=_changes(whole[0], found[address][0]),
        )
        for address, owner in observers
    )
    all_of_it = Arm(address="", owner="", seconds=tuple(map(_median, whole)))
    return Bisected(steps=whole[0]["steps"], whole=all_of_it, arms=arms, differs=_changes(whole[0], again))


def _run(folder: Path, plain: Mapping[str, Any], steps: int) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        file = Path(place) / "plan.toml"
        file.write_text(write_toml(plain, lambda path: None), encoding="utf-8")
        asked = {"plan": str(file), "folder": str(Path(place) / "run"), "steps": steps}
        done = subprocess.run(
            [sys.executable, "-m", "nlpkernel.engine.arm", json.dumps(asked)],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    if done.returncode:
        tail = "\n  ".join(done.stderr.strip().splitlines()[-5:])
        raise fail(TrainingError, "NK408", f"it does not run: exit code {done.returncode}:\n  {tail}")
    result: Mapping[str, Any] = json.loads(done.stdout)
    if len(result["seconds"]) <= _FIRST:
        message = f"it ends after {result['steps']} steps, which are too few to be measured"
        raise fail(TrainingError, "NK408", message)
    return result


def _without(plain: Any, address: str) -> Any:
    """Plain values of a plan without the element `address`, such as "monitor[1]" or "train.policy[0]"."""
    head, _, rest = address.partition("[")
    index = int(rest.rstrip("]"))
    *tables, key = head.split(".")
    copy = dict(plain)
    table = copy
    for each in tables:
        table[each] = dict(table[each])
        table = table[each]
    table[key] = [value for number, value in enumerate(table[key]) if number != index]
    if not table[key]:
        del table[key]
    return copy


def _median(result: Mapping[str, Any]) -> float:
    return float(statistics.median(result["seconds"][_FIRST:]))


def _changes(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    if one["steps"] != other["steps"]:
        return (f"the number of steps ({other['steps']})",)
    kinds: Sequence[str] = list(dict.fromkeys([*one["state"], *other["state"]]))
    return tuple(kind for kind in kinds if one["state"].get(kind) != other["state"].get(kind))
