"""Micro-batches of a window, dealt out among workers."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from nlpkernel_torchdist.group import TorchGroup


def dealt(world: int, count: int, uneven: str) -> list[int]:
    found = []
    for rank in range(world):
        worker = SimpleNamespace(
            _data=SimpleNamespace(size=world, rank=rank), _settings=SimpleNamespace(uneven=uneven)
        )
        mine = list(TorchGroup.assign(worker, 3, count))  # type: ignore[arg-type]
        assert all(number % world == rank for number in mine)
        found += mine
    return found


@given(st.integers(1, 17), st.integers(0, 200))
def test_the_workers_have_every_micro_batch_once_and_nobody_has_one_twice(world: int, count: int) -> None:
    assert sorted(dealt(world, count, "pad")) == list(range(count))


@given(st.integers(1, 17), st.integers(0, 200))
def test_truncate_leaves_out_those_that_do_not_divide_and_no_others(world: int, count: int) -> None:
    assert sorted(dealt(world, count, "truncate")) == list(range(count // world * world))
