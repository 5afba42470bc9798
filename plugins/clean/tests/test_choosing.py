from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_clean.components.language import Language
from nlpkernel_clean.components.length import Length
from nlpkernel_clean.components.patterns import Filter, Replace, Rule
from nlpkernel_clean.lengths import Lengths

from .conftest import Make, documents, left, one

SENTENCES = {
    "en": "The committee will discuss the proposal again when its members return from the conference next week.",
    "de": "Der Ausschuss wird den Vorschlag erneut besprechen, wenn seine Mitglieder von der Tagung zurückkehren.",
    "fr": "La commission examinera de nouveau la proposition lorsque ses membres reviendront de la conférence.",
    "es": "La comisión volverá a debatir la propuesta cuando sus miembros regresen de la conferencia.",
    "ja": "委員会は、来週メンバーが会議から戻ったときに、この提案について再び話し合う予定です。",
    "ru": "Комиссия вновь обсудит это предложение, когда её члены вернутся с конференции на следующей неделе.",
}


# -- language ----------------------------------------


def test_languages_of_the_list_stay(make: Make) -> None:
    outcome = make(Language, languages=("en", "ja")).apply(documents(list(SENTENCES.values())))
    assert dict(outcome.dropped) == {1: "language de", 2: "language fr", 3: "language es", 5: "language ru"}
    assert outcome.notes[0].startswith("language en, 0.")


def test_a_probability_below_the_threshold_is_uncertain(make: Make) -> None:
    texts = [SENTENCES["en"], "Han kom hjem i går med et brev til sin mor"]
    outcome = make(Language, languages=("en",), threshold=0.9).apply(documents(texts))
    assert list(outcome.dropped.items()) == [(1, "language uncertain: below 0.9")]


@pytest.mark.parametrize(("policy", "stay"), [("keep", True), ("drop", False)])
def test_texts_too_short_to_tell_follow_their_policy(make: Make, policy: str, stay: bool) -> None:
    stage = make(Language, languages=("en",), short=20, on_short=policy)
    # 19 letters of German, between what is none.
    texts = ["12345 Guten Tag und adieu mei 67890 !!!", "1" * 500]
    assert left(stage, texts) == (texts if stay else [])


def test_fewer_languages_that_can_occur_are_told_apart_better(make: Make) -> None:
    text = "Hallo daar, hoe gaat het?"
    free = make(Language, languages=("nl",), short=0).apply(documents([text])).notes[0]
    bound = make(Language, languages=("nl",), among=("nl", "fr"), short=0).apply(documents([text])).notes[0]
    assert bound.startswith("language nl")
    assert float(bound.split()[-1]) > float(free.split()[-1])


def test_an_unknown_language_is_named_with_those_that_are_known(make: Make) -> None:
    with pytest.raises(DataError, match=r"CLN003 .*'de-AT'; did you mean 'de'\?"):
        make(Language, languages=("de-AT",))


# -- length ----------------------------------------


def test_texts_outside_the_limits_are_dropped_with_the_limit(make: Make) -> None:
    outcome = make(Length, unit="words", least=2, most=3).apply(documents(["a", "a b", "a b c", "a b c d"]))
    assert outcome.dropped == {0: "fewer than 2 words", 3: "more than 3 words"}
    assert outcome.notes == {0: "1 words", 3: "4 words"}


@pytest.mark.parametrize(
    ("unit", "most", "text", "right"),
    [
        ("characters", 9, "one two three", "one two"),
        ("characters", 7, "one two three", "one two"),
        ("characters", 8, "one two three", "one two"),
        ("characters", 4, "incomprehensible", "inco"),
        ("characters", 4, "  incomprehensible", "  in"),
        ("words", 2, " one\n two three", " one\n two"),
        ("lines", 2, "one\n\nthree\nfour", "one\n"),
        ("lines", 2, "one\r\ntwo\u2028two\nthree", "one\r\ntwo\u2028two"),
    ],
)
def test_long_texts_are_cut_at_the_end_of_a_word(
    make: Make, unit: str, most: int, text: str, right: str
) -> None:
    cut, outcome = one(make(Length, unit=unit, most=most, long="truncate"), text)
    assert cut == right
    assert outcome.counts == {"texts truncated": 1}


def test_a_last_line_end_begins_no_line(make: Make) -> None:
    assert left(make(Length, unit="lines", most=2), ["a\nb\n", "a\nb", "a\nb\nc"]) == ["a\nb\n", "a\nb"]


@given(st.text(min_size=1), st.integers(1, 20), st.sampled_from(["characters", "words", "lines"]))
def test_a_cut_text_is_a_beginning_within_the_limit(text: str, most: int, unit: str) -> None:
    cut = one(Lengths(Length(unit=unit, most=most, long="truncate")), text)[0]  # type: ignore[arg-type]
    assert text.startswith(cut)
    measure = {
        "characters": len,
        "words": lambda each: len(each.split()),
        "lines": lambda each: each.count("\n") + 1,
    }
    if cut != text:
        assert measure[unit](cut) <= most
        assert cut or text[:most].isspace() or unit == "lines"


# -- replace and filter ----------------------------------------


def test_rules_replace_one_after_the_other_and_are_counted(make: Make) -> None:
    rules = (Rule(pattern=r"(\d+) EUR", text=r"€\1"), Rule(pattern="COLOUR", text="color", ignore_case=True))
    text, outcome = one(make(Replace, rules=rules), "5 EUR, 70 EUR, Colour")
    assert text == "€5, €70, color"
    assert outcome.counts == {"places replaced": 3}


@pytest.mark.parametrize("kind", ["replace", "filter"])
def test_a_pattern_that_never_ends_is_stopped_by_name(make: Make, kind: str) -> None:
    pattern = r"(a|a)*(a|a)*(a|a)*b[^c]"
    if kind == "replace":
        stage = make(Replace, rules=(Rule(pattern=pattern),), timeout=0.05)
    else:
        stage = make(Filter, pattern=pattern, timeout=0.05)
    begun = time.monotonic()
    with pytest.raises(
        DataError, match=r"CLN002 some/texts.jsonl:1: the pattern .* did not end within 0.05 s"
    ):
        one(stage, "a" * 5000 + "bc")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("settings", "stay"),
    [
        ({"pattern": "b+"}, ["abc", "b"]),
        ({"pattern": "B", "ignore_case": True, "action": "drop"}, ["xyz"]),
        ({"column": "kind", "values": ("good", "7")}, ["abc", "b"]),
        ({"column": "kind", "values": ("good",), "action": "drop"}, ["xyz", "b"]),
        ({"column": "kind"}, ["abc", "b"]),
        ({"column": "kind", "action": "drop"}, ["xyz"]),
        ({"column": "kind", "pattern": "^g"}, ["abc"]),
    ],
)
def test_documents_are_chosen(make: Make, settings: dict[str, object], stay: list[str]) -> None:
    texts = ["abc", "xyz", "b"]
    outcome = make(Filter, **settings).apply(documents(texts, columns={"kind": ["good", None, 7]}))
    assert [text for at, text in enumerate(texts) if at not in outcome.dropped] == stay
    assert all(outcome.dropped.values())


def test_a_missing_column_lists_those_found(make: Make) -> None:
    with pytest.raises(
        DataError, match=r"CLN001 some/texts.jsonl:1: there is no column 'lang'; columns are: kind, label"
    ):
        one(make(Filter, column="lang"), "x", label=1, kind=2)
