"""Did you mean."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.plugins.suggest import closest, distance, hint

letters = st.text("abc-", max_size=7)


@pytest.mark.parametrize(
    ("one", "two", "apart"),
    [
        ("adamw", "adamw", 0),
        ("adamw", "admaw", 1),
        ("adamw", "adam", 1),
        ("sgd", "adamw", 5),
        ("", "ab", 2),
        ("ca", "abc", 3),
    ],
)
def test_the_distance_counts_edits_and_swaps(one: str, two: str, apart: int) -> None:
    assert distance(one, two) == distance(two, one) == apart


def by_definition(one: str, two: str) -> int:
    """Optimal string alignment, straight from its recurrence."""
    if not one or not two:
        return len(one) + len(two)
    options = [
        by_definition(one[:-1], two) + 1,
        by_definition(one, two[:-1]) + 1,
        by_definition(one[:-1], two[:-1]) + (one[-1] != two[-1]),
    ]
    if len(one) > 1 and len(two) > 1 and one[-1] == two[-2] and one[-2] == two[-1]:
        options.append(by_definition(one[:-2], two[:-2]) + 1)
    return min(options)


@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_the_distance_is_the_recurrence(one: str, two: str) -> None:
    assert distance(one, two) == by_definition(one, two)


@given(letters, st.lists(letters, max_size=5))
def test_nothing_nearer_than_the_closest_is_among_the_candidates(word: str, candidates: list[str]) -> None:
    best = closest(word, candidates)
    if best is not None:
        assert best in candidates
        assert distance(word, best) <= max(1, max(len(word), len(best)) // 3)
    assert closest(word, candidates[::-1]) == best
    if word in candidates:
        assert distance(word, best or "") == 0


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("admaw", "adamw"),
        ("adam", "adamw"),
        ("Early_Stopping", "early-stopping"),
        ("erly-stoping", "early-stopping"),
        ("learnig_rate", "learning-rate"),
        ("muon", None),
        ("a", None),
        ("", None),
    ],
)
def test_the_closest_is_near_or_none(word: str, near: str | None) -> None:
    assert closest(word, ["adamw", "sgd", "b", "early-stopping", "learning-rate"]) == near


def test_the_hint_is_the_closest_or_the_list() -> None:
    assert hint("admaw", ["sgd", "adamw"]) == "did you mean 'adamw'?"
    assert hint("muon", ["sgd", "adamw", "sgd"]) == "there are: adamw, sgd"
    assert hint("muon", []) is None
    many = [f"name{number:02}" for number in range(14)]
    assert hint("", many) == f"there are: {', '.join(many[:12])} and 2 more"
    assert hint("", many[:12]) == f"there are: {', '.join(many[:12])}"


def test_difflib_is_not_imported() -> None:
    code = "import sys, nlpkernel.plugins.suggest; sys.exit('difflib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
