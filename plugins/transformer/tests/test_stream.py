"""Text out of ids: nothing that may still change is let out, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nlpkernel_transformer.stream import TextStream


def _pieces(codec: Any, ids: Sequence[int], stop: Sequence[str] = ()) -> list[str]:
    stream = TextStream(codec, stop)
    pieces = []
    for token in ids:
        pieces.append(stream.push(token))
        if stream.stopped:
            break
    return [*pieces, stream.finish()]


class Fallback:
    """Decodes as tokenizers with byte fallback do: bytes that are no character are one U+FFFD each."""

    def decode(self, ids: Sequence[int]) -> str:
        text, run = "", b""
        for token in [*ids, None]:
            if token is not None and token >= 128:
                run += bytes([token])
                continue
            try:
                text += run.decode()
            except UnicodeDecodeError:
                text += "\ufffd" * len(run)
            text, run = text + (chr(token) if token is not None else ""), b""
        return text


class Words:
    """Decodes as tokenizers with a word mark do: the space before the very first word is dropped."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f" w{token}" for token in ids).removeprefix(" ")


def test_a_character_comes_out_whole_with_its_last_byte(codec: Any) -> None:
    assert _pieces(codec, "aé€😀b".encode()) == ["a", "", "é", "", "", "€", "", "", "", "😀", "b", ""]


def test_bytes_that_never_become_a_character_come_out_when_that_is_certain(codec: Any) -> None:
    assert _pieces(codec, b"\xff") == ["", "\ufffd"]
    assert _pieces(codec, b"\xe2\x82A") == ["", "", "\ufffdA", ""]
    many = _pieces(codec, b"\xff" * 10)
    assert "".join(many[:10]) == "\ufffd" * 7
    assert "".join(many) == "\ufffd" * 10


@given(st.lists(st.text(max_size=60), max_size=8))
def test_pieces_join_to_the_text_and_each_is_final(codec: Any, texts: list[str]) -> None:
    whole = "".join(texts)
    pieces = _pieces(codec, whole.encode())
    assert "".join(pieces) == whole
    out = ""
    for piece in pieces:
        out += piece
        assert whole.startswith(out)


@given(st.binary(max_size=300))
def test_pieces_of_any_bytes_join_to_what_the_codec_decodes(codec: Any, ids: bytes) -> None:
    assert "".join(_pieces(codec, ids)) == codec.decode(ids)


@given(st.text(max_size=120))
def test_pieces_join_with_a_codec_that_falls_back_to_bytes(text: str) -> None:
    assert "".join(_pieces(Fallback(), text.encode())) == text


@given(st.lists(st.integers(0, 99), max_size=200))
def test_pieces_join_with_a_codec_that_looks_at_what_stands_before(ids: list[int]) -> None:
    assert "".join(_pieces(Words(), ids)) == Words().decode(ids)


def test_long_text_is_not_decoded_again_from_its_beginning() -> None:
    class Counting(Words):
        longest = 0

        def decode(self, ids: Sequence[int]) -> str:
            self.longest = max(self.longest, len(ids))
            return super().decode(ids)

    codec = Counting()
    assert "".join(_pieces(codec, range(5000))) == Words().decode(range(5000))
    assert codec.longest < 100


@given(
    st.text(alphabet="ab€", max_size=40),
    st.lists(st.text(alphabet="ab€", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_text_ends_before_the_first_stop_text_that_is_complete(
    codec: Any, text: str, stop: list[str]
) -> None:
    """The reference reads character by character and stops as soon as any stop text stands at the end."""
    expected, stopped = text, False
    for end in range(len(text) + 1):
        found = [text[:end].find(each) for each in stop]
        if any(at >= 0 for at in found):
            expected, stopped = text[: min(at for at in found if at >= 0)], True
            break
    stream = TextStream(codec, stop)
    out = ""
    for token in text.encode():
        out += stream.push(token)
        if stream.stopped:
            break
    out += stream.finish()
    assert (out, stream.stopped) == (expected, stopped)


def test_a_beginning_of_a_stop_text_is_held_back_until_it_is_none(codec: Any) -> None:
    assert _pieces(codec, b"x\n\ny", ["\n\n\n"]) == ["x", "", "", "\n\ny", ""]
    assert _pieces(codec, b"x\n\n", ["\n\n\n"]) == ["x", "", "", "\n\n"]
    assert _pieces(codec, b"x\n\n\ny", ["\n\n\n"]) == ["x", "", "", "", ""]
