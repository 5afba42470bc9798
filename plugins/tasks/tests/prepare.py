"""Writes images with captions, for the conformance kit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from PIL import Image

COLOURS = ("red", "green", "blue", "yellow", "black", "white")


def main(folder: Path) -> None:
    """`images.jsonl`, and the images beside it."""
    lines = []
    for number in range(24):
        colour, name = COLOURS[number % len(COLOURS)], f"{number}.png"
        Image.new("RGB", (16 + number, 16), colour).save(folder / name)
        lines.append(json.dumps({"caption": f"a {colour} field, {number}", "path": name}) + "\n")
    (folder / "images.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
