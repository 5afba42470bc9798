"""Windows that are made ahead: the same ones, in any order of asking, and never two at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.context import Run
from nlpkernel.plan import Plan
from nlpkernel.plan.train import Train
from nlpkernel_sdk import tiny_values
from nlpkernel_text.windows_ahead import WindowsAhead


class Maker:
    """Makes windows slowly, and notes where, and how many at a time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.made: list[tuple[int, str]] = []
        self.most = self._now = 0

    def __call__(self, step: int) -> str:
        self._now += 1
        self.most = max(self.most, self._now)
        time.sleep(self.seconds)
        self.made.append((step, threading.current_thread().name))
        self._now -= 1
        if step == 13:
            raise ValueError("an unlucky window")
        return f"window {step}"


@pytest.fixture
def maker() -> Iterator[tuple[Maker, WindowsAhead[str]]]:
    made = Maker(0.002)
    ahead = WindowsAhead(made)
    yield made, ahead
    ahead.close()


def test_what_was_begun_is_made_beside_and_once(maker: tuple[Maker, WindowsAhead[str]]) -> None:
    made, ahead = maker
    for step in range(6):
        assert ahead.take(step) == f"window {step}"
        ahead.begin(step + 1)
    ahead.settle()
    assert [step for step, _ in made.made] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert made.made[0][1] == "MainThread"
    assert all(name.startswith("nlpkernel-text-ahead") for _, name in made.made[1:])


@given(st.lists(st.integers(0, 12), max_size=12))
def test_any_order_of_asking_gives_each_window_and_never_makes_two_at_a_time(steps: list[int]) -> None:
    made = Maker()
    ahead = WindowsAhead(made)
    for step in steps:
        assert ahead.take(step) == f"window {step}"
        ahead.begin(step + 1)
    ahead.close()
    assert made.most <= 1


def test_what_goes_wrong_with_a_window_is_raised_when_it_is_asked_for(
    maker: tuple[Maker, WindowsAhead[str]],
) -> None:
    _, ahead = maker
    ahead.begin(12)
    assert ahead.take(12) == "window 12"
    with pytest.raises(ValueError, match="unlucky"):
        ahead.take(13)


def test_a_sampler_is_asked_by_one_thread_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"line {n}\n" for n in range(20)), encoding="utf-8")
    plan = tiny_values(
        data={
            "use": "text",
            "paths": [str(tmp_path / "lines.txt")],
            "format": {"use": "text", "documents": "line"},
            "pack": "rows",
            "long": "truncate",
            "window": 16,
            "validation": 0,
            "augment": [{"use": "swap"}],
        },
        model={"use": "gpt", "preset": "nano"},
    )
    run = Run(name="x", folder=tmp_path, cache=tmp_path / "cache", train=Train(batch=4, steps=1, policy=()))
    data: Any = Plan.of(plan).compose().slot("data").component.open_data(run)
    asked = Maker(0.003)
    sampler = data.sampler

    class Watched:
        dropped, anywhere = sampler.dropped, sampler.anywhere

        def window(self, step: int) -> Any:
            asked(0)
            return sampler.window(step)

        def epoch(self, step: int) -> float:
            asked(0)
            return float(sampler.epoch(step))

    data.sampler = Watched()
    for step in range(8):
        data.window(step)
        data.microbatch(step, 0)
        data.epoch(step + 1)
    data.close()
    assert len(asked.made) > 16
    assert asked.most == 1
