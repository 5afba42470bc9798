"""Packed files: gzip, bzip2, xz, zstd."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_text.reading import packing
from nlpkernel_text.reading.faults import Damaged, Faults, Skipped
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.jsonl import Jsonl
from nlpkernel_text.reading.packing import unpack
from nlpkernel_text.reading.plain import Whole
from nlpkernel_text.reading.records import read

zstd = pytest.importorskip("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
}
SUFFIX = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst"}
every = pytest.mark.parametrize("kind", PACK)


def unpacked(data: bytes, kind: str, size: int = -1) -> bytes:
    with unpack(io.BytesIO(data), kind, "a") as stream:
        if size < 0:
            return stream.read()
        return b"".join(iter(lambda: stream.read(size), b""))


@every
@given(parts=st.lists(st.binary(max_size=200), min_size=1, max_size=4), data=st.data())
def test_members_one_after_the_other_are_read_as_one(
    kind: str, parts: list[bytes], data: st.DataObject
) -> None:
    packed = b"".join(PACK[kind](part) for part in parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "READ", data.draw(st.integers(1, 40)))
        patch.setattr(packing, "UNPACK", data.draw(st.integers(1, 40)))
        assert unpacked(packed, kind) == b"".join(parts)
        assert unpacked(packed, kind, data.draw(st.integers(1, 60))) == b"".join(parts)


@every
@given(content=st.binary(min_size=1, max_size=3000), data=st.data())
def test_a_cut_file_gives_what_is_before_and_is_never_whole(
    kind: str, content: bytes, data: st.DataObject
) -> None:
    packed = PACK[kind](content)
    cut = packed[: data.draw(st.integers(1, len(packed) - 1))]
    stream = unpack(io.BytesIO(cut), kind, "a")
    found = b""

    def read_on() -> None:
        nonlocal found
        while data := stream.read(7):
            found += data

    with pytest.raises(Damaged, match=r"a: TXT02[12] "):
        read_on()
    assert content.startswith(found)


@every
def test_a_changed_byte_is_noticed(kind: str) -> None:
    content = random.Random(1).randbytes(3000)
    # Of xz and zstd what they check of their content is at their ends.
    packed = bytearray(PACK[kind](content) if kind != "zstd" else checked(content))
    packed[len(packed) // 2] ^= 4
    stream = unpack(io.BytesIO(packed), kind, "a")
    with pytest.raises(
        Damaged, match=r"a: TXT021 the packed file is damaged near its byte \d+, after \d+ bytes"
    ):
        list(iter(lambda: stream.read(1000), b""))


def checked(content: bytes) -> bytes:
    options = {zstd.CompressionParameter.checksum_flag: 1}
    packed: bytes = zstd.compress(content, options=options)
    return packed


@every
def test_a_name_that_lies_is_an_error_that_says_so(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.jsonl{SUFFIX[kind]}"
    for content in (b'{"text": "plain"}\n', b"", b"\x1f", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"TXT022 the file is no {kind} file, as its name says"):
            list(read(Jsonl(), File.at(path, "jsonl"), ["text"], Faults(False)))


def test_skippable_frames_hold_nothing() -> None:
    skippable = b"\x51\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    packed = skippable + zstd.compress(b"one") + skippable + zstd.compress(b"two") + skippable
    assert unpacked(packed, "zstd") == b"onetwo"


def test_padding_after_the_last_member_is_no_damage_and_other_data_is() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    assert unpacked(packed + b"\0" * 700_000, "gzip") == b"onetwo"
    assert unpacked(lzma.compress(b"one") + b"\0" * 8, "xz") == b"one"
    stream = unpack(io.BytesIO(packed + b"garbage"), "gzip", "a")
    assert stream.read(100) == b"onetwo"
    with pytest.raises(Damaged, match="what follows the end of the gzip data is no gzip"):
        stream.read()


@every
def test_memory_stays_bounded_however_well_a_file_is_packed(kind: str) -> None:
    content = b"\0" * (1 << 24)
    packed = PACK[kind](content)
    assert len(packed) < 1 << 17
    stream = unpack(io.BytesIO(packed), kind, "a")
    total = 0
    while data := stream.read(1 << 16):
        assert len(data) <= 1 << 16
        total += len(data)
        held = stream._held  # type: ignore[attr-defined]
        assert len(held) <= packing.UNPACK
    assert total == len(content)


@every
def test_records_before_the_damage_are_kept_where_the_plan_says_to_skip(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.jsonl{SUFFIX[kind]}"
    lines = [
        b'{"text": "%d %s"}\n' % (n, random.Random(n).randbytes(400).hex().encode()) for n in range(2000)
    ]
    packed = PACK[kind](b"".join(lines))
    path.write_bytes(packed[: len(packed) * 2 // 3])
    with pytest.raises(DataError, match=r"a\.jsonl\.\w+: TXT021 the packed file is damaged near its byte"):
        list(read(Jsonl(), File.at(path, "jsonl"), ["text"], Faults(False)))
    faults = Faults(True)
    places = [
        place
        for records in read(Jsonl(), File.at(path, "jsonl"), ["text"], faults)
        for place in records.places
    ]
    assert faults.counts == {"damaged files": 1}
    assert places == list(range(1, len(places) + 1))
    assert kind == "bzip2" or 500 < len(places) < 2000
    assert "TXT021" in faults.first


def test_a_document_that_is_cut_off_by_damage_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    text = "".join(f"line {random.Random(n).random()}\n" for n in range(30_000))
    packed = gzip.compress(text.encode())
    path.write_bytes(packed[: len(packed) * 9 // 10])
    faults = Faults(True)
    with pytest.raises(Skipped):
        list(read(Whole(), File.at(path, "text"), ["text"], faults))
    assert faults.counts == {"damaged files": 1}


def test_zlib_without_gzip_is_no_gzip() -> None:
    with pytest.raises(Damaged, match="TXT022"):
        unpacked(zlib.compress(b"x"), "gzip")


def test_without_its_library_zstd_names_what_to_install(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["backports.zstd"] = sys.modules["compression.zstd"] = sys.modules["compression"] = None
from nlpkernel_text.reading.files import File
File.at({str(tmp_path / "a.txt.zst")!r}, "text").open()
"""
    (tmp_path / "a.txt.zst").write_bytes(b"x")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "TXT026" in done.stderr
    assert 'pip install "nlpkernel-plugin-text[zstd]"' in done.stderr
