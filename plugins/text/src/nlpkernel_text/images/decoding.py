"""From what a record has for an image to pixels of one size."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpkernel.errors import DataError, fail

if TYPE_CHECKING:
    from nlpkernel_text.reading.files import File
    from nlpkernel_text.settings import Images

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

#: What Pillow's decoders raise for files that are damaged, beside its own errors.
_DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    AssertionError,
    struct.error,
    zlib.error,
    MemoryError,
)
#: Modes of 16 and 32 bits of grey.
_DEEP = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
#: The greatest value of 16 bits, and the first that 8 bits do not hold.
_SIXTEEN, _EIGHT = 65_535, 256
#: What is decoded, of what the library can: pixels, and no programs that draw them (EPS, WMF).
_FORMATS = (
    "PNG",
    "JPEG",
    "MPO",
    "WEBP",
    "GIF",
    "BMP",
    "DIB",
    "TIFF",
    "JPEG2000",
    "AVIF",
    "PPM",
    "TGA",
    "ICO",
    "PCX",
)
#: Pixels that are decoded at most, where the library has no bound of its own.
_MOST = 89_478_485


class Unreadable(Exception):
    """An image that cannot be read; why, as a clause."""


def given(value: Any) -> bytes | str | None:
    """What a record has for an image: the bytes of its file, or a path. A struct of both, as `datasets` writes it, has
    its bytes, or where these are null its path. None for anything else."""
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    return value if isinstance(value, (bytes, str)) and value else None


def shown(value: Any) -> str:
    """What a message calls it."""
    found = given(value)
    return found if isinstance(found, str) else f"of {len(found or b''):,} bytes"


def content(value: Any, file: File) -> bytes:
    """The bytes of an image's file. A path is relative to the folder of `file`, whose record names it. Raise Unreadable
    where there is no such file, or `file` is not on this machine."""
    found = given(value)
    if isinstance(found, bytes):
        return found
    path = Path(found or "")
    if file.remote is not None and not path.is_absolute():
        raise Unreadable("its path is relative to a file that is not on this machine")
    try:
        return (path if file.remote is not None else Path(file.where).parent / path).read_bytes()
    except (OSError, ValueError) as error:
        raise Unreadable(getattr(error, "strerror", None) or str(error)) from error


def digest(value: Any, file: File) -> tuple[bytes, int]:
    """What stands for the content of an image that a record names by a path, and its bytes. Those of one that is in the
    record are known by its file."""
    if not isinstance(given(value), str):
        return b"", 0
    try:
        read = content(value, file)
    except Unreadable as error:
        return str(error).encode(), 0
    return hashlib.sha256(read).digest(), len(read)


class Decoder:
    """Decodes images by Pillow. Raise DataError (TXT026) where it is not installed."""

    def __init__(self, settings: Images) -> None:
        try:
            from PIL import Image, ImageOps
        except ImportError as error:
            raise fail(
                DataError,
                "TXT026",
                "images are decoded by the library Pillow, which is not installed",
                hint='pip install "nlpkernel-plugin-text[images]"',
            ) from error
        self._image, self._operations = Image, ImageOps
        Image.init()
        self._formats = [name for name in _FORMATS if name in Image.OPEN]
        self._size, self._crop = settings.size, settings.fit == "crop"
        self._damaged = (*_DAMAGED, Image.DecompressionBombError)

    def pixels(self, data: bytes) -> Pixels:
        """An image, uint8 [3, size, size], red, green and blue: turned as its EXIF data say, of several frames the
        first, what is transparent on white. Raise Unreadable."""
        try:
            with self._image.open(io.BytesIO(data), formats=self._formats) as image:
                if image.width * image.height > (self._image.MAX_IMAGE_PIXELS or _MOST):
                    raise Unreadable(f"{image.width} x {image.height} pixels are more than are decoded")
                sized = self._sized(self._coloured(self._operations.exif_transpose(image)))
        except self._damaged as error:
            told = " ".join(str(error).split())[:200]
            raise Unreadable(
                told if isinstance(error, OSError) else f"{type(error).__name__}: {told}"
            ) from error
        return np.ascontiguousarray(np.asarray(sized, dtype=np.uint8).transpose(2, 0, 1))

    def _coloured(self, image: Any) -> Any:
        if image.mode == "F":
            raise Unreadable("its values are fractions, whose range nobody says")
        if image.mode in _DEEP:
            # The library would cut values off above 255.
            deep = np.asarray(image)
            if deep.size and (
                deep.min() < 0 or deep.max() > _SIXTEEN or (image.mode == "I" and deep.max() < _EIGHT)
            ):
                raise Unreadable("its values are not of 16 bits")
            image = self._image.fromarray((deep >> 8).astype(np.uint8))
        if not image.has_transparency_data:
            return image.convert("RGB")
        clear = image.convert("RGBA")
        white = self._image.new("RGBA", clear.size, "white")
        white.alpha_composite(clear)
        return white.convert("RGB")

    def _sized(self, image: Any) -> Any:
        size, method = (self._size, self._size), self._image.Resampling.BICUBIC
        return self._operations.fit(image, size, method) if self._crop else image.resize(size, method)
