"""What the end of a file's name says: how it is packed, and which reader knows its format."""

from __future__ import annotations

from types import MappingProxyType

#: Ends of names of packed files, to how they are packed.
PACKED = MappingProxyType({".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"})

#: Ends of names to the readers of this distribution, which `format = "auto"` chooses among.
BUILT_IN = MappingProxyType(
    {
        ".jsonl": "jsonl",
        ".ndjson": "jsonl",
        ".json": "json",
        ".csv": "csv",
        ".tsv": "tsv",
        ".tab": "tsv",
    }
)

#: What brings the readers of `PLUGIN`.
PLUGIN_DISTRIBUTION = "nlpkernel-plugin-formats"

#: Ends of names to readers of that distribution.
PLUGIN = MappingProxyType(
    {
        ".parquet": "parquet",
        ".arrow": "arrow",
        ".feather": "arrow",
        ".tfrecord": "tfrecord",
        ".tfrecords": "tfrecord",
        ".h5": "hdf5",
        ".hdf5": "hdf5",
        ".warc": "warc",
        ".html": "html",
        ".htm": "html",
        ".xhtml": "html",
    }
)

#: Ends of names that are certainly not plain text and that no reader knows.
FOREIGN = frozenset(
    [
        ".orc",
        ".avro",
        ".zip",
        ".tar",
        ".tgz",
        ".7z",
        ".rar",
        ".lz4",
        ".pdf",
        ".doc",
        ".docx",
        ".odt",
        ".xls",
        ".xlsx",
        ".ods",
        ".ppt",
        ".pptx",
        ".epub",
        ".npy",
        ".npz",
        ".pt",
        ".pth",
        ".safetensors",
        ".gguf",
        ".bin",
        ".pickle",
        ".pkl",
        ".sqlite",
        ".db",
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".webp",
        ".mp3",
        ".wav",
        ".flac",
        ".mp4",
    ]
)

#: Formats that are text, and so have an encoding, of the readers above.
TEXT = frozenset({"text", "jsonl", "json", "csv", "tsv", "conll"})


def unpacked(name: str) -> tuple[str, str | None]:
    """A file's name without the end that says how it is packed, and that: ("a.jsonl", "gzip") for "a.jsonl.gz"."""
    suffix = _suffix(name)
    packing = PACKED.get(suffix)
    return (name[: -len(suffix)], packing) if packing else (name, None)


def suffix_of(name: str) -> str:
    """The end of a file's name that says its format, in small letters: ".jsonl" for "a.JSONL.gz"."""
    return _suffix(unpacked(name)[0])


def reader_for(suffix: str) -> str | None:
    """The name of the reader for files with this end of their names, of this distribution or of
    `PLUGIN_DISTRIBUTION`. None where the end says nothing, as ".txt" and "" do, and for `FOREIGN` ones."""
    return BUILT_IN.get(suffix) or PLUGIN.get(suffix)


def _suffix(name: str) -> str:
    stem, dot, end = name.rpartition("/")[2].rpartition(".")
    return f".{end.lower()}" if dot and stem else ""
