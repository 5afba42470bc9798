"""Error codes, with what `nlpkernel explain` says about each."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "MAI001": (
        "a mail has no such column",
        "A mail has the columns text, subject, from and date. Write one of them in `fields`.",
    ),
    "MAI002": (
        "a mail cannot be read",
        "A header or the encoding of a mail is broken, or the file is no mbox file. The message says where. With\n"
        '`on_error = "skip"` it is left out and counted.',
    ),
}
