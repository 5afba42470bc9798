"""The readers as components. Light: libraries are imported when a reader is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.reader import Reader

_CONTENT = (
    'what of a page is its text: "main" leaves out menus, headers, footers and the like by heuristics; '
    '"all" keeps all that is visible'
)


@component
class Parquet:
    """Parquet files, row group by row group."""

    @hookimpl
    def create_reader(self) -> Reader:
        """Read with pyarrow."""
        from nlpkernel_formats.columnar import ParquetReader

        return ParquetReader()

    @hookimpl
    def write_records(self, path: Path, batches: Iterable[Mapping[str, Sequence[Any]]]) -> int:
        """Packed with zstd; the first values of columns say their types."""
        from nlpkernel_formats.writing import write_parquet

        return write_parquet(path, batches)


@component
class Arrow:
    """Arrow IPC files (Feather version 2) and streams, batch by batch."""

    @hookimpl
    def create_reader(self) -> Reader:
        """Read with pyarrow."""
        from nlpkernel_formats.columnar import ArrowReader

        return ArrowReader()


@component
class Datasets:
    """Folders that the library `datasets` wrote with `save_to_disk`; it need not be installed."""

    split: str | None = setting(
        default=None, min_length=1, help="the split to read of a folder that holds several"
    )

    @hookimpl
    def create_reader(self) -> Reader:
        """Read with pyarrow."""
        from nlpkernel_formats.datasets import DatasetsReader

        return DatasetsReader(self.split)


@component
class TfRecord:
    """TFRecord files of `tf.train.Example`; TensorFlow need not be installed."""

    @hookimpl
    def create_reader(self) -> Reader:
        """Read with our own decoder."""
        from nlpkernel_formats.tfrecord import TfRecordReader

        return TfRecordReader()

    @hookimpl
    def write_records(self, path: Path, batches: Iterable[Mapping[str, Sequence[Any]]]) -> int:
        """As `tf.train.Example`."""
        from nlpkernel_formats.writing import write_tfrecord

        return write_tfrecord(path, batches)


@component
class Hdf5:
    """HDF5 files whose datasets are columns: one row for each record."""

    @hookimpl
    def create_reader(self) -> Reader:
        """Read with h5py."""
        from nlpkernel_formats.hdf5 import Hdf5Reader

        return Hdf5Reader()


@component
class Warc:
    """WARC files of crawls: the columns "text", "title", "url" and "date" of pages, and of texts made from them."""

    libraries: ClassVar[tuple[str, ...]] = ("resiliparse",)

    content: Literal["main", "all"] = setting(default="main", help=_CONTENT)

    @hookimpl
    def create_reader(self) -> Reader:
        """Read with FastWARC and Resiliparse."""
        from nlpkernel_formats.warc import WarcReader

        return WarcReader(self.content)


@component
class Html:
    """HTML pages, one a file: the columns "text" and "title"."""

    libraries: ClassVar[tuple[str, ...]] = ("resiliparse",)

    content: Literal["main", "all"] = setting(default="main", help=_CONTENT)

    @hookimpl
    def create_reader(self) -> Reader:
        """Read with Resiliparse."""
        from nlpkernel_formats.html import HtmlReader

        return HtmlReader(self.content)
