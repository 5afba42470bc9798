"""Tables inside `[data]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from nlpkernel import extension, setting
from nlpkernel.components import settings


@settings
class Source:
    """One source of a mixture: some files, and their share of what is trained on. What it leaves out is as `[data]`
    says."""

    name: str = setting(default="", help="how it is called in messages and in weights; left out: its number")
    paths: tuple[Path, ...] = setting(default=(), help="files, folders and patterns")
    urls: tuple[str, ...] = setting(default=(), help="files elsewhere: s3://bucket/folder/*.jsonl.gz")
    weight: float | None = setting(
        default=None, gt=0, help="its share, relative to the others; left out (of all): the rows that it has"
    )
    format: Any = extension("reader", default=None, help="how the files are read")
    fields: dict[str, str] | None = setting(default=None, help="which columns are what")
    encoding: str | None = setting(default=None, help="what text is in")


@settings
class Stream:
    """Reading as training goes on, without ever holding the set, in memory or on disk."""

    buffer: int = setting(
        default=4096,
        ge=1,
        unit="count",
        help="rows among which the next ones are drawn; 1: in the order of the files",
    )
    sample: int = setting(
        default=20_000_000,
        ge=1,
        unit="count",
        help="characters from the beginning that a tokenizer is trained on which has to be trained",
    )
    ahead: int = setting(
        default=4, ge=0, help="batches of documents that are read and tokenized ahead, by a thread of its own"
    )


@settings
class Images:
    """How the images that belong to texts are brought to one size. They are decoded once, into the cache."""

    size: int = setting(ge=1, help="pixels of a side")
    fit: Literal["crop", "stretch"] = setting(
        default="crop",
        help="crop: the shorter side becomes `size`, and of the longer one its middle is kept; stretch: both sides "
        "become `size`",
    )


@settings
class Caching:
    """What is kept so that it need not be made again."""

    limit: int | None = setting(
        default=None,
        ge=0,
        unit="bytes",
        help="most bytes of the cache on disk: when one is added, entries go that were not used for longest, an hour "
        "at least",
    )
    batches: int = setting(
        default=0,
        ge=0,
        unit="bytes",
        help="most bytes of batches that are kept in memory, the last used ones",
    )
