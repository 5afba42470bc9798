"""nlpkernel_formats: readers of Parquet, Arrow, datasets folders, TFRecord, HDF5, WARC and HTML, and some writers."""

from __future__ import annotations

__version__ = "0.1.0"
