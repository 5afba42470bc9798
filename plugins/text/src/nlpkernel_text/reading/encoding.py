"""Text in other encodings as UTF-8: a stream that is decoded and encoded again while it is read."""

from __future__ import annotations

import codecs
from typing import BinaryIO, cast

from nlpkernel.errors import Place
from nlpkernel_text.reading.faults import Damaged, snippet
from nlpkernel_text.reading.pulled import Pulled

#: Byte-order marks and what they say. That of UTF-32 begins with that of UTF-16, so it comes first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

#: Bytes that are decoded at once.
READ = 1 << 20
#: Characters before a bad byte that its message may show.
_BEFORE = 64


def marked(head: bytes) -> str | None:
    """The encoding that a file's first four bytes declare by a byte-order mark."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def known(encoding: str) -> str | None:
    """The codec's own name of an encoding that text can be in ("cp1252" for "windows-1252"); None where there is
    none."""
    try:
        info = codecs.lookup(encoding)
    except (LookupError, ValueError):
        return None
    # Those of bytes to bytes and of text to text (base64, rot13) are no encodings. The attribute is Python's own mark.
    return info.name if getattr(info, "_is_text_encoding", True) else None


def transcode(stream: BinaryIO, encoding: str, shown: str) -> BinaryIO:
    """A stream of UTF-8 from one of `encoding`, without its byte-order mark. Reading raises Damaged (TXT023) at what
    the encoding does not have, and gives what comes before that first."""
    return cast(BinaryIO, _Transcoded(stream, encoding, shown))


class _Transcoded(Pulled):
    """A stream in UTF-8. It knows line and column of where it is."""

    def __init__(self, stream: BinaryIO, encoding: str, shown: str) -> None:
        super().__init__()
        self._stream, self._encoding, self._shown = stream, encoding, shown
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._line, self._column, self._offset = 1, 0, 0
        self._before = ""
        self._began = self._ended = False
        self._bad: Exception | None = None

    def pull(self, size: int) -> bytes:
        """The next block as UTF-8."""
        while not self._ended:
            if self._bad is not None:
                raise self._bad
            data = self._stream.read(READ)
            self._ended = not data
            text = self._decoded(data)
            if not self._began and text:
                self._began = True
                text = text.removeprefix("\ufeff")
            if text:
                self._advance(text)
                return text.encode("utf-8", "surrogatepass")
        if self._bad is not None:
            raise self._bad
        return b""

    def close(self) -> None:
        """Close the stream below too."""
        if not self.closed:
            self._stream.close()
        super().close()

    def _decoded(self, data: bytes) -> str:
        state = self._decoder.getstate()
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeError as error:
            # What comes before the bad byte is found by halves: not every codec tells the place in the data.
            text, rest = self._until(data, state)
            self._bad = self._wrong(error, self._offset + len(data) - len(rest), rest, text)
        self._offset += len(data)
        return text

    def _until(self, data: bytes, state: tuple[bytes, int]) -> tuple[str, bytes]:
        """The text before the first character that cannot be decoded, and the bytes from there on."""
        good, bad = 0, len(data)
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._decodes(data[:middle], state):
                good = middle
            else:
                bad = middle
        self._decoder.setstate(state)
        text = self._decoder.decode(data[:good])
        return text, self._decoder.getstate()[0] + data[good:]

    def _decodes(self, data: bytes, state: tuple[bytes, int]) -> bool:
        self._decoder.setstate(state)
        try:
            self._decoder.decode(data)
        except UnicodeError:
            return False
        return True

    def _advance(self, text: str) -> None:
        newline = text.rfind("\n")
        self._line += text.count("\n")
        self._column = len(text) - newline - 1 + (self._column if newline < 0 else 0)
        self._before = (self._before + text[-_BEFORE:])[-_BEFORE:]

    def _wrong(self, error: UnicodeError, at: int, rest: bytes, text: str) -> Damaged:
        newline = text.rfind("\n")
        line = self._line + text.count("\n")
        column = len(text) - newline + (self._column if newline < 0 else 0)
        before = (self._before + text)[-_BEFORE:].removeprefix("\ufeff")
        after = rest[:4].hex(" ")
        what = f"the bytes {after}" if after else "the end"
        short = " and then the end" if after and len(rest) < 4 and self._ended else ""
        reason = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
        return Damaged.of(
            f"files that are not {self._encoding}",
            "TXT023",
            f"not {self._encoding} at byte {at}: {what}{short} after {snippet(before, len(before))} "
            f"({reason})",
            Place(self._shown, line, column),
            'write the encoding that the file has, `encoding = "auto"` to have it found out, or on_error = "skip"',
        )
