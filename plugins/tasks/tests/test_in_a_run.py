"""Both tasks in plans, through the data, models and stores of other distributions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nlpkernel
from nlpkernel.context import Run
from nlpkernel.errors import DataError, PlanError
from nlpkernel.events import Evaluated, StepCompleted
from nlpkernel.plan.train import Train
from nlpkernel_sdk import tiny_values

README = Path(__file__).parent.parent / "README.md"
pytest.importorskip("nlpkernel_text")
pytest.importorskip("nlpkernel_transformer")

WORDS = {0: "cold snow ice winter frost", 5: "warm sun beach summer heat", 9: "rain cloud storm wind grey"}
ROWS = {"pack": "rows", "long": "truncate", "window": 16}


def write(folder: Path, name: str, labels: list[Any], count: int = 40) -> None:
    """Rows that tell their class by their words."""
    draws = np.random.default_rng(len(name))
    lines = []
    for number in range(count):
        label = labels[number % len(labels)]
        words = draws.choice(WORDS[[0, 5, 9][number % 3]].split(), 4).tolist()
        lines.append(json.dumps({"text": " ".join(words), "y": label}))
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def plan_of(folder: Path, data: dict[str, Any], **sections: Any) -> nlpkernel.Plan:
    values = tiny_values(
        data={"use": "text", "paths": ["train.jsonl"], **ROWS, **data},
        model={"use": "encoder", "preset": "nano", "layers": 1, "width": 32, **sections.pop("model", {})},
        train={
            "steps": 40,
            "batch": 8,
            "seed": 1,
            "threads": 1,
            "log": {"every": 1},
            **sections.pop("train", {}),
        },
        optimizer={"use": "adamw", "lr": 0.01},
        **sections,
    )
    return nlpkernel.Plan.of(values, base=folder)


CLASSES = {
    "validation_paths": ["held.jsonl"],
    "fields": {"label": "y"},
    "tokenizer": {"use": "wordpiece", "vocabulary": 90},
    "task": "classification",
}


def test_case_d8_labels_are_kept_with_the_version_and_come_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", [0, 5, 9])
    write(tmp_path, "held.jsonl", [0, 5, 9], 12)
    plan = plan_of(tmp_path, CLASSES, checkpoint={"use": "store"})
    report = nlpkernel.run(plan, runs_folder=tmp_path / "runs")
    assert report.metrics["validation/accuracy"] == 1.0
    assert report.main == "validation/accuracy"
    opened = nlpkernel.open_model(report.folder, device="cpu")
    assert opened.codec.info.labels == ("0", "5", "9")
    batch = opened.codec.task.batch([{"tokens": opened.codec.encode("sun heat summer"), "label": 1}])
    logits = opened.model(**opened.codec.task.inputs(batch)).logits
    assert opened.codec.info.labels[int(logits.argmax())] == "5"


def test_case_d8_a_label_that_is_never_trained_stops_the_run_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", [0, 5, 9])
    write(tmp_path, "held.jsonl", [0, 5, 7], 12)
    with pytest.raises(DataError, match=r"held\.jsonl:3:1.*'7'"):
        nlpkernel.run(plan_of(tmp_path, CLASSES), runs_folder=tmp_path / "runs")


def test_balanced_weights_are_those_of_the_training_split(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", [0, 5, 0], 30)
    task = {"use": "classification", "weights": "balanced"}
    plan = plan_of(tmp_path, {**CLASSES, "validation_paths": [], "validation": 0, "task": task})
    data = (
        plan.compose()
        .slot("data")
        .component.open_data(Run(name="x", folder=tmp_path, cache=tmp_path / "cache", train=Train(batch=30)))
    )
    (window,) = data.window(0)
    # Twenty rows of weight 0.75 and ten of weight 1.5.
    assert window.weights["loss"] == pytest.approx(30)
    assert data.task.weights([{"tokens": [1, 2], "label": 1}]) == {"loss": 1.5}


def test_weights_of_classes_that_there_are_not_stop_the_run(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", [0, 5, 9])
    write(tmp_path, "held.jsonl", [0, 5, 9], 12)
    plan = plan_of(tmp_path, {**CLASSES, "task": {"use": "classification", "weights": {"4": 2.0}}})
    with pytest.raises(DataError, match="TSK002"):
        nlpkernel.run(plan, runs_folder=tmp_path / "runs")
    with pytest.raises(PlanError, match="weights"):
        plan_of(tmp_path, {**CLASSES, "task": {"use": "classification", "weights": {"5": -1.0}}}).compose()


MASKED = {
    "fields": {"text": "text"},
    "validation": 0.2,
    "pack": "joined",
    "long": "split",
    "tokenizer": {"use": "wordpiece", "vocabulary": 90, "special": ["[MASK]"]},
    "task": "mlm",
}


def test_masks_are_of_the_step_in_training_and_of_the_sample_in_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    write(tmp_path, "train.jsonl", [0, 5, 9])

    def opened(seed: int = 1, micro: int = 8) -> Any:
        plan = plan_of(tmp_path, {**MASKED, "sampling": "order"})
        train = Train(batch=8, micro=micro, seed=seed)
        run = Run(name="x", folder=tmp_path, cache=tmp_path / "cache", train=train)
        return plan.compose().slot("data").component.open_data(run)

    def batches(data: Any, step: int) -> Any:
        return [data.microbatch(step, index) for index in range(len(data.window(step)))]

    data = opened()
    epoch = data.steps(epochs=1)
    (first,), (again,) = batches(data, 0), batches(opened(), 0)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert float((first["labels"] >= 0).sum()) == data.window(0)[0].weights["loss"]
    # The same rows in the next epoch, and with another seed.
    assert not np.array_equal(first["at"], batches(data, epoch)[0]["at"])
    assert not np.array_equal(first["at"], batches(opened(seed=2), 0)[0]["at"])
    # However the window is divided, each row has the same.
    small = batches(opened(micro=2), 0)
    width = small[0]["tokens"].shape[1]
    assert np.array_equal(first["tokens"][:2, :width], small[0]["tokens"])
    assert sum(int((each["labels"] >= 0).sum()) for each in small) == int((first["labels"] >= 0).sum())
    held, same = (list(each.evaluation("validation")) for each in (data, opened(seed=2)))
    assert all(np.array_equal(a["tokens"], b["tokens"]) for a, b in zip(held, same, strict=True))


def test_mlm_learns_in_a_plan_and_repeats_itself(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    write(tmp_path, "train.jsonl", [0, 5, 9], 200)
    plan = plan_of(tmp_path, MASKED, train={"steps": 60, "evaluate": {"every": 60, "start": True}})

    def losses(name: str) -> tuple[list[float], list[float]]:
        events = list(nlpkernel.train(plan, runs_folder=tmp_path / name))
        return (
            [float(event.sums["loss"]) for event in events if isinstance(event, StepCompleted)],
            [event.metrics["loss"] or 0 for event in events if isinstance(event, Evaluated)],
        )

    first, again = losses("first"), losses("again")
    assert first == again
    assert first[1][-1] < 0.75 * first[1][0]


def test_an_encoder_refuses_language_modelling_and_a_decoder_the_others(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", [0, 5, 9])
    write(tmp_path, "held.jsonl", [0, 5, 9], 12)
    with pytest.raises(PlanError, match=r"TRF006 an encoder has no head for the task 'lm'(.|\n)*gpt"):
        nlpkernel.run(
            plan_of(tmp_path, {"fields": {"text": "text"}, "task": "lm"}), runs_folder=tmp_path / "a"
        )
    with pytest.raises(PlanError, match="TRF006 a decoder has no head for the task 'classification'"):
        nlpkernel.run(plan_of(tmp_path, CLASSES, model={"use": "gpt"}), runs_folder=tmp_path / "b")


def test_the_plans_in_the_readme_have_no_mistakes(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    for number, block in enumerate(blocks):
        path = tmp_path / f"plan{number}.toml"
        path.write_text(
            f'{block}\n[optimizer]\nuse = "adamw"\nlr = 1e-3\n[train]\nsteps = 1\n', encoding="utf-8"
        )
        assert nlpkernel.Plan.load(path).compose()
