"""Every source of records, however it is packed, encoded and placed, gives back what other libraries wrote.

The writers are the standard library's csv and json, pyarrow, h5py and warcio; the files are read through the text
plugin's `File`, as a plan's are, also after it went to another process.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import pickle
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import nlpkernel
from nlpkernel.errors import DataError
from nlpkernel.hookspecs.reader import Reader
from nlpkernel_formats.columnar import ArrowReader, ParquetReader
from nlpkernel_formats.hdf5 import Hdf5Reader
from nlpkernel_formats.tfrecord import TfRecordReader
from nlpkernel_formats.warc import WarcReader
from nlpkernel_formats.writing import write_parquet, write_tfrecord
from nlpkernel_text.reading.delimited import Table
from nlpkernel_text.reading.faults import Faults, Skipped
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.jsonfile import Json
from nlpkernel_text.reading.jsonl import Jsonl
from nlpkernel_text.reading.plain import Lines, Paragraphs, Whole
from nlpkernel_text.reading.records import read

zstd = pytest.importorskip("backports.zstd")
fsspec = pytest.importorskip("fsspec")

Pair = tuple[str, str]

ODD = "\u2028\u2029\x85\x0b\x0c\x00\x1a\ufeff\U0001f600\u0301\xa0\xdf\u65e5\u672c,;\"'\t\\{}\r\n "
CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from(ODD)
TEXT = st.text(CHARACTERS, max_size=12)

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}
ENCODINGS = (
    *("utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "latin-1", "cp1252", "cp1251"),
    *("big5", "gb18030", "shift_jis", "euc_kr", "euc_jp", "iso2022_jp"),
)


def csv_text(records: list[Pair], **options: Any) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, **options).writerows([("text", "other"), *records])
    return stream.getvalue()


def tsv_text(records: list[Pair]) -> str:
    return "".join("\t".join(row) + "\n" for row in [("text", "other"), *records])


def json_lines(records: list[Pair]) -> str:
    return "".join(
        json.dumps({"text": a, "m": {"other": b}}, ensure_ascii=False) + "\r\n" for a, b in records
    )


def json_array(records: list[Pair]) -> str:
    rows = [{"text": a, "m": {"other": b}} for a, b in records]
    return json.dumps({"data": rows}, ensure_ascii=False, indent=1)


def bare(text: str, *without: str) -> str:
    """What can stand in a field that nothing is quoted in."""
    for each in ("\n", "\r", *without):
        text = text.replace(each, "")
    return text


#: Format to its reader, what writes it, and what its texts may be.
TEXTS: dict[str, tuple[Reader, Callable[[list[Pair]], str], Callable[[str], str]]] = {
    "csv": (Table(), lambda rows: csv_text(rows, quoting=csv.QUOTE_ALL), str),
    "csv of semicolons": (
        Table(";"),
        lambda rows: csv_text(rows, quoting=csv.QUOTE_ALL, delimiter=";", lineterminator="\n"),
        str,
    ),
    "tsv": (Table("\t", quoting=False), tsv_text, lambda text: bare(text, "\t")),
    "jsonl": (Jsonl(), json_lines, str),
    "json": (Json("data"), json_array, str),
    "lines": (Lines(), lambda rows: "".join(f"{text}\r\n" for text, _ in rows), bare),
    "paragraphs": (Paragraphs(), lambda rows: "".join(f"{text}\n\n\n" for text, _ in rows), bare),
    "whole": (Whole(), lambda rows: "".join(text for text, _ in rows), str),
}


def found(file: File, reader: Reader, *columns: str) -> list[tuple[Any, ...]]:
    """The records, of which one may come in pieces."""
    faults = Faults(False)
    rows: list[tuple[Any, ...]] = []
    for records in read(reader, pickle.loads(pickle.dumps(file)), columns, faults):
        new = list(zip(*(records.columns[name] for name in columns), strict=True))
        if not records.opens:
            rows[-1] = (rows[-1][0] + new.pop(0)[0],)
        rows += new
    return rows


class Placed:
    """Puts files on this machine or into memory, where they are remote."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._memory = fsspec.filesystem("memory")

    def put(self, name: str, data: bytes, remote: bool) -> str:
        path = f"{self._folder.name}/{name}"
        if not remote:
            Path(path).write_bytes(data)
            return path
        self._memory.pipe_file(path, data)
        return f"memory://{path}"

    def close(self) -> None:
        if self._memory.exists(self._folder.name):
            self._memory.rm(self._folder.name, recursive=True)
        self._folder.cleanup()


@pytest.fixture(scope="module")
def placed() -> Iterator[Placed]:
    made = Placed()
    yield made
    made.close()


def within(text: str, encoding: str) -> str:
    """As much of a text as an encoding has, and gives back."""
    for _ in range(4):
        text = text.encode(encoding, "ignore").decode(encoding, "ignore").removeprefix("\ufeff")
    return text


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("format", TEXTS)
@settings(max_examples=8, deadline=None)
@given(
    records=st.lists(st.tuples(TEXT, TEXT), max_size=5),
    packing=st.sampled_from(sorted(PACKINGS)),
    remote=st.booleans(),
)
@example(records=[(f"a{ODD}b", f"a{ODD}b"), ("", "c")], packing=".gz", remote=False)
def test_text_is_what_was_written(
    placed: Placed, records: list[Pair], format: str, packing: str, encoding: str, remote: bool
) -> None:
    reader, write, fit = TEXTS[format]
    fitted = [(fit(within(a, encoding)), fit(within(b, encoding))) for a, b in records]
    one = format in ("lines", "paragraphs", "whole")
    if one:
        fitted = [(text, other) for text, other in fitted if text and not text.isspace()]
    content = write(fitted)
    # Each text alone comes back; what some encodings make of two, or of a mark at the start, does not.
    assume(within(content, encoding) == content)
    where = placed.put(f"a.x{packing}", PACKINGS[packing](content.encode(encoding)), remote)
    file = File.at(where, "x", encoding=encoding)
    other = "m.other" if format.startswith("json") else "other"
    if not one:
        assert found(file, reader, "text", other) == fitted
    elif format == "whole":
        assert found(file, reader, "text") == ([(content,)] if content else [])
    else:
        assert found(file, reader, "text") == [(text,) for text, _ in fitted]


def parquet(path: Path, records: list[Pair]) -> None:
    pq.write_table(table(records), path, row_group_size=2)


def own_parquet(path: Path, records: list[Pair]) -> None:
    write_parquet(path, [{"text": [a], "m.other": [b]} for a, b in records] or [{"text": [], "m.other": []}])


def table(records: list[Pair]) -> pa.Table:
    inside = pa.array([{"other": b} for _, b in records], pa.struct([("other", pa.string())]))
    return pa.table({"text": pa.array([a for a, _ in records], pa.string()), "m": inside})


def arrow(path: Path, records: list[Pair]) -> None:
    data = table(records)
    with pyarrow.ipc.new_file(str(path), data.schema) as writer:
        writer.write_table(data, max_chunksize=2)


def stream(path: Path, records: list[Pair]) -> None:
    data = table(records)
    with pyarrow.ipc.new_stream(str(path), data.schema) as writer:
        writer.write_table(data, max_chunksize=2)


def hdf5(path: Path, records: list[Pair]) -> None:
    with h5py.File(path, "w") as file:
        for name, values in (("text", [a for a, _ in records]), ("m/other", [b for _, b in records])):
            file.create_dataset(name, data=values, shape=(len(values),), dtype=h5py.string_dtype())


def tfrecord(path: Path, records: list[Pair]) -> None:
    write_tfrecord(path, [{"text": [a], "m.other": [b]} for a, b in records])


def warc(path: Path, records: list[Pair]) -> None:
    writing = pytest.importorskip("warcio.warcwriter")
    with path.open("wb") as file:
        writer = writing.WARCWriter(file, gzip=False)
        for text, other in records:
            made = writer.create_warc_record(
                f"http://x/{other.encode().hex()}",
                "conversion",
                payload=io.BytesIO(text.encode()),
                warc_content_type="text/plain",
            )
            writer.write_record(made)


BINARY: dict[str, tuple[Reader, Callable[[Path, list[Pair]], None]]] = {
    "parquet": (ParquetReader(), parquet),
    "parquet of our own": (ParquetReader(), own_parquet),
    "arrow": (ArrowReader(), arrow),
    "arrow stream": (ArrowReader(), stream),
    "hdf5": (Hdf5Reader(), hdf5),
    "tfrecord": (TfRecordReader(), tfrecord),
    "warc": (WarcReader(), warc),
}


@pytest.mark.parametrize("format", BINARY)
@settings(max_examples=25, deadline=None)
@given(
    records=st.lists(st.tuples(TEXT, TEXT), max_size=5),
    packing=st.sampled_from(sorted(PACKINGS)),
    remote=st.booleans(),
)
def test_records_are_what_was_written(
    placed: Placed, records: list[Pair], format: str, packing: str, remote: bool
) -> None:
    reader, write = BINARY[format]
    if format == "hdf5":
        # HDF5's texts end at a NUL.
        records = [(bare(a, "\0"), bare(b, "\0")) for a, b in records]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        write(path, records)
        where = placed.put(f"a.x{packing}", PACKINGS[packing](path.read_bytes()), remote)
    file = File.at(where, "x")
    if format != "warc":
        assert found(file, reader, "text", "m.other") == records
        return
    expected = [(a.strip(), f"http://x/{b.encode().hex()}") for a, b in records]
    assert found(file, reader, "text", "url") == expected


@pytest.mark.parametrize("packing", [each for each in PACKINGS if each])
@pytest.mark.parametrize("format", [*TEXTS, *BINARY])
def test_of_a_file_that_is_cut_off_the_records_before_are_kept(
    tmp_path: Path, format: str, packing: str
) -> None:
    draw = random.Random(1)
    records = [(f"{number} {draw.randbytes(60).hex()}", "x") for number in range(1500)]
    reader = (TEXTS.get(format) or BINARY[format])[0]
    path = tmp_path / "a"
    if format in TEXTS:
        path.write_text(TEXTS[format][1](records), encoding="utf-8", newline="")
    else:
        BINARY[format][1](path, records)
    packed = PACKINGS[packing](path.read_bytes())
    path = tmp_path / f"a.x{packing}"
    path.write_bytes(packed[: len(packed) * 9 // 10])
    with pytest.raises(DataError, match=rf"a\.x\{packing}: TXT021 the packed file is damaged near its byte"):
        list(read(reader, File.at(path, "x"), ["text"], Faults(False)))
    faults, texts = Faults(True), list[str]()
    try:
        for each in read(reader, File.at(path, "x"), ["text"], faults):
            texts += each.columns["text"]
    except Skipped:
        assert format == "whole"
        texts = []
    assert faults.counts["damaged files"] == 1
    assert texts == [text for text, _ in records[: len(texts)]]
    # At the end of these files stands what is in them; of bzip2 a block is lost, of xz what its decoder holds back.
    if format not in ("whole", "parquet", "parquet of our own", "arrow", "arrow stream", "hdf5"):
        assert len(texts) >= (0 if packing in (".bz2", ".xz") else 500)


def test_a_run_is_the_same_whatever_its_records_are_in(tmp_path: Path) -> None:
    records = [(f"hello number {number}, world " * 4, "x") for number in range(60)]
    write_parquet(tmp_path / "a.parquet", [{"body": [a for a, _ in records]}])
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    write_tfrecord(tmp_path / "a.rec", [{"body": [a]} for a, _ in records])
    lines = "".join(json.dumps({"body": a}) + "\n" for a, _ in records)
    (tmp_path / "a.jsonl.zst").write_bytes(zstd.compress(lines.encode("utf-16")))
    losses = {}
    for name, format in (("a.parquet.gz", "parquet"), ("a.rec", "tfrecord"), ("a.jsonl.zst", "auto")):
        plan = nlpkernel.Plan.of(
            {
                "data": {
                    "use": "text",
                    "paths": [str(tmp_path / name)],
                    "format": format,
                    "fields": {"text": "body"},
                    "window": 32,
                },
                "model": {"use": "gpt", "layers": 1, "width": 16, "heads": 2},
                "optimizer": {"use": "adamw", "lr": 1e-3},
                "train": {"steps": 2, "batch": 4},
            }
        )
        report = nlpkernel.run(plan, runs_folder=tmp_path / name.replace(".", "-"))
        losses[name] = report.metrics["validation/loss"]
        counted = {count.what: count.number for count in report.counts}
        assert counted == ({"files read as utf-16": 1} if format == "auto" else {})
    assert losses["a.rec"] is not None
    assert len(set(losses.values())) == 1
