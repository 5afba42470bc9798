"""Writes a small file of each format into a folder, for the conformance kit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py
import pyarrow as pa
import pyarrow.parquet as pq

from nlpkernel_formats.writing import write_tfrecord

TEXTS = [f"The {number} small birds see a red house." for number in range(24)]
PAGE = (
    "<!DOCTYPE html><html><head><title>Birds</title></head><body><article><p>{}</p></article></body></html>"
)


def stream(path: Path, table: pa.Table) -> None:
    """An Arrow stream."""
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def record(number: int, text: str) -> bytes:
    """A text of a crawl."""
    content = text.encode()
    head = (
        "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: http://example.org/a\r\n"
        f"WARC-Date: 2026-01-02T03:04:05Z\r\nWARC-Record-ID: <urn:uuid:{number:08d}-0000-0000-0000-000000000001>\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content + b"\r\n\r\n"


def main(folder: Path) -> None:
    """One file of each."""
    table = pa.table({"text": TEXTS})
    pq.write_table(table, folder / "texts.parquet")
    with pa.ipc.new_file(str(folder / "texts.arrow"), table.schema) as writer:
        writer.write_table(table)
    (folder / "saved").mkdir()
    stream(folder / "saved/data-00000-of-00001.arrow", table)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": None}
    (folder / "saved/state.json").write_text(json.dumps(state), encoding="utf-8")
    (folder / "saved/dataset_info.json").write_text("{}", encoding="utf-8")
    with h5py.File(folder / "texts.h5", "w") as file:
        file.create_dataset("text", data=TEXTS, dtype=h5py.string_dtype())
    write_tfrecord(folder / "texts.tfrecord", [{"text": TEXTS}])
    (folder / "texts.warc").write_bytes(b"".join(record(number, text) for number, text in enumerate(TEXTS)))
    (folder / "pages").mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"pages/{number}.html").write_text(PAGE.format(text), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
