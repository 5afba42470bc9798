"""Error codes of this distribution, with what `nlpkernel explain` says about each."""

from __future__ import annotations

#: Code to title and explanation.
CODES: dict[str, tuple[str, str]] = {
    "FMT001": (
        "a file is damaged, or of another format",
        "The library for the format cannot read the file from some place on: it is cut off, a checksum does not fit,\n"
        "or the file is something else than its `format` says. Get it again, or write the right `format`. With\n"
        'on_error = "skip" the records before the damage are kept, and the file is counted in the run\'s report.',
    ),
    "FMT002": (
        "a file has no such column",
        "The file says once which columns its records have, and one that the plan asks for is not among them. The\n"
        "message lists those found. A name with dots goes into columns inside columns: `meta.title`.",
    ),
    "FMT003": (
        "a record is broken",
        "A value of the record is no UTF-8 text, its checksum does not fit, or it is longer than a record may be.\n"
        'Mend the file, or write `on_error = "skip"` to leave the record out and count it in the run\'s report.',
    ),
    "FMT004": (
        "a record lacks a column",
        "Records of a TFRecord file say each for itself which features they have. This one does not have what the\n"
        'plan asks for. Write the right name, or `on_error = "skip"` to leave such records out.',
    ),
    "FMT005": (
        "a folder is no saved dataset, or which split of it is meant is not said",
        "The reader `datasets` reads what `save_to_disk` wrote: Arrow files beside a state.json, in one folder for\n"
        "each split. The message says what is missing. With several splits, name one by `split`, or its folder.",
    ),
    "FMT006": (
        "the columns of an HDF5 file do not go together",
        "The columns of a record are datasets of the file, which have one row for each record: the same number in all\n"
        "of them. Links and data that lie in other files are not followed.",
    ),
    "FMT007": (
        "a file cannot be written",
        "The disk is full, the folder is not there or cannot be written to, or the values of a column are not all of\n"
        "one type that the format has. A file that was there before is left as it was.",
    ),
}
