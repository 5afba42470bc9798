"""Synonyms from the files of WordNet 3.x, without a library.

Format: wndb(5WN). G. Miller, "WordNet: A Lexical Database for English", Communications of the ACM 38, 1995.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from nlpkernel.errors import DataError, Place, fail

#: How files call a part of speech.
_FILES = {"noun": "noun", "verb": "verb", "adjective": "adj", "adverb": "adv"}
PARTS = tuple(_FILES)


@lru_cache(maxsize=4)
def _read(path: Path, parts: tuple[str, ...], senses: int, phrases: bool) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for part in parts:
        members = _synsets(path / f"data.{_FILES[part]}", phrases)
        index = path / f"index.{_FILES[part]}"
        for number, line in enumerate(_lines(index), 1):
            if line.startswith("  "):
                continue  # The licence stands first.
            fields = line.split()
            try:
                # lemma pos synset_cnt p_cnt [ptr_symbol...] sense_cnt tagsense_cnt synset_offset...
                lemma, offsets = fields[0], fields[6 + int(fields[3]) :][:senses]
                words = [word for offset in offsets for word in members[offset]]
            except (IndexError, ValueError, KeyError) as error:
                raise _broken(index, number) from error
            others = {word: None for word in words if word.lower() != lemma}
            if others and "_" not in lemma:
                found.setdefault(lemma, {}).update(others)
    return {lemma: tuple(words) for lemma, words in found.items()}


def read_synonyms(path: Path, parts: Sequence[str], senses: int, phrases: bool) -> dict[str, tuple[str, ...]]:
    """Synonyms by lower-case word, in the order of its senses; words of several words only with `phrases`.

    Read once in a process. Raises DataError where a file is missing or not what it should be.
    """
    return _read(path, tuple(part for part in PARTS if part in parts), senses, phrases)


def _synsets(path: Path, phrases: bool) -> dict[str, list[str]]:
    """The words of each synset, by its offset."""
    members: dict[str, list[str]] = {}
    for number, line in enumerate(_lines(path), 1):
        if line.startswith("  "):
            continue
        # synset_offset lex_filenum ss_type w_cnt word lex_id [word lex_id...] ...
        fields = line.split(" ", 4)
        try:
            count = int(fields[3], 16)
            words = fields[4].split(" ", 2 * count)[: 2 * count : 2]
            if len(words) != count:
                raise ValueError("too few words")
        except (IndexError, ValueError) as error:
            raise _broken(path, number) from error
        # An adjective may carry a mark of its place: "galore(ip)".
        words = [word.partition("(")[0] for word in words]
        members[fields[0]] = [word.replace("_", " ") for word in words if phrases or "_" not in word]
    return members


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise fail(
            DataError,
            "AUG001",
            f"there is no WordNet in {path.parent}: {path.name} cannot be read ({error})",
            owner="nlpkernel-plugin-augment",
            hint="`path` is the folder that holds index.noun and data.noun",
        ) from error


def _broken(path: Path, line: int) -> DataError:
    error = fail(
        DataError,
        "AUG002",
        "this is no line of WordNet",
        place=Place(str(path), line, 1),
        owner="nlpkernel-plugin-augment",
        hint="the file is damaged, or of another release; fetch it again",
    )
    assert isinstance(error, DataError)
    return error
