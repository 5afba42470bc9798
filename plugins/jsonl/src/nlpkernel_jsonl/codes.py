"""Error codes of the event file, as `nlpkernel explain CODE` shows them."""

CODES: dict[str, tuple[str, str]] = {
    "JSL001": (
        "the event file cannot be opened",
        "The run's events are written to events.jsonl in its folder, or to the file that the setting `path` names.\n"
        "That file cannot be opened for appending: a folder of that name, no right to write, or no such disk.\n"
        "Nothing has been started. Mend the place, or give the monitor another `path`.",
    ),
}
