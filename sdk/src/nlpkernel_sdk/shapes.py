"""Small images with captions, for tests of what learns from both. Pillow is imported when one is drawn."""

from __future__ import annotations

import io
import itertools
import json
import random
from pathlib import Path
from typing import Any

COLOURS = ("red", "green", "blue", "yellow", "purple", "black")
KINDS = ("circle", "square", "triangle")
PLACES = ("left", "right", "top", "bottom")

#: All captions there are.
CAPTIONS = tuple(
    f"a {colour} {kind} on the {place}" for colour, kind, place in itertools.product(COLOURS, KINDS, PLACES)
)
_MIDDLES = {"left": (0.27, 0.5), "right": (0.73, 0.5), "top": (0.5, 0.27), "bottom": (0.5, 0.73)}


def draw(caption: str, draws: random.Random, size: int = 24) -> Any:
    """The image of a caption, by Pillow: a shape that is not always quite at the same place and of the same size."""
    from PIL import Image, ImageDraw

    _, colour, kind, _, _, place = caption.split()
    across, down = (each * size + draws.uniform(-1, 1) * size / 24 for each in _MIDDLES[place])
    half = size * draws.uniform(0.17, 0.22)
    box = across - half, down - half, across + half, down + half
    image = Image.new("RGB", (size, size), "white")
    pen = ImageDraw.Draw(image)
    if kind == "circle":
        pen.ellipse(box, fill=colour)
    elif kind == "square":
        pen.rectangle(box, fill=colour)
    else:
        pen.polygon([(across, down - half), (box[0], box[3]), (box[2], box[3])], fill=colour)
    return image


def encoded(image: Any, format: str = "PNG", **options: Any) -> bytes:
    """The bytes of an image's file."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def write(folder: Path, name: str, each: int = 1, seed: int = 0, size: int = 24) -> Path:
    """`name`.jsonl, with `each` images of every caption in the folder `name` beside it: records have "caption" and
    "path", in a drawn order."""
    draws = random.Random(seed)
    (folder / name).mkdir(parents=True)
    captions = [*CAPTIONS] * each
    draws.shuffle(captions)
    records = []
    for number, caption in enumerate(captions):
        path = f"{name}/{number}.png"
        (folder / path).write_bytes(encoded(draw(caption, draws, size)))
        records.append({"caption": caption, "path": path})
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file
