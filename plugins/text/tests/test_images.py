"""Images that belong to texts: decoded, brought to one size, kept, and given with their rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nlpkernel import component, hookimpl
from nlpkernel.cli import main
from nlpkernel.context import Run
from nlpkernel.engine.group import SingleGroup
from nlpkernel.errors import DataError
from nlpkernel.hookspecs.stage import Outcome
from nlpkernel_sdk import tiny_values
from nlpkernel_sdk.shapes import encoded
from nlpkernel_text.component import Text
from nlpkernel_text.images.decoding import Decoder, Unreadable
from nlpkernel_text.reading.components import Auto
from nlpkernel_text.samplers.components import Random
from nlpkernel_text.settings import Images, Source, Stream
from nlpkernel_text.tokenizers.components import Characters
from nlpkernel_text.unseen import open_unseen

from .conftest import COMPONENTS, Heard

Image = pytest.importorskip("PIL.Image")
Open = Callable[..., Any]

FIELDS = {"text": "caption", "image": "path"}
ROWS: dict[str, Any] = {
    "fields": FIELDS,
    "images": Images(size=4),
    "pack": "rows",
    "long": "truncate",
    "window": 16,
}


def grey(value: int, size: tuple[int, int] = (6, 6)) -> Any:
    return Image.new("RGB", size, (value, value, value))


def records(folder: Path, name: str, values: list[int], **changes: Any) -> Path:
    """An image of each value of grey in a folder beside the file, with a caption that says it."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    rows = []
    for value in values:
        path = f"pictures/{value}.png"
        (folder / path).write_bytes(encoded(grey(value)))
        rows.append({"caption": f"grey {value}", "path": changes.get(str(value), path)})
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def pairs(data: Any, split: str = "train") -> dict[str, int]:
    """The caption of each row with the grey of its image, all of whose pixels are the same."""
    packer = data.packers[split]
    rows = packer.rows(np.arange(packer.samples))
    assert rows.images.dtype == np.uint8
    assert (rows.images == rows.images[:, :1, :1, :1]).all()
    texts = [data.codec.decode([one for one in row["tokens"].tolist() if one < 256]) for row in rows]
    assert [int(row["image"][0, 0, 0]) for row in rows] == rows.images[:, 0, 0, 0].tolist()
    return dict(zip(texts, rows.images[:, 0, 0, 0].tolist(), strict=True))


def right(values: list[int]) -> dict[str, int]:
    return {f"grey {value}": value for value in values}


# -- decoding ----------------------------------------


def pixels(image: Any, format: str = "PNG", size: int = 4, fit: Any = "crop", **options: Any) -> Any:
    return Decoder(Images(size=size, fit=fit)).pixels(encoded(image, format, **options))


@pytest.mark.parametrize(
    ("mode", "colour", "format", "wanted"),
    [
        ("L", 90, "PNG", (90, 90, 90)),
        ("1", 1, "PNG", (255, 255, 255)),
        ("LA", (90, 255), "PNG", (90, 90, 90)),
        ("LA", (90, 0), "PNG", (255, 255, 255)),
        ("RGBA", (200, 100, 0, 255), "PNG", (200, 100, 0)),
        ("RGBA", (200, 100, 0, 51), "PNG", (244, 224, 204)),
        ("RGBA", (200, 100, 0, 0), "PNG", (255, 255, 255)),
        ("CMYK", (0, 255, 255, 0), "TIFF", (255, 0, 0)),
        ("I;16", 90 * 256 + 7, "PNG", (90, 90, 90)),
        ("I", 255 * 256 + 255, "TIFF", (255, 255, 255)),
        ("RGB", (1, 2, 3), "WEBP", (1, 2, 3)),
    ],
)
def test_every_kind_of_colour_becomes_red_green_and_blue(
    mode: str, colour: Any, format: str, wanted: tuple[int, int, int]
) -> None:
    options = {"lossless": True} if format == "WEBP" else {}
    found = pixels(Image.new(mode, (6, 6), colour), format, **options)
    assert (found.dtype, found.shape) == (np.uint8, (3, 4, 4))
    assert np.abs(found.astype(int) - np.array(wanted)[:, None, None]).max() <= 1


def test_a_palette_is_looked_up_and_what_it_has_of_transparency_is_white() -> None:
    image = Image.new("P", (6, 6), 1)
    image.putpalette([0, 0, 0, 10, 200, 30, 9, 9, 9])
    assert pixels(image)[:, 0, 0].tolist() == [10, 200, 30]
    assert pixels(image, transparency=1)[:, 0, 0].tolist() == [255, 255, 255]
    # A colour that stands for transparency, without a channel for it.
    assert pixels(Image.new("RGB", (6, 6), (1, 2, 3)), transparency=(1, 2, 3))[:, 0, 0].tolist() == [255] * 3


def test_a_cmyk_jpeg_is_not_inverted() -> None:
    red, green, blue = pixels(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95)[
        :, 1, 1
    ].tolist()
    assert red > 230
    assert max(green, blue) < 40


def test_exif_orientation_turns_an_image() -> None:
    image = Image.new("RGB", (8, 8), "black")
    image.paste("white", (0, 0, 4, 8))
    found = {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        turned = pixels(image, "PNG", 2, exif=exif.tobytes())[0] > 127
        found[orientation] = turned.astype(int).tolist()
    left, right, top, bottom = [[1, 0]] * 2, [[0, 1]] * 2, [[1, 1], [0, 0]], [[0, 0], [1, 1]]
    assert found == {1: left, 2: right, 3: right, 4: left, 5: top, 6: top, 7: bottom, 8: bottom}


def test_the_first_of_several_frames_is_taken() -> None:
    image = Image.new("P", (6, 6), 0)
    found = pixels(grey(50), "GIF", save_all=True, append_images=[grey(200), image])
    assert found[:, 0, 0].tolist() == [50, 50, 50]


def test_the_shorter_side_is_brought_to_size_and_the_middle_of_the_longer_one_kept() -> None:
    for wide in (True, False):
        image = Image.new("RGB", (24, 8) if wide else (8, 24), "black")
        image.paste("white", (8, 0, 16, 8) if wide else (0, 8, 8, 16))
        # The filter sees a little of what is cut off, as it does in an image that is cut after it.
        assert (pixels(image) > 230).all()
        stretched = pixels(image, size=6, fit="stretch")[0]
        line = (stretched[3] if wide else stretched[:, 3]) > 127
        assert line.tolist() == [False, False, True, True, False, False]
    # An image that is smaller than that is made larger.
    assert pixels(grey(7, (1, 2)), size=5).shape == (3, 5, 5)


@pytest.mark.parametrize("data", [b"", b"no image", encoded(grey(5, (64, 64)), "BMP")[:3000]])
def test_damaged_images_are_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        Decoder(Images(size=4)).pixels(data)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"])
def test_no_damage_is_anything_but_unreadable(format: str) -> None:
    draws = np.random.default_rng(3)
    noise = Image.fromarray(draws.integers(0, 256, (20, 20, 3), dtype=np.uint8))
    whole = bytearray(encoded(noise, format))
    decoder, bad = Decoder(Images(size=4)), 0
    for _ in range(40):
        damaged = bytearray(whole)
        for at in draws.integers(0, len(whole), 5):
            damaged[at] = draws.integers(0, 256)
        try:
            decoder.pixels(bytes(damaged[: draws.integers(1, len(whole))]))
        except Unreadable:
            bad += 1
    assert bad > 10


def test_too_many_pixels_are_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(Unreadable, match="DecompressionBomb"):
        pixels(grey(5))


# -- rows ----------------------------------------


def test_each_row_has_the_image_of_its_text(tmp_path: Path, open_text: Open) -> None:
    values = list(range(0, 250, 10))
    file = records(tmp_path / "sub", "a.jsonl", values, **{"30": str(tmp_path / "sub/pictures/30.png")})
    data = open_text(file, **ROWS, train={"batch": 5})
    assert data.info.image == 4
    assert pairs(data) == right(values)
    seen: dict[str, int] = {}
    for step in range(data.steps(epochs=1)):
        data.window(step)
        for row in data.kept(step, 0):
            seen[data.codec.decode(row["tokens"].tolist()[:-1])] = int(row["image"][0, 0, 0])
    assert seen == right(values)


def test_both_splits_and_sources_have_their_images(tmp_path: Path, open_text: Open) -> None:
    first, second = (
        records(tmp_path / "a", "a.jsonl", [1, 2, 3]),
        records(tmp_path / "b", "b.jsonl", [4, 5, 6]),
    )
    own = open_text(first, validation_paths=(second,), **ROWS)
    assert (pairs(own), pairs(own, "validation")) == (right([1, 2, 3]), right([4, 5, 6]))
    shared = open_text(first, second, validation=0.4, **ROWS)
    both = {**pairs(shared), **pairs(shared, "validation")}
    assert both == right([1, 2, 3, 4, 5, 6])
    assert len(pairs(shared, "validation")) == 2
    other = {"text": "caption", "image": "pictures/{n}.png"}
    third = tmp_path / "b" / "c.jsonl"
    third.write_text('{"caption": "grey 5", "n": 5}\n')
    sources = [Source(paths=(first,)), Source(paths=(third,), fields=other)]
    assert pairs(open_text(sources=sources, **ROWS)) == right([1, 2, 3, 5])


def test_images_are_bytes_in_formats_that_have_them(tmp_path: Path, open_text: Open) -> None:
    formats = pytest.importorskip("nlpkernel_formats.component")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    records(tmp_path, "a.jsonl", [8])
    images = [
        {"bytes": encoded(grey(7)), "path": "gone.png"},
        {"bytes": None, "path": "pictures/8.png"},
        {"bytes": encoded(grey(9), "GIF"), "path": None},
    ]
    table = pa.table({"caption": ["grey 7", "grey 8", "grey 9"], "path": images})
    pq.write_table(table, tmp_path / "a.parquet")
    data = open_text(tmp_path / "a.parquet", format=formats.Parquet(), **ROWS)
    assert pairs(data) == right([7, 8, 9])


@pytest.mark.parametrize("name", ["Parquet", "TfRecord"])
def test_a_column_of_bytes_is_an_image_and_no_text(tmp_path: Path, open_text: Open, name: str) -> None:
    formats = pytest.importorskip("nlpkernel_formats.component")
    records(tmp_path, "a.jsonl", [8])
    columns = {"caption": ["grey 7", "grey 8"], "path": [encoded(grey(7)), b"pictures/8.png"]}
    format = getattr(formats, name)()
    path = tmp_path / f"a.{name.lower()}"
    format.write_records(path=path, batches=[columns])
    assert pairs(open_text(path, format=format, **ROWS)) == right([7, 8])
    # Without a field that says so they are broken text.
    with pytest.raises(DataError, match="is not UTF-8"):
        open_text(path, format=format, fields={"text": "path"})


def test_a_stage_that_drops_documents_drops_their_images(tmp_path: Path, open_text: Open) -> None:
    file = records(tmp_path, "a.jsonl", [1, 2, 13, 24])

    class Drop:
        ordered = False

        def apply(self, documents: Any) -> Outcome:
            at = {number: "no" for number, text in enumerate(documents.texts) if "2" in text}
            return Outcome(texts=[text.upper() for text in documents.texts], dropped=at)

        def finish(self, folder: Path) -> list[str]:
            return []

    @component
    class Dropping:
        """Drops those with a 2."""

        @hookimpl
        def create_stage(self) -> Drop:
            return Drop()

    data = open_text(file, stages=[Dropping()], **ROWS)
    assert pairs(data) == {"GREY 1": 1, "GREY 13": 13}


def test_another_wording_keeps_the_image(tmp_path: Path, open_text: Open) -> None:
    file = records(tmp_path, "a.jsonl", [1, 2, 3])

    class Shout:
        def apply(self, texts: Any, keys: Any) -> list[str]:
            return [text.upper() for text in texts]

    @component
    class Shouting:
        """Shouts."""

        @hookimpl
        def create_augmentation(self) -> Shout:
            return Shout()

    data = open_text(file, augment=[Shouting()], sampling="order", train={"batch": 3}, **ROWS)
    data.window(0)
    rows = list(data.kept(0, 0))
    texts = [data.codec.decode(row["tokens"].tolist()[:-1]) for row in rows]
    assert dict(zip(texts, (int(row["image"][1, 2, 3]) for row in rows), strict=True)) == {
        f"GREY {value}": value for value in (1, 2, 3)
    }
    data.close()


def test_padding_has_a_black_image(tmp_path: Path, open_text: Open, make_run: Callable[..., Run]) -> None:
    from nlpkernel.hookspecs.communicator import Requirements

    class Fixed(SingleGroup):
        requires = Requirements(fixed_shapes=True)

    run = make_run(batch=3, micro=2)
    run.group = Fixed("cpu")
    data = open_text(records(tmp_path, "a.jsonl", [1, 2, 3]), run=run, sampling="order", **ROWS)
    data.window(0)
    images = [data.kept(0, index).images for index in range(2)]
    assert [image.shape for image in images] == [(2, 3, 4, 4)] * 2
    assert [image[:, 0, 0, 0].tolist() for image in images] == [[1, 2], [3, 0]]


# -- faults ----------------------------------------


def broken(folder: Path) -> Path:
    file = records(folder, "a.jsonl", [1, 2, 3, 4, 5])
    (folder / "pictures/2.png").unlink()
    (folder / "pictures/4.png").write_bytes(encoded(grey(4, (200, 200)))[:90])
    return file


def test_a_damaged_image_stops_the_run_with_its_place(tmp_path: Path, open_text: Open) -> None:
    file = broken(tmp_path)
    with pytest.raises(
        DataError, match=r"a\.jsonl:2:1: TXT038 the image pictures/2\.png cannot be read: No such"
    ):
        open_text(file, **ROWS)
    (tmp_path / "pictures/2.png").write_bytes(encoded(grey(2)))
    with pytest.raises(DataError, match=r"a\.jsonl:4:1: TXT038 the image pictures/4\.png cannot be read: ."):
        open_text(file, **ROWS)


def test_damaged_images_are_left_out_and_counted_where_the_plan_says_so(
    tmp_path: Path, open_text: Open, make_run: Callable[..., Run], heard: Heard
) -> None:
    file = broken(tmp_path)
    with file.open("a") as stream:
        stream.write('{"caption": "", "path": "gone.png"}\n{"caption": "no image"}\n')
    for _ in range(2):
        run = make_run()
        data = open_text(file, on_error="skip", run=run, validation=0.34, **ROWS)
        assert {**pairs(data), **pairs(data, "validation")} == right([1, 3, 5])
        counts = {what: number for (_, what), number in run.counts.items()}
        assert counts["broken images"] == 2
        assert counts["broken records"] == counts["records with an empty text"] == 1
    assert any("a.jsonl:2:1" in notice and "2 broken images" in notice for notice in heard.notices)


def test_nothing_but_damaged_images_is_nothing_to_train_on(tmp_path: Path, open_text: Open) -> None:
    file = records(tmp_path, "a.jsonl", [1, 2])
    for value in (1, 2):
        (tmp_path / f"pictures/{value}.png").unlink()
    with pytest.raises(DataError, match=r"TXT002(.|\n)*2 broken images"):
        open_text(file, on_error="skip", **ROWS)


@pytest.mark.parametrize("value", [None, 7, "", {"path": None, "bytes": None}, ["a.png"]])
def test_what_is_no_image_is_a_broken_record(tmp_path: Path, open_text: Open, value: Any) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"caption": "x", "path": value}) + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl:1:1: TXT005 the value of 'path' is no image"):
        open_text(file, **ROWS)


def test_without_pillow_the_command_that_installs_it_is_named(
    tmp_path: Path, open_text: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = records(tmp_path, "a.jsonl", [1])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r'TXT026(.|\n)*pip install "nlpkernel-plugin-text\[images\]"'):
        open_text(file, **ROWS)


def test_some_documents_with_an_image_and_some_without_are_refused(tmp_path: Path, open_text: Open) -> None:
    file, plain = records(tmp_path, "a.jsonl", [1]), tmp_path / "b.txt"
    plain.write_text("words")
    with pytest.raises(DataError, match=r"TXT036 documents of .*b\.txt have no image"):
        open_text(file, plain, **ROWS)


def test_an_image_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, open_text: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = records(tmp_path, "a.jsonl", [1]), Decoder.pixels

    def written(self: Decoder, data: bytes) -> Any:
        (tmp_path / "pictures/1.png").write_bytes(encoded(grey(99)))
        return read(self, data)

    monkeypatch.setattr(Decoder, "pixels", written)
    with pytest.raises(DataError, match=r"an image of .*a\.jsonl: TXT010"):
        open_text(file, **ROWS)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"images": None}, "images"),
        ({"fields": {"text": "caption"}}, "images"),
        ({"pack": "joined", "long": "split"}, "fields"),
        ({"pack": "isolated", "long": "split"}, "fields"),
        ({"long": "split"}, "fields"),
        ({"split": "tail", "validation": 0.1}, "split"),
        ({"stream": Stream()}, "fields"),
        ({"sampling": Random()}, None),
    ],
)
def test_settings_that_do_not_go_with_images_are_refused(changes: Any, wrong: str | None) -> None:
    text = Text(**{**COMPONENTS, "paths": (Path("a.jsonl"),), **ROWS, **changes})
    assert [name for name, _ in text.check_settings()] == ([] if wrong is None else [wrong])


# -- cache, commands, unseen ----------------------------------------


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each image that is decoded."""
    seen: list[int] = []
    real = Decoder.pixels

    def counted(self: Decoder, data: bytes) -> Any:
        seen.append(len(data))
        return real(self, data)

    monkeypatch.setattr(Decoder, "pixels", counted)
    return seen


def test_images_are_decoded_once_for_their_content_and_settings(
    tmp_path: Path, open_text: Open, decoded: list[int]
) -> None:
    file = records(tmp_path, "a.jsonl", [1, 2, 3])
    first = open_text(file, **ROWS)
    assert len(decoded) == 3
    again = open_text(file, **ROWS)
    assert again.info.fingerprint == first.info.fingerprint
    # Other tokens and rows are made of the same images.
    assert pairs(open_text(file, tokenizer=Characters(), **{**ROWS, "window": 20})) != {}
    assert len(decoded) == 3
    open_text(file, **{**ROWS, "images": Images(size=5)})
    assert len(decoded) == 6
    (tmp_path / "pictures/2.png").write_bytes(encoded(grey(77)))
    other = open_text(file, **ROWS)
    assert len(decoded) == 9
    assert pairs(other)["grey 2"] == 77
    assert other.info.fingerprint != first.info.fingerprint


def test_an_entry_without_images_is_built_again(tmp_path: Path, open_text: Open, decoded: list[int]) -> None:
    file = records(tmp_path, "a.jsonl", [1, 2, 3])
    before = pairs(open_text(file, **ROWS))
    (path,) = (tmp_path / "cache" / "text").glob("*/pixels")
    path.write_bytes(path.read_bytes()[:-1])
    assert pairs(open_text(file, **ROWS)) == before
    assert len(decoded) == 6


def test_unseen_samples_have_their_images(
    tmp_path: Path, open_text: Open, make_run: Callable[..., Run]
) -> None:
    data = open_text(records(tmp_path, "a.jsonl", [1, 2, 3]), **ROWS)
    held = records(tmp_path / "held", "b.jsonl", [40, 50])
    text = Text(paths=(tmp_path / "a.jsonl",), **{**COMPONENTS, **ROWS, "format": Auto()})
    samples = open_unseen(text, make_run(), data.codec, [str(held)], False)
    assert samples.samples == 2
    rows = samples._packer.rows(np.arange(2))
    assert rows.images is not None
    assert rows.images[:, 0, 0, 0].tolist() == [40, 50]


def test_the_command_shows_images_and_writes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NLPKERNEL_CACHE", str(tmp_path / "cache"))
    records(tmp_path, "a.jsonl", [1, 2, 3])
    data = {
        "use": "text",
        "paths": ["a.jsonl"],
        "fields": FIELDS,
        "images": {"size": 4},
        "pack": "rows",
        "long": "truncate",
        "validation": 0,
    }
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(tiny_values(data=data)))

    def said(*args: str) -> str:
        assert main(["data", str(plan), *args]) == 0
        return capsys.readouterr().out

    assert "images       3 of 4 x 4 pixels, 144 B" in said("--stats")
    assert "image of 4 x 4 pixels" in said("--show", "2")
    found = json.loads(said("--stats", "--show", "1", "--build", "--json"))
    assert found["stats"]["images"] == {"count": 3, "size": 4}
    assert found["show"][0]["image"] == [4, 4]
    assert [entry["what"] for entry in found["build"]["entries"]] == ["images", "tokens"]
    assert "image: 'pictures/2.png'" in said("--trace", f"{tmp_path}/a.jsonl:2")
    assert main(["data", str(plan), "--write", str(tmp_path / "out.jsonl")]) != 0
    assert "TXT027 images are not written" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
    said("--clean")
    assert not list((tmp_path / "cache" / "text").glob("*/pixels"))


@pytest.mark.parametrize(
    ("mode", "value", "said"),
    [("F", 0.5, "fractions"), ("I", 70_000, "not of 16 bits"), ("I", 200, "not of 16 bits")],
)
def test_values_whose_range_nobody_knows_are_no_black_image(mode: str, value: float, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        Decoder(Images(size=4)).pixels(encoded(Image.new(mode, (6, 6), value), "TIFF"))


def test_more_pixels_than_the_library_takes_without_a_warning_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)
    with pytest.raises(Unreadable, match="6 x 6 pixels are more than are decoded"):
        Decoder(Images(size=4)).pixels(encoded(grey(3)))


def test_a_program_that_draws_an_image_is_not_run() -> None:
    with pytest.raises(Unreadable):
        Decoder(Images(size=4)).pixels(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n")
