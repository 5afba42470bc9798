"""Makes a small WordNet and two runs that translate, as far as a few steps go, for the conformance kit."""

from __future__ import annotations

import sys
from pathlib import Path

from conftest import write_wordnet
from test_back_translation import lines, sentences, trained, translation


def main(folder: Path) -> None:
    """`dict`, and the runs `there` and `back`."""
    write_wordnet(folder / "dict")
    for name, text, target in (("there", "en", "de"), ("back", "de", "en")):
        lines(folder / f"{name}.jsonl", [{"en": each, "de": each.upper()} for each in sentences(40, 1)])
        trained(folder, name, translation(name, text, target, steps=8))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
