"""Where the documents of a plan come from: files with their readers, by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.reader import Reader
from nlpkernel_text.accounts import OWNER
from nlpkernel_text.fields import IMAGE, Fields
from nlpkernel_text.reading.by_name import ByName
from nlpkernel_text.reading.components import Auto
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.finding import find_files, stdlib_files

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.component import Text


@attrs.frozen
class Listed:
    """A file with what reads it, and which of its columns are what. format: the component that the reader is from."""

    file: File
    reader: Reader
    fields: Fields
    format: object

    @property
    def shown(self) -> str:
        """How messages call it."""
        return self.file.shown


@attrs.frozen
class Origin:
    """One source: its name, its files, and its weight in the mixture (0: as large as it is)."""

    name: str
    files: tuple[Listed, ...]
    weight: float


def origins(text: Text, run: Run, words: bool) -> list[Origin]:
    """The sources of a plan, in order; with `words` texts are taken as words. Raise DataError for a path that names
    nothing, and for one that two name."""
    if not text.sources:
        files = (
            stdlib_files()
            if text.source == "stdlib"
            else _find((*text.paths, *text.urls), text, run, text.format)
        )
        return [Origin(text.source or "", _listed(files, text.format, text.fields, run, words), 0.0)]
    found, seen = [], dict[str, str]()
    for number, source in enumerate(text.sources):
        name = source.name or str(number + 1)
        format = text.format if source.format is None else source.format
        fields = text.fields if source.fields is None else source.fields
        encoding = source.encoding or text.encoding
        files = _find((*source.paths, *source.urls), text, run, format, f"sources[{number}].paths", encoding)
        for file in files:
            if file.identity in seen:
                raise fail(
                    DataError,
                    "TXT009",
                    f"{file.shown} is named by the sources {seen[file.identity]!r} and {name!r}",
                    hint="name each file once; to see one more often, give its source a weight",
                )
            seen[file.identity] = name
        found.append(Origin(name, _listed(files, format, fields, run, words), source.weight or 0.0))
    return found


def own_files(text: Text, run: Run, words: bool) -> tuple[Listed, ...]:
    """The plan's own validation files."""
    files = _find(text.validation_paths, text, run, text.format, "validation_paths")
    return _listed(files, text.format, text.fields, run, words)


def _find(
    paths: Sequence[Any],
    text: Text,
    run: Run,
    format: object,
    setting: str = "paths",
    encoding: str | None = None,
) -> list[File]:
    name = "auto" if isinstance(format, Auto) else "text"
    faults = Faults(text.on_error == "skip")
    encoding = encoding or text.encoding
    found = find_files(paths, name, setting, encoding=encoding, storage=text.storage, faults=faults)
    for what, number in faults.counts.items():
        run.count(OWNER, what, number)
    return found


def _listed(
    files: Sequence[File], format: Any, written: Mapping[str, str], run: Run, words: bool
) -> tuple[Listed, ...]:
    reader: Reader = run.ask(format, "create_reader")
    fields, plain = Fields.of(written, words=words), Fields.of({}, words=words)
    image = fields.templates.get(IMAGE)
    listed = []
    for file in files:
        if image is not None and image.alone:
            file = attrs.evolve(file, binary=frozenset(image.columns))
        mine = reader.of(file) if isinstance(reader, ByName) else reader
        # Plain text among other files has its text and nothing else.
        bare = isinstance(reader, ByName) and file.format == "text"
        listed.append(Listed(file, mine, plain if bare else fields, format))
    return tuple(listed)
