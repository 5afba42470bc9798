"""Error codes of this distribution, with what `nlpkernel explain` says about each."""

from __future__ import annotations

#: Code to title and explanation.
CODES: dict[str, tuple[str, str]] = {
    "TXT001": (
        "no file is there",
        "A path of the plan names no file or folder, or a pattern fits none. Relative paths start from the folder\n"
        "of the file that writes them. `*` stands for any part of a name, `**` for any folders in between.",
    ),
    "TXT002": (
        "there is nothing to train on, or nothing to validate on",
        "The files were read and no document came out of them: they are empty, hold blank lines only, or all\n"
        "documents were left out by `long` or `on_error`. The message counts what was found.",
    ),
    "TXT003": (
        "a file is not UTF-8",
        "The bytes at the place that the message gives are no UTF-8 text: the file has another encoding, is cut\n"
        'off in the middle of a character, or is no text. Convert it, or write `on_error = "skip"` to leave\n'
        'out the line (with `documents = "file"` the file) and count it in the run\'s report.',
    ),
    "TXT004": (
        "a record is broken",
        "A line of a JSONL file is no JSON object, or a row of a CSV or TSV file does not have the columns of the\n"
        'header or has a quote that does not end. Mend the file, or write `on_error = "skip"` to leave the\n'
        "record out and count it in the run's report.",
    ),
    "TXT005": (
        "a record has no text",
        "The text of a record is taken from the key that `field` names. This record does not have the key, or its\n"
        'value is no text. Write the right name for `field`, or `on_error = "skip"` to leave such records out.',
    ),
    "TXT006": (
        "a file has no such column",
        "The first line of a CSV or TSV file names its columns, and the one that `field` names is not among them.\n"
        "The message lists those found.",
    ),
    "TXT007": (
        "the format of a file is not known",
        'With `format = "auto"` the end of a file\'s name says how it is read: .jsonl and .ndjson, .csv, .tsv and\n'
        ".tab; other names are plain text, except those that are known to be something else (.json, .parquet,\n"
        ".gz, ...). Write `format` to say what the files are, or convert them.",
    ),
    "TXT008": (
        "a character is not in the vocabulary",
        "The tokenizer `characters` knows the characters of the training split and no others. Train on text that\n"
        'holds the character, write `unknown = "replace"` to read all others as U+FFFD, or take the tokenizer\n'
        "`bytes` or `bpe`, which know every text.",
    ),
    "TXT009": (
        "the data cannot be split",
        "A validation split by document needs two documents or more. Cut the files into more documents\n"
        '(`documents = "blank"` or "line"), take the end of the text with `split = "tail"`, name files of their\n'
        "own with `validation_paths`, or do without validation (`validation = 0`).",
    ),
    "TXT010": (
        "a file changed while it was read",
        "A file of the data was written to between the moment that its content was hashed and the moment that it\n"
        "was tokenized. Run again when the file is complete.",
    ),
    "TXT011": (
        "the token cache cannot be written",
        "Tokens are kept in the cache folder, so that the next run need not make them again. The disk is full or\n"
        "the folder cannot be written to; the message says which.",
    ),
    "TXT012": (
        "the artifacts of a version do not fit",
        "A version keeps the tokenizer and what is known of its data. A file of these is missing or is not what\n"
        "this plugin writes; the version was made by something else, or is damaged.",
    ),
}
