"""Images and texts: the loss by contrast, retrieval, and plans that learn it from files of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nlpkernel
from nlpkernel.cli import main
from nlpkernel.errors import DataError, PlanError
from nlpkernel.events import Evaluated, StepCompleted
from nlpkernel.hookspecs.model import Outputs
from nlpkernel_sdk import shapes, tiny_values
from nlpkernel_tasks.component import ImageText
from nlpkernel_tasks.image_text import ImagePairing

HALF = (0.5, 0.5, 0.5)


def task_of(candidates: int = 100) -> ImagePairing:
    return ImagePairing(0.1, candidates, "mrr", HALF, HALF)


def rows_of(count: int, seed: int = 0) -> list[dict[str, Any]]:
    images = np.random.default_rng(seed).integers(0, 256, (count, 3, 4, 4), dtype=np.uint8)
    return [{"tokens": [1, 2 + number], "image": images[number], "number": number} for number in range(count)]


def vectors_of(count: int) -> torch.Tensor:
    first = torch.randn(count, 6, generator=torch.Generator().manual_seed(3))
    return torch.stack(
        (first, first + torch.randn(count, 6, generator=torch.Generator().manual_seed(4))), dim=1
    )


def loss_of(task: ImagePairing, vectors: torch.Tensor, rows: Any) -> float:
    (term,) = task.loss(Outputs(hidden=vectors, head=torch.tensor(10.0)), task.batch(rows))
    return float(term.sum)


def test_images_are_normalised_when_a_model_gets_them() -> None:
    rows = rows_of(3)
    batch = ImagePairing(0.1, 100, "mrr", (0.1, 0.2, 0.3), (0.5, 0.25, 1.0)).batch(rows)
    assert batch["image"].dtype == torch.uint8
    task = ImagePairing(0.1, 100, "mrr", (0.1, 0.2, 0.3), (0.5, 0.25, 1.0))
    given = task.inputs(batch)
    assert given.keys() == {"tokens", "lengths", "image"}
    mean, std = (np.array(each).reshape(3, 1, 1) for each in ((0.1, 0.2, 0.3), (0.5, 0.25, 1.0)))
    wanted = (np.stack([row["image"] for row in rows]) / 255 - mean) / std
    assert given["image"].dtype == torch.float32
    assert np.abs(given["image"].numpy() - wanted).max() < 1e-5


def test_the_loss_is_cross_entropy_in_both_directions() -> None:
    vectors = vectors_of(5)
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    scores, own = 10 * unit[:, 0] @ unit[:, 1].T, torch.arange(5)
    cross = torch.nn.functional.cross_entropy
    both = (cross(scores, own, reduction="sum") + cross(scores.T, own, reduction="sum")) / 2
    assert loss_of(task_of(), vectors, rows_of(5)) == pytest.approx(float(both), rel=1e-5)
    assert task_of().weights(rows_of(5)) == {"loss": 5.0}


def test_the_same_text_and_the_same_image_again_are_no_wrong_answers() -> None:
    # The wrong pairs are as like as the right ones.
    rows, vectors = rows_of(2), torch.ones(2, 2, 6)
    assert loss_of(task_of(), vectors, rows) > 0.1
    assert loss_of(task_of(), vectors, [rows[0], {**rows[1], "tokens": [1, 2]}]) == pytest.approx(0, abs=1e-6)
    again = {**rows[1], "image": rows[0]["image"].copy()}
    assert loss_of(task_of(), vectors, [rows[0], again]) == pytest.approx(0, abs=1e-6)
    # One pixel makes another image.
    again["image"][0, 0, 0] ^= 1
    assert loss_of(task_of(), vectors, [rows[0], again]) > 0.1


def test_retrieval_is_the_same_for_any_batches() -> None:
    task, vectors, rows = task_of(), vectors_of(20), rows_of(20)

    def values(size: int) -> Any:
        merged: dict[str, Any] = {}
        for first in range(0, 20, size):
            outputs = Outputs(hidden=vectors[first : first + size])
            found = task.evaluate(
                lambda outputs=outputs, **_: outputs, task.batch(rows[first : first + size])
            )
            for name, value in found.items():
                merged[name] = merged.get(name, 0) + value
        return task.value({name: value.tolist() for name, value in merged.items()})

    for size in (1, 3, 7):
        assert values(size) == pytest.approx(values(20), abs=1e-12)
    assert 0 < values(20)["recall_1"] < 1


def test_each_answer_has_likeness_and_both_vectors() -> None:
    task, vectors = task_of(), vectors_of(3)
    rows = [*rows_of(2), {"tokens": [], "image": np.zeros((3, 4, 4), dtype=np.uint8), "number": -1}]
    judged = task.judge(lambda **_: Outputs(hidden=vectors), task.batch(rows), None)  # type: ignore[arg-type]
    assert len(judged.answers) == 2
    for answer, (text, image) in zip(judged.answers, vectors, strict=False):
        assert answer["likeness"] == pytest.approx(
            float(torch.cosine_similarity(text, image, dim=0)), abs=1e-6
        )
        assert np.linalg.norm(answer["text"]) == pytest.approx(1, abs=1e-5)
        assert np.dot(answer["text"], answer["image"]) == pytest.approx(answer["likeness"], abs=1e-5)


def test_rows_without_an_image_are_refused() -> None:
    with pytest.raises(DataError, match=r"TSK001 the rows have no image(.|\n)*images = \{ size = 32 \}"):
        task_of().batch([{"tokens": [1]}])
    task = {"use": "image-text", "std": [1, 0, 1]}
    values = tiny_values(data={"use": "text", "paths": ["a"], "task": task})
    with pytest.raises(PlanError, match=r"data\.task\.std\[1\] is 0"):
        nlpkernel.Plan.of(values)


# -- in plans


pytest.importorskip("nlpkernel_text")
pytest.importorskip("nlpkernel_transformer")
pytest.importorskip("PIL")

DATA = {
    "use": "text",
    "paths": ["train.jsonl"],
    "validation_paths": ["held.jsonl"],
    "fields": {"text": "caption", "image": "path"},
    "images": {"size": 24},
    "pack": "rows",
    "long": "truncate",
    "window": 12,
    "tokenizer": {"use": "wordpiece", "vocabulary": 120},
    "task": "image-text",
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    shapes.write(folder, "train", each=6)
    shapes.write(folder, "held", seed=1)
    return folder


def plan_of(
    folder: Path, steps: int, model: Any = None, schedule: Any = None, **train: Any
) -> nlpkernel.Plan:
    values = tiny_values(
        data=DATA,
        model={"use": "image-text", "preset": "tiny", "layers": 1, "init_std": 0.1, **(model or {})},
        train={"steps": steps, "batch": 64, "seed": 1, "threads": 1, "log": {"every": 20}, **train},
        optimizer={"use": "adamw", "lr": 3e-3, "schedule": schedule or {"use": "cosine", "warmup": 20}},
        checkpoint={"use": "store"},
    )
    return nlpkernel.Plan.of(values, base=folder)


@pytest.fixture(scope="module")
def trained(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("trained")
    return Path(nlpkernel.run(plan_of(drawn, 150), runs_folder=runs).folder)


def test_a_model_learns_to_find_the_image_of_a_text(drawn: Path, trained: Path) -> None:
    report = json.loads((trained / "report.json").read_text())
    # Of 72 captions: by chance it is one in 72.
    assert report["metrics"]["validation/recall_1"] > 0.8
    assert report["metrics"]["validation/recall_1_back"] > 0.8
    assert report["main"] == "validation/mrr"
    opened = nlpkernel.open_model(trained, device="cpu")
    assert (opened.info.image, opened.info.task) == (24, "image-text")


def test_a_trained_model_is_tried_on_images_that_it_has_not_seen(
    drawn: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes.write(tmp_path, "new", seed=7)

    def said(*args: Any) -> str:
        assert main([str(arg) for arg in args]) == 0
        return capsys.readouterr().out

    held = json.loads(said("evaluate", trained, "--json"))
    report = json.loads((trained / "report.json").read_text())["metrics"]
    assert held["metrics"]["mrr"] == pytest.approx(report["validation/mrr"], abs=1e-9)
    new = json.loads(said("evaluate", trained, "--data", tmp_path / "new.jsonl", "--json"))
    assert new["samples"] == 72
    assert new["metrics"]["recall_1"] > 0.8
    lines = said("predict", trained, "--input", tmp_path / "new.jsonl").splitlines()
    answers = [json.loads(line) for line in lines]
    assert [answer["sample"].rpartition(":")[2] for answer in answers] == [str(n) for n in range(1, 73)]
    texts, images = (np.array([answer[name] for answer in answers]) for name in ("text", "image"))
    found = (texts @ images.T).argmax(axis=1) == np.arange(72)
    assert found.mean() == pytest.approx(new["metrics"]["recall_1"])
    # A damaged image of new samples is an error with its place.
    (tmp_path / "new" / "3.png").write_bytes(b"no image")
    assert main(["predict", str(trained), "--input", str(tmp_path / "new.jsonl")]) != 0
    assert "new.jsonl:4:1: TXT038" in capsys.readouterr().err


def test_a_run_repeats_itself_and_is_taken_up_bit_for_bit(drawn: Path, tmp_path: Path) -> None:
    changes = {"model": {"dropout": 0.2}, "schedule": "constant"}

    def losses(steps: int, folder: str, **options: Any) -> list[float]:
        events = nlpkernel.train(plan_of(drawn, steps, **changes), runs_folder=tmp_path / folder, **options)
        return [float(event.sums["loss"]) for event in events if isinstance(event, StepCompleted)]

    through = losses(8, "through")
    assert losses(4, "cut") == through[:4]
    assert losses(8, "cut", resume="newest") == through[4:]
    one, other = (
        dict(nlpkernel.open_model(tmp_path / name / "tiny", device="cpu").model.named_parameters())
        for name in ("through", "cut")
    )
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_an_evaluation_is_the_same_for_any_micro_batch(drawn: Path, tmp_path: Path) -> None:
    found = []
    for micro in (7, 32):
        plan = plan_of(drawn, 1, micro=micro, evaluate={"every": 1, "start": True})
        events = nlpkernel.train(plan, runs_folder=tmp_path / str(micro))
        found.append(next(event.metrics for event in events if isinstance(event, Evaluated)))
    assert found[0].keys() == {"loss", "recall_1", "recall_5", "recall_10", "mrr", "recall_1_back"}
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_plan_without_images_stops_before_it_trains(drawn: Path, tmp_path: Path) -> None:
    data = {**DATA, "fields": {"text": "caption"}}
    values = tiny_values(data={**data, "images": None}, model={"use": "image-text", "preset": "tiny"})
    values["data"].pop("images")
    with pytest.raises(PlanError, match="TRF007 the rows of the data have no images"):
        nlpkernel.run(nlpkernel.Plan.of(values, base=drawn), runs_folder=tmp_path)


def test_the_component_has_the_constants_of_clip() -> None:
    made = ImageText().create_task(run=None)
    batch = made.batch([{"tokens": [1], "image": np.full((3, 2, 2), 128, dtype=np.uint8)}])
    image = made.inputs(batch)["image"][0, :, 0, 0]
    wanted = [(128 / 255 - mean) / std for mean, std in zip(ImageText().mean, ImageText().std, strict=True)]
    assert image.tolist() == pytest.approx(wanted, abs=1e-5)
