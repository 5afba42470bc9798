"""Which encoding a file is in, where the plan leaves it to be found out."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import BinaryIO

from nlpkernel.errors import DataError, Place, fail
from nlpkernel_text.reading.encoding import marked
from nlpkernel_text.reading.faults import Damaged

#: Bytes that are read at once, those from which the encoding is guessed, and those of them before the first odd one.
_READ = 1 << 20
_SAMPLE = 1 << 18
_BEFORE = 1 << 12

#: Encodings that texts are in: those of https://encoding.spec.whatwg.org, without what hardly anybody wrote. The
#: library knows many more, and takes short texts for them.
_USED = (
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp866", "cp874"),
    *("iso8859_2", "iso8859_5", "iso8859_6", "iso8859_7", "iso8859_8", "koi8_r", "koi8_u"),
    *("big5", "cp932", "cp949", "euc_jp", "gb18030"),
)
#: The most common of them first: what a text is in of which the library is as sure of several.
_COMMON = ("cp1252", "cp932", "gb18030", "big5", "cp949", "euc_jp", "cp1251", "cp1250")
#: What the library's measures of mess and of language may differ by where it is as sure.
_NEAR = 0.02


def detect(open_bytes: Callable[[], BinaryIO], shown: str) -> str:
    """The encoding of a file: what its byte-order mark says; UTF-8 where all of it is; otherwise what
    charset-normalizer makes of it, if decoding and encoding the whole file gives the same bytes again. Reads the file
    up to three times, in bounded memory.

    Raise Damaged (TXT024) where no encoding is found, DataError (TXT026) where the library is not there.
    """
    with open_bytes() as stream:
        head = stream.read(_READ)
        if (declared := marked(head[:4])) is not None:
            return declared
        bad = _first_bad(head, stream)
    if bad is None:
        return "utf-8"
    tried: list[str] = []
    for encoding in _guesses(_sample(open_bytes, bad), shown):
        if _reversible(open_bytes, encoding):
            return encoding
        tried.append(encoding)
    why = (
        f"it is not {' and not '.join(['UTF-8', *tried])}"
        if tried
        else "it is not UTF-8, and looks like no text"
    )
    raise Damaged.of(
        "files of no known encoding",
        "TXT024",
        f"the encoding cannot be found out: {why}",
        Place(shown),
        "write the `encoding` that it has, or convert it",
    )


def _first_bad(head: bytes, stream: BinaryIO) -> int | None:
    """Where the data stops being UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    data, offset = head, 0
    while True:
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            return offset - pending + error.start
        if not data:
            return None
        offset += len(data)
        data = stream.read(_READ)


def _sample(open_bytes: Callable[[], BinaryIO], bad: int) -> bytes:
    """The lines around and after the first byte that is not UTF-8 that are not all ASCII: the others say nothing, and
    may be many more. All of them where there are NULs, as in UTF-16, in which lines cannot be told apart so."""
    with open_bytes() as stream:
        left = begin = max(0, bad - _BEFORE)
        while left and (data := stream.read(min(left, _READ))):
            left -= len(data)
        sample = stream.read(_SAMPLE)
    sample = sample[sample.find(b"\n", 0, max(0, bad - begin)) + 1 :] if begin else sample
    if b"\0" in sample:
        return sample
    return b"".join(line for line in sample.splitlines(keepends=True) if not line.isascii())


def _guesses(sample: bytes, shown: str) -> list[str]:
    try:
        from charset_normalizer import from_bytes
    except ImportError as error:
        raise fail(
            DataError,
            "TXT026",
            f'{shown} is not UTF-8, and encoding = "auto" needs the library charset-normalizer to find out what it is',
            hint='pip install "nlpkernel-plugin-text[encodings]", or write the `encoding`',
        ) from error
    matches = list(from_bytes(sample, cp_isolation=list(_USED)))
    if not matches:
        return []
    near = [match for match in matches if match.chaos <= matches[0].chaos + _NEAR]
    surest = max(match.coherence for match in near) - _NEAR
    near = [match for match in near if match.coherence >= surest]
    names = {name for match in near for name in (match.encoding, *match.could_be_from_charset)}
    likely = [name for name in _COMMON if name in names]
    return list(dict.fromkeys([*likely, *(match.encoding for match in matches)]))


def _reversible(open_bytes: Callable[[], BinaryIO], encoding: str) -> bool:
    """Whether the whole file, decoded and encoded again, is the same bytes."""
    decoder = codecs.getincrementaldecoder(encoding)()
    encoder = codecs.getincrementalencoder(encoding)()
    # Bytes that the encoder has not given yet: it lags behind by what the decoder holds.
    owed = b""
    with open_bytes() as stream:
        while True:
            data = stream.read(_READ)
            owed += data
            try:
                again = encoder.encode(decoder.decode(data, final=not data), final=not data)
            except UnicodeError:
                return False
            if not owed.startswith(again):
                return False
            owed = owed[len(again) :]
            if not data:
                return not owed
