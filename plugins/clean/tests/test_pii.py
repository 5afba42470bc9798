from __future__ import annotations

import itertools
import random
import re
import time
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_clean.components.pii import Pii
from nlpkernel_clean.masking import Masker
from nlpkernel_clean.personal.money import luhn, mod97

from .conftest import Make, documents, one

WITHOUT_PHONES = ("email", "iban", "card", "ip")


def masked(text: str, **settings: object) -> str:
    return one(Masker(Pii(**settings)), text)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Write to ann.o'neil+x@mail.example.co.uk.", "Write to <EMAIL>."),
        ("<ann@example.com>, 'bob@example.org'", "<<EMAIL>>, '<EMAIL>'"),
        ("müller@bücher.example", "<EMAIL>"),
        ("mailto:ann@example.com?subject=x", "mailto:<EMAIL>?subject=x"),
        ("no @name, a@b, x@y.1, @", "no @name, a@b, x@y.1, @"),
        ("card 4111 1111 1111 1111 expires", "card <CARD> expires"),
        ("5500-0000-0000-0004/378282246310005", "<CARD>/<CARD>"),
        ("pay 20 4111111111111111 now", "pay 20 <CARD> now"),
        ("4111111111111112 order 1234567890123456", "4111111111111112 order 1234567890123456"),
        ("at 192.168.0.1:80, 10.0.0.256 and 8.8.8.8.", "at <IP>:80, 10.0.0.256 and <IP>."),
        ("v1.2.3.4 or 1.2.3.4.5 or 1.2.3", "v1.2.3.4 or 1.2.3.4.5 or 1.2.3"),
        ("2001:db8::ff00:42:8329 and [fe80::1]", "<IP> and [<IP>]"),
        ("::ffff:192.168.1.77 x", "<IP> x"),
        ("12:30:15 std::abs x[::2] a::b ::1", "12:30:15 std::abs x[::2] a::b ::1"),
        ("IBAN GB29 NWBK 6016 1331 9268 19 PLEASE", "IBAN <IBAN> PLEASE"),
        ("DE89370400440532013000,NL91ABNA0417164300", "<IBAN>,<IBAN>"),
        ("DE89370400440532013001 XY89370400440532013000", "DE89370400440532013001 XY89370400440532013000"),
    ],
)
def test_each_kind_is_found_where_it_is_and_nowhere_else(text: str, right: str) -> None:
    assert masked(text, kinds=WITHOUT_PHONES) == right


@pytest.mark.parametrize(
    ("text", "regions", "right"),
    [
        ("call (212) 555-2368x or +44 20 7946 0958.", ("US",), "call (212) 555-2368x or <PHONE>."),
        ("call (650) 253-0000 now", ("US",), "call <PHONE> now"),
        ("Tel. 030 227-0, Fax 030/22736979", ("DE",), "Tel. <PHONE>, Fax <PHONE>"),
        ("030/22736979", ("US",), "030/22736979"),
        ("+49 30 22736979", ("ZZ",), "<PHONE>"),
        ("on 2024-05-17 at 12:30, invoice 20240517", ("US",), "on 2024-05-17 at 12:30, invoice 20240517"),
    ],
)
def test_phone_numbers_are_found_as_their_regions_write_them(
    text: str, regions: tuple[str, ...], right: str
) -> None:
    assert masked(text, kinds=("phone",), regions=regions) == right


def test_a_long_text_is_searched_around_its_numbers_and_spans_fit() -> None:
    text = ("word " * 500 + "+49 30 22736979 ") * 3 + "and 1234567"
    finds = Masker(Pii(kinds=("phone",))).find(text)
    assert [text[find.start : find.end] for find in finds] == ["+49 30 22736979"] * 3


def test_finds_are_counted_noted_and_not_repeated(make: Make) -> None:
    outcome = make(Pii).apply(documents(["a@example.com b@example.com 10.1.2.3", "nothing"]))
    assert outcome.texts == ["<EMAIL> <EMAIL> <IP>", "nothing"]
    assert outcome.counts == {"e-mail addresses masked": 2, "IP addresses masked": 1}
    assert outcome.notes == {0: "masked e-mail addresses: 2, IP addresses: 1"}


def test_a_document_can_go_instead(make: Make) -> None:
    outcome = make(Pii, action="drop").apply(documents(["fine", "x a@example.com"]))
    assert outcome.dropped == {1: "holds e-mail addresses"}
    assert outcome.texts is None


def test_what_stands_instead_can_be_chosen() -> None:
    assert masked("a@example.com 10.1.2.3", replacement={"email": ""}) == " <IP>"


def test_names_come_from_a_list_and_those_in_a_row_are_one(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "names.txt"
    path.write_text("\ufeffMarie\nHamanová\nO'Neil\nWill\n", encoding="utf-8")
    stage = make(Pii, kinds=("name",), names=path)
    text = "Marie Hamanová's dog, Ann O'Neil; will Will\nMarie come? Marienbad."
    assert one(stage, text)[0] == "<NAME>'s dog, Ann <NAME>; will <NAME>\n<NAME> come? Marienbad."


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00"])
def test_a_list_of_names_that_cannot_be_used_is_named(
    tmp_path: Path, make: Make, content: bytes | None
) -> None:
    path = tmp_path / "names.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{re.escape(str(path))}: CLN005 the list of names cannot be used"):
        make(Pii, kinds=("name",), names=path)


def test_an_unknown_region_is_named(make: Make) -> None:
    with pytest.raises(DataError, match="CLN004 phonenumbers knows no region 'Germany'"):
        make(Pii, regions=("Germany",))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2**64, 2**128 - 1),
    st.sampled_from(["in {}.", "({})", "{}", "ip={};"]),
)
def test_every_address_of_the_standard_library_is_found(four: int, six: int, around: str) -> None:
    for address in (str(IPv4Address(four)), str(IPv6Address(six)), IPv6Address(six).exploded.upper()):
        hidden = around.format("<IP>")
        digits = address.replace(":", "")
        found = masked(around.format(address), kinds=("ip",))
        assert found == hidden or not any(map(str.isdigit, digits)) or len(digits) < 4


@given(
    st.sampled_from(["4", "51", "55", "2221", "34", "37", "36", "6011", "65", "3528", "62"]),
    st.integers(0),
    st.sampled_from(["", " ", "-"]),
)
def test_every_card_with_its_check_digit_is_found(prefix: str, number: int, between: str) -> None:
    length = 15 if prefix in ("34", "37") else 14 if prefix == "36" else 16
    body = (prefix + str(number)).ljust(length - 1, "7")[: length - 1]
    (check,) = [digit for digit in "0123456789" if luhn(body + digit)]
    card = body + check
    written = between.join(card[at : at + 4] for at in range(0, length, 4))
    assert masked(f"no. {written}, thanks", kinds=("card",)) == "no. <CARD>, thanks"


@given(st.text(alphabet="0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=18, max_size=18), st.booleans())
def test_every_iban_with_its_check_digits_is_found(body: str, grouped: bool) -> None:
    (iban,) = [f"DE{check:02}{body}" for check in range(2, 99) if mod97(f"DE{check:02}{body}")]
    written = " ".join(iban[at : at + 4] for at in range(0, 22, 4)) if grouped else iban
    assert masked(f"to {written}.", kinds=("iban",)) == "to <IBAN>."


@given(st.text(alphabet=st.sampled_from("0123456789abcdefDE.:@- +()\n"), max_size=200))
def test_finds_never_overlap_and_the_rest_stays(text: str) -> None:
    stage = Masker(Pii())
    finds = stage.find(text)
    assert all(0 <= find.start < find.end <= len(text) for find in finds)
    assert all(a.end <= b.start for a, b in itertools.pairwise(finds))
    pattern = "(.*)".join(re.escape(part) for part in re.split("<[A-Z]+>", one(stage, text)[0]))
    assert re.fullmatch(pattern, text, re.DOTALL)


@pytest.mark.parametrize("unit", ["1", "1 ", "1.", "a.", "1:", "AB12", "a@", "@a.", "+1(", "1-"])
def test_no_text_takes_quadratic_time(unit: str) -> None:
    stage = Masker(Pii())
    draw = random.Random(1)
    took = []
    for size in (2_000, 16_000):
        text = unit * size + "@" + str(draw.random())
        begun = time.perf_counter()
        stage.find(text)
        took.append(time.perf_counter() - begun)
    # Eight times as long takes about eight times as long; quadratic would be 64.
    assert took[1] < 30 * took[0] + 0.05
