"""Writes a small file of each format and a tokenizer into a folder, for the conformance kit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = [f"The {number} small birds see a red house." for number in range(40)]


def main(folder: Path) -> None:
    """Files named `texts`, and `tokenizer.json`."""
    conll = "".join("".join(f"{word} O\n" for word in text.split()) + "\n" for text in TEXTS)
    files = {
        "conll": conll,
        "csv": "text\n" + "".join(f'"{text}"\n' for text in TEXTS),
        "json": json.dumps([{"text": text} for text in TEXTS]),
        "jsonl": "".join(json.dumps({"text": text}) + "\n" for text in TEXTS),
        "tsv": "text\n" + "".join(f"{text}\n" for text in TEXTS),
        "txt": "".join(f"{text}\n" for text in TEXTS),
    }
    for ending, content in files.items():
        (folder / f"texts.{ending}").write_text(content, encoding="utf-8")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=letters))
    tokenizer.save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
