"""Cost: what a component adds to a step, and how long its module takes to import. Reported, and never failed."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

from nlpkernel_sdk.conform.checks import NotApplicable, check
from nlpkernel_sdk.conform.running import base, run
from nlpkernel_sdk.conform.subject import Part, Subject

#: Steps that are measured; the median leaves out those that the machine disturbed.
_STEPS = 200


@check("cost.import", "every command that names a component imports it", whole=True)
def _import(subject: Subject) -> str:
    if "died" in subject.probed:
        raise NotApplicable("the process that imports it died: see static.import-alone")
    seconds = {name: facts["seconds"] for name, facts in subject.probed["modules"].items()}
    return ", ".join(f"{name} {1e3 * each:.1f} ms" for name, each in seconds.items())


@check("cost.step", "a step of a small model takes some hundreds of microseconds")
def _step(part: Part) -> str:
    base(part)
    with_it = _median(part, part.values(train=_train(part)))
    values = part.values(train=_train(part))
    if part.point not in ("monitor", "checkpoint", "communicator", "precision"):
        return f"a step takes {with_it:.0f} us"
    values.pop(part.point)
    without = _median(part, values)
    return f"a step takes {with_it:.0f} us, and {without:.0f} us without it"


def _train(part: Part) -> dict[str, Any]:
    return {"steps": _STEPS, "evaluate": {"every": _STEPS}, "log": {"every": 20}}


def _median(part: Part, values: dict[str, Any]) -> float:
    moments: list[float] = []
    told = run(part, values, look=lambda session: moments.append(time.perf_counter()))
    if told.error is not None or len(moments) < 3:
        raise NotApplicable("a run of some hundred steps fails, or ends early")
    gaps = [after - before for before, after in pairwise(moments)]
    return 1e6 * statistics.median(gaps)
