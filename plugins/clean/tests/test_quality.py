from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel_clean.components.quality import RULES, Quality
from nlpkernel_clean.repetition import in_repeats

from .conftest import Make, documents, one

PROSE = (
    "When the ferry had left the harbour, the old keeper climbed the stairs of the lighthouse with a lamp in his hand, "
    "and looked out over the water to the islands. He had done so every evening for thirty years, and he would have "
    "been surprised to hear that anybody found it strange. Ships came and went; storms passed; the light stayed."
)


def test_prose_passes_all_rules_of_the_paper(make: Make) -> None:
    assert not one(make(Quality), PROSE)[1].dropped


BROKEN = {
    "words": ("too short", "words below 50", "words: 2"),
    "word-length": ("a b c d e f g h i j " * 6, "mean word length below 3", "mean word length: 1"),
    "symbols": (PROSE + " #" * 12, "# for each word above 0.1", None),
    "bullets": (
        "\n".join(f"- {word}s and the" for word in PROSE.split()),
        "share of lines with a bullet above 0.9",
        None,
    ),
    "ellipses": (
        "He went on…\n" + PROSE,
        "share of lines that end with an ellipsis above 0.3",
        None,
    ),
    "alphabetic": (PROSE + " 12345" * 40, "share of words with a letter below 0.8", None),
    "stop-words": (" ".join(f"palabra{at}" for at in range(60)), "stop words below 2", "stop words: 0"),
    "lines": ((PROSE + "\n") * 4, "share of repeated lines above 0.3", "share of repeated lines: 0.75"),
    "repetition": (
        PROSE + " the very good thing" * 20,
        "share of the most frequent run of 2 words above 0.2",
        None,
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_the_reason_and_can_be_switched_off(make: Make, rule: str) -> None:
    text, reason, found = BROKEN[rule]
    # Rules that are asked before are off: what breaks one often breaks others.
    before = RULES[: RULES.index(rule)]
    settings = {"most_ellipses": 0.3} if rule != "ellipses" else {"most_symbols": None}
    outcome = one(make(Quality, off=before, **settings), text)[1]
    assert outcome.dropped == {0: reason}
    assert found is None or outcome.notes == {0: found}
    others = tuple(name for name in RULES if name != rule)
    assert one(make(Quality, off=others), text)[1].dropped == {0: reason}
    assert not one(make(Quality, off=RULES), text)[1].dropped


def test_characters_are_a_rule_of_their_own(make: Make) -> None:
    stage = make(Quality, preset="none", least_characters=3, most_characters=5)
    outcome = stage.apply(documents(["ab", "abc", "abcde", "abcdef"]))
    assert outcome.dropped == {0: "characters below 3", 3: "characters above 5"}


def test_the_scores_of_a_text_that_stays_are_noted(make: Make) -> None:
    outcome = make(Quality, preset="none", least_words=1, least_alphabetic=0.5).apply(
        documents(["one two 3", "4"])
    )
    assert outcome.notes == {
        0: "words: 3; share of words with a letter: 0.6667",
        1: "share of words with a letter: 0",
    }


def test_without_a_preset_nothing_is_asked(make: Make) -> None:
    assert not one(make(Quality, preset="none"), "#")[1].dropped


def test_stop_words_are_found_in_capitals_and_beside_punctuation(make: Make) -> None:
    stage = make(Quality, preset="none", least_stop_words=2)
    assert not one(stage, "The end of. ")[1].dropped
    assert one(stage, "The theatre")[1].dropped


def plainly(words: list[str], size: int) -> tuple[float, float]:
    """The shares as they are defined."""
    runs = [tuple(words[at : at + size]) for at in range(len(words) - size + 1)]
    total = sum(map(len, words))
    most = max(map(runs.count, runs), default=0)
    if most < 2:
        return 0.0, 0.0
    top = max(sum(map(len, run)) for run in runs if runs.count(run) == most) * most / total
    inside = {at + step for at, run in enumerate(runs) if runs.count(run) > 1 for step in range(size)}
    return top, sum(len(words[at]) for at in inside) / total


@given(st.lists(st.sampled_from(["a", "bb", "ccc"]), max_size=40))
def test_repetition_is_what_its_definition_says(words: list[str]) -> None:
    made = {size: (top, repeats) for size, top, repeats in in_repeats(words, 4, 10)}
    for size in range(2, 11):
        top, repeats = plainly(words, size)
        mine = made.get(size, (0.0, 0.0))
        if size <= 4:
            assert mine[0] == pytest.approx(top)
        else:
            assert mine[1] == pytest.approx(repeats)
