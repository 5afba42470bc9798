"""From the columns of records to what a document is: its text, and what else the plan names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import attrs

from nlpkernel.errors import Place
from nlpkernel.hookspecs.reader import Faults, Records
from nlpkernel_text.chunks import Chunk
from nlpkernel_text.images import decoding
from nlpkernel_text.reading.columns import BROKEN, EMPTY
from nlpkernel_text.reading.plain import COLUMN

#: What a document has to have.
TEXT, LABEL, WEIGHT = "text", "label", "weight"
#: Any number of labels.
LABELS = "labels"
#: A second text that belongs to the first; and a label for each word of the text.
TARGET, TAGS = "target", "tags"
#: A text that stands before the text, and that a language model does not learn to say.
PROMPT = "prompt"
#: An image that belongs to the text.
IMAGE = "image"
#: The words of a text that has tags. No field of a plan, but made of its text.
WORDS = "words"

_HOLE = re.compile(r"\{([^{}]*)\}")

Unit = Literal["line", "record"]
#: The number of an image, of what a record has for it and where that stands; None for one that cannot be read, which
#: has been told of. Asked once for each document that nothing else is wrong with, in their order.
Taking = Callable[[Any, Place], int | None]


class Template(NamedTuple):
    """A text with holes for columns: parts[0], column 0, parts[1], ... A column alone has two empty parts."""

    parts: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def of(cls, written: str) -> Template:
        """As the plan writes it: a column's name, or a text with names in braces ("{title}. {body}")."""
        pieces = _HOLE.split(written)
        return cls(tuple(pieces[::2]), tuple(pieces[1::2])) if len(pieces) > 1 else cls(("", ""), (written,))

    @property
    def alone(self) -> bool:
        """Whether it is one column, as it is."""
        return self.parts == ("", "")

    def fill(self, row: Mapping[str, Any]) -> Any:
        """The column's value, or the text; that is empty where all its columns are."""
        if self.alone:
            return row[self.columns[0]]
        values = [row[column] for column in self.columns]
        if all(value is None or value == "" for value in values):
            return ""
        filled = [self.parts[0]]
        for value, after in zip(values, self.parts[1:], strict=True):
            filled += ["" if value is None else str(value), after]
        return "".join(filled)


@attrs.frozen
class Fields:
    """Which columns a plan takes, by what they are for: "text", "label", "image", or a name that a stage asks for.
    words: texts are taken as words, as those that have tags always are."""

    templates: Mapping[str, Template]
    words: bool = False

    @classmethod
    def of(cls, written: Mapping[str, str], *, words: bool = False) -> Fields:
        """As the plan writes them; the text is the column "text" where it says nothing else."""
        templates = {name: Template.of(value) for name, value in {TEXT: COLUMN, **written}.items()}
        return cls(templates, words or TAGS in templates)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are needed, each once."""
        return tuple(dict.fromkeys(column for each in self.templates.values() for column in each.columns))

    def chunk(
        self, records: Records, shown: str, unit: Unit, faults: Faults, taking: Taking | None = None
    ) -> Chunk:
        """The documents of some records; it may be none. One whose text is empty is left out and counted; one that
        cannot be used is broken: its text is no text, its label neither text nor a whole number, its weight no number
        above 0, its tags not one for each of its words. In formats whose `unit` are records, a text that is null is an
        empty one. An image becomes what `taking` makes of it; without that, what can be shown of it."""
        template = self.templates[TEXT]
        if len(self.templates) == 1 and template.alone and not self.words:
            texts = records.columns[template.columns[0]]
            # Twice as fast as a look at each.
            if all(texts) and set(map(type, texts)) <= {str}:
                return Chunk(list(texts), records.places, records.opens, records.closes)
        made: dict[str, list[Any]] = {name: [] for name in self.templates}
        if self.words:
            made[WORDS] = []
        places = []
        for number, place in enumerate(records.places):
            row = {column: values[number] for column, values in records.columns.items()}
            at = Place(shown, place, 1)
            document = self._document(row, at, unit, faults)
            if document is not None and taking is not None and IMAGE in document:
                document[IMAGE] = taking(self.templates[IMAGE].fill(row), at)
                if document[IMAGE] is None:
                    continue
            if document is not None:
                places.append(place)
                for name, value in document.items():
                    made[name].append(value)
        return Chunk(made.pop(TEXT), places, records.opens, records.closes, made)

    def _document(
        self, row: Mapping[str, Any], place: Place, unit: Unit, faults: Faults
    ) -> dict[str, Any] | None:
        found: dict[str, Any] = {}
        for name, template in self.templates.items():
            value = given = template.fill(row)
            if name == TEXT and self.words:
                found[WORDS], wrong = _words(value)
                value = " ".join(found[WORDS])
            elif name in (TEXT, TARGET, PROMPT):
                if value is None and unit == "record":
                    value = ""
                wrong = None if isinstance(value, str) else "is no text but"
            elif name == LABELS:
                value, wrong = _labels(value)
            elif name == TAGS:
                value, wrong = _tags(value, len(found[WORDS]))
            else:
                wrong = _CHECKS[name](value) if name in _CHECKS else None
            if wrong is not None:
                shown = json.dumps(given, default=repr)[:40]
                what = f"the value of {template.columns[0]!r} {wrong} {shown}"
                faults.broken(BROKEN, "TXT005", what, place)
                return None
            if name == IMAGE:
                value = decoding.shown(value)
            found[name] = value if name in (TEXT, TAGS, LABELS) else _simple(value)
        if not found[TEXT] or found.get(TARGET) == "":
            faults.count(EMPTY)
            return None
        return found


def _simple(value: Any) -> Any:
    """A value as stages get it and the cache keeps it; what is more than that as JSON, or as text."""
    if value is None or isinstance(value, (str, bool, float)):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else str(value)
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value)


def _words(value: Any) -> tuple[list[str], str | None]:
    """The words of a text, which is a list of them, or has white space between them; and what is wrong with it."""
    if isinstance(value, str):
        return value.split(), None
    if isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value):
        return list(value), None
    return [], "is no text and no list of words but"


def _tags(value: Any, words: int) -> tuple[list[Any], str | None]:
    """The tags of so many words, as `_words` takes words; and what is wrong with them."""
    tags = value.split() if isinstance(value, str) else value
    if not isinstance(tags, (list, tuple)) or any(map(_no_label, tags)):
        return [], "is no list of tags but"
    wrong = None if len(tags) == words else f"has {len(tags)} tags for {words} words:"
    return list(tags), wrong


def _labels(value: Any) -> tuple[list[Any], str | None]:
    """Labels, each once, of a list of them (as JSON, too, which tables have) or a text with commas between them; and
    what is wrong with them."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    elif isinstance(value, str):
        value = [name for name in map(str.strip, value.split(",")) if name]
    if not isinstance(value, (list, tuple)) or any(map(_no_label, value)):
        return [], "is no list of labels but"
    return list(dict.fromkeys(value)), None


def _no_label(value: object) -> str | None:
    good = isinstance(value, (str, int)) and value != ""
    return None if good else "is no label, which is a text or a whole number, but"


def _no_weight(value: object) -> str | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = 0.0
    return None if 0 < number < float("inf") else "is no weight, which is a number above 0, but"


def _no_image(value: object) -> str | None:
    return "is no image, which is a path or bytes, but" if decoding.given(value) is None else None


_CHECKS = {LABEL: _no_label, WEIGHT: _no_weight, IMAGE: _no_image}
