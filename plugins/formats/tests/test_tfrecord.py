"""TFRecord: framing, examples, reader and writer."""

from __future__ import annotations

import io
import math
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_formats.example import decode, encode
from nlpkernel_formats.framing import BrokenFrame, framed, frames, masked
from nlpkernel_formats.tfrecord import TfRecordReader
from nlpkernel_formats.writing import write_tfrecord

Read = Callable[..., list[tuple[Any, ...]]]

VALUES = st.one_of(
    st.lists(st.binary(max_size=9), max_size=4),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


def all_frames(data: bytes, longest: int = 1 << 20) -> list[tuple[bytes, bool]]:
    return [tuple(frame) for frame in frames(io.BytesIO(data), longest)]  # type: ignore[misc]


def test_the_checksum_is_that_of_the_format() -> None:
    # CRC-32C of "123456789" is 0xe3069283 (RFC 3720, B.4); masked as the format says.
    assert masked(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_frames_are_read_back_and_damage_is_never_taken_for_data(
    records: list[bytes], data: st.DataObject
) -> None:
    written = b"".join(map(framed, records))
    assert all_frames(written) == [(record, True) for record in records]
    if not written:
        return
    at = data.draw(st.integers(0, len(written) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = written[:at] + bytes([written[at] ^ 1 << bit]) + written[at + 1 :]
    sound: list[bytes] = []
    try:
        sound.extend(frame.data for frame in frames(io.BytesIO(damaged), 1 << 20) if frame.sound)
    except BrokenFrame:
        assert sound == records[: len(sound)]
    else:
        assert len(sound) == len(records) - 1
    cut = written[:at]
    complete = 0
    while len(b"".join(map(framed, records[: complete + 1]))) <= at and complete < len(records):
        complete += 1
    try:
        assert all_frames(cut) == [(record, True) for record in records[:complete]]
        assert cut == b"".join(map(framed, records[:complete]))
    except BrokenFrame:
        assert cut != b"".join(map(framed, records[:complete]))


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_examples_are_read_back(features: dict[str, list[Any]]) -> None:
    assert decode(encode(features)) == features
    wanted = set(list(features)[:1])
    assert decode(encode(features), wanted) == {
        name: values if name in wanted else None for name, values in features.items()
    }


@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_a_value_error(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        return


@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=3), st.data())
def test_a_cut_or_changed_example_is_read_or_refused_within_its_bounds(
    features: dict[str, list[Any]], data: st.DataObject
) -> None:
    written = bytearray(encode(features))
    for _ in range(data.draw(st.integers(0, 3))):
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(written[: data.draw(st.integers(0, len(written)))])
    try:
        found = decode(cut)
    except ValueError:
        return
    held = sum(len(v) if isinstance(v, bytes) else 1 for each in found.values() for v in each or ())
    assert held <= len(cut)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",  # Longer than what is there.
        b"\x0a" + b"\xff" * 11,  # A length of more than ten bytes.
        b"\x0b\x0c",  # A group.
        b"\x02\x00",  # Field number 0.
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


def test_numbers_that_are_not_packed_are_read() -> None:
    # Feature { int64_list { value: 5 value: -1 } } and { float_list { value: 1.5 } } as proto2 wrote them.
    numbers = b"\x1a\x0d\x08\x05\x08" + b"\xff" * 9 + b"\x01"
    floats = b"\x12\x05\x0d" + struct.pack("<f", 1.5)
    entries = b""
    for name, value in ((b"n", numbers), (b"f", floats)):
        entry = b"\x0a\x01" + name + b"\x12" + bytes([len(value)]) + value
        entries += b"\x0a" + bytes([len(entry)]) + entry
    assert decode(b"\x0a" + bytes([len(entries)]) + entries) == {"n": [5, -1], "f": [1.5]}


RECORD = st.fixed_dictionaries(
    {
        "text": TEXT,
        "label": st.integers(-5, 5),
        "tags": st.lists(TEXT, min_size=2, max_size=3),
        "none": st.none(),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.lists(RECORD, max_size=5), st.booleans())
def test_what_is_written_is_read_back(read: Read, records: list[dict[str, Any]], packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tfrecord")
        batches = [{name: [record[name]] for name in record} for record in records]
        assert write_tfrecord(path, batches) == len(records)
        found = read(TfRecordReader(), path, "text", "label", "tags", "none", packed=packed)
    names = ("text", "label", "tags", "none")
    expected = [tuple(record[name] for name in names) for record in records]
    assert found == [(number, *row) for number, row in enumerate(expected, 1)]


def test_a_broken_record_is_an_error_with_its_number_or_left_out(
    tmp_path: Path, read: Read, make_faults: Any
) -> None:
    path = tmp_path / "a.tfrecord"
    good = [framed(encode({"text": [text]})) for text in ("one", "two", "three")]
    flipped = bytearray(good[1])
    flipped[-6] ^= 1
    cases = {
        r"a.tfrecord:2:1: FMT003 record 2 is no tf.train.Example: its checksum does not fit": bytes(flipped),
        r"a.tfrecord:2:1: FMT003 record 2 is no tf.train.Example: a field goes on": framed(b"\x0a\x09x"),
        r"a.tfrecord:2:1: FMT004 record 2 has no feature 'text'; it has: body": framed(
            encode({"body": ["x"]})
        ),
        r"a.tfrecord:2:1: FMT003 the value of 'text' in record 2 is not UTF-8: the bytes ff": framed(
            encode({"text": [b"\xff"]})
        ),
    }
    for message, data in cases.items():
        path.write_bytes(good[0] + data + good[2])
        with pytest.raises(DataError, match=message):
            read(TfRecordReader(), path, "text")
        faults = make_faults(True)
        assert read(TfRecordReader(), path, "text", faults=faults) == [(1, "one"), (3, "three")]
        assert faults.counts == {"broken records": 1}


def test_a_file_that_ends_early_keeps_the_records_before(
    tmp_path: Path, read: Read, make_faults: Any
) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed(encode({"text": ["one"]})) + framed(encode({"text": ["two"]}))[:-3])
    with pytest.raises(
        DataError, match=r"a.tfrecord: FMT001 .* as TFRecord after record 1: it ends in the middle"
    ):
        read(TfRecordReader(), path, "text")
    faults = make_faults(True)
    assert read(TfRecordReader(), path, "text", faults=faults) == [(1, "one")]
    assert faults.counts == {"damaged files": 1}
    path.write_bytes(b"no such file, and long enough")
    with pytest.raises(DataError, match=r"FMT001 .*: the checksum of a record's length does not fit"):
        read(TfRecordReader(), path, "text")


@pytest.mark.parametrize(
    "values", [[object()], [["a", 1]], [2**63], [1e300]], ids=["object", "mixed", "too large", "no float"]
)
def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path, values: list[Any]) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"before")
    with pytest.raises(DataError, match="FMT007 the file cannot be written: record 2"):
        write_tfrecord(path, [{"text": ["fine"]}, {"text": values}])
    assert [each.name for each in tmp_path.iterdir()] == ["a.tfrecord"]
    assert path.read_bytes() == b"before"


def test_what_the_tfrecord_package_writes_is_read_and_ours_is_read_by_it(tmp_path: Path, read: Read) -> None:
    writer = pytest.importorskip("tfrecord.writer")
    reader = pytest.importorskip("tfrecord.reader")
    theirs = writer.TFRecordWriter(str(tmp_path / "theirs"))
    theirs.write({"text": ("gr\u00fc\u00df \u2028".encode(), "byte"), "n": (-7, "int"), "x": (0.5, "float")})
    theirs.close()
    assert read(TfRecordReader(), tmp_path / "theirs", "text", "n", "x") == [
        (1, "gr\u00fc\u00df \u2028", -7, 0.5)
    ]
    write_tfrecord(tmp_path / "ours", [{"text": ["a", "b"], "n": [1, -2], "x": [math.pi, 2.0]}])
    found = list(reader.tfrecord_loader(str(tmp_path / "ours"), None))
    assert [bytes(each["text"]) for each in found] == [b"a", b"b"]
    assert [int(each["n"][0]) for each in found] == [1, -2]
    assert found[0]["x"][0] == pytest.approx(math.pi, rel=1e-6)


def test_the_framing_is_that_of_tensorboard(tmp_path: Path) -> None:
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    made = writer.EventFileWriter(str(tmp_path))
    made.close()
    (path,) = tmp_path.iterdir()
    found = all_frames(path.read_bytes())
    assert found
    assert all(sound for _, sound in found)
    assert b"brain.Event:2" in found[0][0]
