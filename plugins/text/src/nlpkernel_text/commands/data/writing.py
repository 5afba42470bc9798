"""Write the cleaned documents of a plan to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpkernel.errors import Place, UsageError, fail
from nlpkernel_text.building import Building
from nlpkernel_text.cleaning.batches import batches
from nlpkernel_text.commands.opened import structured
from nlpkernel_text.fields import IMAGE, TEXT
from nlpkernel_text.reading.suffixes import reader_for, suffix_of, unpacked

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.component import Text

#: The column that says where a document comes from.
SOURCE = "source"


def write(
    text: Text, run: Run, name: str, overwrite: bool, whole: Callable[[], Building]
) -> tuple[object, list[str]]:
    """Write all documents, those for validation too, in the order of the files: text, the other fields of the plan
    (None where a file does not have one), and "source", where each comes from."""
    path = Path(name)
    format = reader_for(suffix_of(name))
    place = Place(name)
    if format is None:
        message = f"the end of {path.name!r} names no format that can be written"
        raise fail(
            UsageError, "TXT007", message, place=place, hint="write .jsonl, .jsonl.gz, .parquet or .tfrecord"
        )
    component = structured("reader", {"use": format})
    if not hasattr(component, "write_records"):
        raise fail(UsageError, "TXT007", f"the reader {format!r} cannot write", place=place)
    bare, packing = unpacked(path.name)
    if packing is not None and format != "jsonl":
        message = f"files of the format {format!r} are not packed as a whole"
        raise fail(UsageError, "TXT007", message, place=place, hint=f"write {bare}")
    if path.exists() and not overwrite:
        raise fail(
            UsageError, "TXT027", "the file is there already", place=place, hint="--overwrite replaces it"
        )
    building = whole()
    fields = dict.fromkeys(
        each for file in building.corpus.files for each in file.fields.templates if each != TEXT
    )
    if IMAGE in fields:
        message = "images are not written, and without them the documents would not be those of the plan"
        raise fail(UsageError, "TXT027", message, place=place, hint="leave the image out of `fields`")
    if SOURCE in fields:
        message = f"the plan has a field {SOURCE!r}, and so is called what says where a document comes from"
        hint = "give the field another name in `fields`"
        raise fail(UsageError, "TXT027", message, place=place, hint=hint)
    corpus = building.documents()

    def records() -> Iterator[Mapping[str, Sequence[Any]]]:
        found = ((number, chunk) for number in range(len(corpus.files)) for chunk in corpus.chunks(number))
        for batch in batches(found):
            sources = [
                f"{corpus.files[file].shown}:{place}"
                for file, place in zip(batch.files, batch.places, strict=True)
            ]
            columns = {each: batch.columns.get(each) or [None] * len(batch) for each in fields}
            yield {TEXT: batch.texts, **columns, SOURCE: sources}

    count = run.ask(component, "write_records", path=path, batches=records())
    return {"file": str(path), "documents": count}, [f"{count:,} documents in {path}"]
