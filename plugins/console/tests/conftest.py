from __future__ import annotations

import pytest

from nlpkernel import events
from nlpkernel.progress import Progress


def started(**values):
    return events.RunStarted(
        **{
            "time": 1000.0,
            "name": "first",
            "folder": "runs/first",
            "start": Progress(),
            "steps": 40,
            "steps_per_epoch": 10.0,
            "parameters": 1_234_567,
            "device": "cpu",
            "precision": "bf16",
            "world": 1,
            **values,
        }
    )


def logged(step=5, **values):
    return events.Logged(
        **{
            "time": 1000.0 + step,
            "progress": at(step),
            "steps": 5,
            "metrics": {"loss": 2.3451, "norm": 0.8123, "rate": 3e-4},
            "losses": (),
            "seconds": 5.0,
            "tokens": 61_500,
            "samples": 320,
            "skipped": 0,
            "memory": 1_234_567_890,
            **values,
        }
    )


def evaluated(step=10, **values):
    return events.Evaluated(
        **{
            "time": 1000.0 + step,
            "progress": at(step),
            "split": "validation",
            "metrics": {"loss": 2.4, "perplexity": None},
            "samples": 1014,
            "seconds": 3.24,
            "best": True,
            **values,
        }
    )


def working(done, total=12.0, **values):
    return events.Working(
        **{"time": 1.0, "what": "reading", "done": done, "total": total, "unit": "files", **values}
    )


def at(step):
    return Progress(step=step, updates=step, samples=step * 64, tokens=step * 12300, epoch=step / 10)


class Make:
    """Events with everything filled in."""

    at = staticmethod(at)
    started = staticmethod(started)
    logged = staticmethod(logged)
    evaluated = staticmethod(evaluated)
    working = staticmethod(working)


@pytest.fixture
def make():
    return Make
