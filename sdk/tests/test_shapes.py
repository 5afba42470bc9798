"""Images with captions: each shows what its caption says."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from nlpkernel_sdk import shapes

pytest.importorskip("PIL")


def test_every_caption_is_another_and_its_image_has_the_colour_where_it_says() -> None:
    from PIL import ImageColor

    assert len(set(shapes.CAPTIONS)) == len(shapes.CAPTIONS) == 72
    halves = {
        "left": (0, 0, 12, 24),
        "right": (12, 0, 24, 24),
        "top": (0, 0, 24, 12),
        "bottom": (0, 12, 24, 24),
    }
    for caption in shapes.CAPTIONS:
        _, colour, *_, place = caption.split()
        image = shapes.draw(caption, random.Random(caption))
        wanted = ImageColor.getrgb(colour)
        shares = {name: _share(image.crop(box), wanted) for name, box in halves.items()}
        assert max(shares, key=lambda name: shares[name]) == place, caption
        assert image.getpixel((0, 0)) == (255, 255, 255)


def _share(image: object, colour: tuple[int, ...]) -> float:
    import numpy as np

    return float((np.asarray(image) == np.array(colour)).all(axis=2).mean())


def test_files_of_images_are_the_same_for_a_seed(tmp_path: Path) -> None:
    one, other = (shapes.write(tmp_path / name, "a", each=2, seed=3) for name in ("one", "other"))
    records = [json.loads(line) for line in one.read_text().splitlines()]
    assert len(records) == 144
    assert one.read_bytes() == other.read_bytes()
    for record in records[:5]:
        assert (tmp_path / "one" / record["path"]).read_bytes() == (
            tmp_path / "other" / record["path"]
        ).read_bytes()
    assert shapes.write(tmp_path, "b", each=2, seed=4).read_bytes() != one.read_bytes()
