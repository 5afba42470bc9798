from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

LICENCE = "  1 This is a licence, as in the real files.  \n  2 It has lines that begin with two spaces.  \n"

#: Synsets by part of speech, in the order of their offsets; a word's senses are in this order, too.
SYNSETS: Mapping[str, Sequence[Sequence[str]]] = {
    "noun": [
        ["dog", "domestic_dog", "Canis_familiaris"],
        ["dog", "frank", "hot_dog"],
        ["house"],
        ["car", "auto", "automobile"],
    ],
    "verb": [["buy", "purchase"], ["chase", "dog", "tail"]],
    "adj": [["quick", "speedy"], ["quick", "agile", "nimble"], ["galore(ip)", "plenty(a)"], ["in", "modish"]],
    "adv": [["quickly", "rapidly", "speedily"]],
}


def write_wordnet(folder: Path) -> Path:
    """A small WordNet in the format of wndb(5WN)."""
    folder.mkdir(exist_ok=True)
    for part, synsets in SYNSETS.items():
        data, offsets = LICENCE, []
        for words in synsets:
            offsets.append(len(data))
            members = " ".join(f"{word} 0" for word in words)
            data += f'{len(data):08d} 03 {part[0]} {len(words):02x} {members} 000 | a gloss; "an example"  \n'
        (folder / f"data.{part}").write_text(data, encoding="utf-8")
        index = LICENCE
        lemmas = sorted({word.partition("(")[0].lower() for words in synsets for word in words})
        for lemma in lemmas:
            senses = [
                f"{offset:08d}"
                for offset, words in zip(offsets, synsets, strict=True)
                if lemma in [word.partition("(")[0].lower() for word in words]
            ]
            index += f"{lemma} {part[0]} {len(senses)} 2 @ ~ {len(senses)} 1 {' '.join(senses)}  \n"
        (folder / f"index.{part}").write_text(index, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def wordnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wordnet(tmp_path_factory.mktemp("wordnet") / "dict")
