from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel_clean.components.normalize import Normalize
from nlpkernel_clean.normalizing import Normalizer

from .conftest import Make, documents, one


@pytest.mark.parametrize(
    ("settings", "text", "right"),
    [
        ({}, "schÃ¶n und grÃ¼n", "schön und grün"),
        ({"repair": False}, "schÃ¶n", "schÃ¶n"),
        ({}, "cafe\u0301", "café"),
        ({"form": "none"}, "cafe\u0301", "cafe\u0301"),
        ({}, "ﬁve ①", "ﬁve ①"),
        ({"form": "nfkc"}, "ﬁve ①", "five 1"),
        ({}, "a\x00b\x07c\ufeffd\u200be\u202ef", "abcdef"),
        ({"controls": False, "whitespace": "keep"}, "a\x00b\r\nc", "a\x00b\r\nc"),
        ({}, "one\r\ntwo\rthree", "one\ntwo\nthree"),
        ({}, "  one \t two\u00a0three  \n\n\n\n  four ", "one two three\n\nfour"),
        ({"whitespace": "ends"}, "\n  if x:  \n      y\t\n\n\n", "  if x:\n      y"),
        ({"whitespace": "collapse"}, " one \n\n two\tthree ", "one two three"),
        ({"whitespace": "keep"}, " one  \n ", " one  \n "),
        ({}, "one\u2028two\u2029three\x0bfour\x0cfive", "one\ntwo\nthree\nfour\nfive"),
        # What Windows-1252 writes there; as a line's end it is hardly ever meant.
        ({}, "and so on\x85", "and so on…"),
        ({"repair": False}, "one\x85two", "one\ntwo"),
        ({"quotes": True}, "“a” ‘b’ «c»", '"a" \'b\' "c"'),
        ({"dashes": True}, "a – b — c − d … e‑f", "a - b - c - d ... e-f"),
        ({"entities": True}, "a &amp; b &lt;c&gt; &#39;", "a & b <c> '"),
        ({}, "a &amp; b", "a &amp; b"),
        ({}, "👩‍👩‍👧 नमस्ते क्‍ष", "👩‍👩‍👧 नमस्ते क्‍ष"),
        (
            {},
            "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f x\U000e0067",
            "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f x",
        ),
        ({}, "lone \ud83d surrogate", "lone \ufffd surrogate"),
        ({}, "\x00\ufeff \n", ""),
    ],
)
def test_a_text_is_written_in_one_way(make: Make, settings: dict[str, object], text: str, right: str) -> None:
    assert one(make(Normalize, **settings), text)[0] == right


def test_what_was_done_is_counted_and_noted(make: Make) -> None:
    outcome = make(Normalize).apply(documents(["schÃ¶n", "fine", "a\x00b", " c "]))
    assert outcome.texts == ["schön", "fine", "ab", "c"]
    assert outcome.counts == {"mojibake repaired": 1, "control characters removed": 1}
    assert outcome.notes == {
        0: "changed: mojibake repaired",
        2: "changed: control characters removed",
        3: "changed",
    }


def test_texts_that_are_right_already_cost_no_copy(make: Make) -> None:
    assert make(Normalize).apply(documents(["one", "two\n\nthree"])).texts is None


@given(
    st.text(),
    st.sampled_from(["nfc", "nfkc", "none"]),
    st.sampled_from(["keep", "ends", "lines", "collapse"]),
    st.booleans(),
    st.booleans(),
)
def test_doing_it_twice_changes_nothing_more(
    text: str, form: str, space: str, controls: bool, marks: bool
) -> None:
    settings = Normalize(
        form=form,
        repair=False,
        controls=controls,
        whitespace=space,
        quotes=marks,
        dashes=marks,  # type: ignore[arg-type]
    )
    stage = Normalizer(settings)
    once = one(stage, text)[0]
    assert one(stage, once)[0] == once
    if form != "none" and not marks:
        assert unicodedata.is_normalized(form.upper(), once)  # type: ignore[arg-type]


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_nothing_but_white_space_and_controls_is_lost(text: str) -> None:
    stage = Normalizer(Normalize(form="none", repair=False))
    assert "".join(one(stage, text)[0].split()) == "".join(text.split())


def test_long_runs_of_spaces_take_no_quadratic_time(make: Make) -> None:
    for policy in ("ends", "lines", "collapse"):
        text = "a" + " " * 300_000 + "b"
        assert one(make(Normalize, whitespace=policy), text)[0][0] == "a"
