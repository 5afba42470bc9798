"""Back-translation by two tiny models of a toy language, in which each thing has two words."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nlpkernel
from nlpkernel.context import Run
from nlpkernel.errors import DataError, NlpkernelError
from nlpkernel.events import StepCompleted
from nlpkernel.hookspecs.augmentation import Augmentation
from nlpkernel.plan.train import Train
from nlpkernel_augment.component import BackTranslation
from nlpkernel_augment.translating import BackTranslating
from nlpkernel_sdk import tiny_values

pytest.importorskip("nlpkernel_text")
pytest.importorskip("nlpkernel_transformer")
pytest.importorskip("nlpkernel_tasks")

#: Things by the words of two languages: the first word of one is the first of the other on the way back, and either on
#: the way there.
THINGS = {
    "water": (("rain", "shower"), ("regen", "guss")),
    "light": (("sun", "star"), ("sonne", "stern")),
    "cold": (("snow", "frost"), ("schnee", "reif")),
}
STEPS = 1000
MEANS = {word: thing for thing, (own, _) in THINGS.items() for word in own}


def meaning(text: str) -> list[str]:
    return [MEANS[word] for word in text.split()]


def sentences(count: int, seed: int) -> list[str]:
    draws = np.random.default_rng(seed)
    return [" ".join(draws.choice(list(MEANS), draws.integers(1, 4))) for _ in range(count)]


def lines(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def values_of(path: str, fields: dict[str, str], task: Any, model: str, **more: Any) -> dict[str, Any]:
    return tiny_values(
        data={
            "use": "text",
            "paths": [path],
            "validation": 0,
            "fields": fields,
            "task": task,
            "pack": "rows",
            "long": "truncate",
            "window": 8,
            "tokenizer": {"use": "wordpiece", "vocabulary": 120},
            **more.pop("data", {}),
        },
        model={"use": model, "preset": "nano", "layers": 1, "width": 32},
        optimizer={"use": "adamw", "lr": 0.003},
        checkpoint={"use": "store"},
        **more,
    )


def trained(folder: Path, name: str, values: dict[str, Any]) -> Path:
    made = nlpkernel.run(nlpkernel.Plan.of(values, base=folder), runs_folder=folder / name)
    return Path(made.folder)


def translation(name: str, text: str, target: str, steps: int = STEPS) -> dict[str, Any]:
    return values_of(
        f"{name}.jsonl",
        {"text": text, "target": target},
        {"use": "seq2seq", "most": 8},
        "encoder-decoder",
        train={"steps": steps, "batch": 16, "seed": 1, "threads": 1, "log": {"every": 100}},
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two runs that translate, and one that tells whether a text is short."""
    folder = tmp_path_factory.mktemp("runs")
    draws = np.random.default_rng(0)
    there = []
    for text in sentences(400, 1):
        other = [THINGS[thing][1][draws.integers(2)] for thing in meaning(text)]
        there.append({"en": text, "de": " ".join(other)})
    home = {b: a for own, other in THINGS.values() for a, b in zip(own, other, strict=True)}
    back = [
        {"de": record["de"], "en": " ".join(home[word] for word in record["de"].split())} for record in there
    ]
    lines(folder / "there.jsonl", there)
    lines(folder / "back.jsonl", back)
    lines(folder / "short.jsonl", [{"en": text, "short": len(text.split()) < 2} for text in sentences(40, 2)])
    found = {
        name: trained(folder, name, translation(name, text, target))
        for name, text, target in (("there", "en", "de"), ("back", "de", "en"))
    }
    fields = {"text": "en", "label": "short"}
    values = values_of(
        "short.jsonl", fields, "classification", "encoder", train={"steps": 1, "batch": 4, "seed": 1}
    )
    return {**found, "classes": trained(folder, "classes", values)}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(name="test", folder=tmp_path, cache=tmp_path, train=Train())


def made(run: Run, runs: dict[str, Path], **settings: Any) -> Augmentation:
    given = {"there": runs["there"], "back": runs["back"], "strength": 1.0, "device": "cpu", **settings}
    augmentation: Augmentation = run.ask(BackTranslation(**given), "create_augmentation")
    return augmentation


def many(count: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


def test_wordings_change_and_the_meaning_stays(run: Run, runs: dict[str, Path]) -> None:
    texts = sentences(120, 7)
    # Without the tail of what a tiny model takes for possible.
    found = made(run, runs, top_p=0.9).apply(texts, many(120))
    assert np.mean([meaning(a) == meaning(b) for a, b in zip(texts, found, strict=True)]) > 0.95
    words = [
        (a, b)
        for text, new in zip(texts, found, strict=True)
        for a, b in zip(text.split(), new.split(), strict=False)
    ]
    assert 0.35 < np.mean([a != b for a, b in words]) < 0.65
    # All wordings of three things by one text alone.
    assert len(set(made(run, runs, top_p=0.9).apply(["rain sun snow"] * 100, many(100)))) >= 6


def test_a_wording_is_of_the_text_and_its_key_however_texts_are_batched(
    run: Run, runs: dict[str, Path]
) -> None:
    texts, keys = sentences(40, 3), many(40)
    augmentation = made(run, runs, rows=4)
    together = list(augmentation.apply(texts, keys))
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    assert [augmentation.apply([text], keys[at : at + 1])[0] for at, text in enumerate(texts)] == together
    order = np.random.default_rng(2).permutation(40)
    mixed = augmentation.apply([texts[at] for at in order], keys[order])
    assert list(mixed) == [together[at] for at in order]
    assert torch.equal(torch.random.get_rng_state(), state)
    assert list(augmentation.apply(texts, many(40, 9))) != together


def test_numbers_of_a_row_are_the_same_to_the_last_bit_whatever_rows_are_beside_it(
    run: Run, runs: dict[str, Path]
) -> None:
    augmentation = made(run, runs, rows=4)
    assert isinstance(augmentation, BackTranslating)
    first: list[torch.Tensor] = []
    for texts in (["rain sun"], ["snow frost star", "sun", "rain sun"], ["sun"] * 5 + ["rain sun"]):
        seen: list[torch.Tensor] = []
        head = augmentation.there._opened.model.get_submodule("head")
        hook = head.register_forward_hook(lambda module, given, output, seen=seen: seen.append(output))
        keys = dict.fromkeys(range(len(texts)), 7)
        augmentation.there.write(dict(enumerate(texts)), keys, drawing=augmentation.drawing)
        hook.remove()
        # The first step of the block that it is in: alone, the third of one, the second of another.
        first.append({1: seen[0][0], 3: seen[0][2], 6: seen[-1][1]}[len(texts)])
    assert torch.equal(first[0], first[1])


def test_another_process_gives_the_same(run: Run, runs: dict[str, Path]) -> None:
    texts = sentences(8, 4)
    program = (
        "import json, sys, pathlib, numpy as np\n"
        "from nlpkernel.context import Run\n"
        "from nlpkernel.plan.train import Train\n"
        "from nlpkernel_augment.component import BackTranslation\n"
        "there, back, folder, texts = json.loads(sys.argv[1])\n"
        "folder = pathlib.Path(folder)\n"
        "run = Run(name='other', folder=folder, cache=folder, train=Train())\n"
        "one = BackTranslation(there=pathlib.Path(there), back=pathlib.Path(back), strength=0.7, device='cpu')\n"
        "keys = np.arange(len(texts), dtype=np.uint64)\n"
        "print(json.dumps(list(run.ask(one, 'create_augmentation').apply(texts[::-1], keys[::-1]))))\n"
    )
    given = json.dumps([str(runs["there"]), str(runs["back"]), str(run.folder), texts])
    said = subprocess.run(
        [sys.executable, "-c", program, given], check=True, capture_output=True, text=True, timeout=120
    )
    keys = np.arange(len(texts), dtype=np.uint64)
    assert json.loads(said.stdout)[::-1] == list(made(run, runs, strength=0.7).apply(texts, keys))


def test_strength_is_the_share_of_texts_and_others_stay_as_they_are(run: Run, runs: dict[str, Path]) -> None:
    texts = ["RAIN sun"] * 200
    assert made(run, runs, strength=0).apply(texts, many(200)) is texts
    found = made(run, runs, strength=0.3).apply(texts, many(200))
    # The models' tokenizer has no capitals.
    share = np.mean([text != "RAIN sun" for text in found])
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / 200) ** 0.5


def test_a_low_temperature_gives_one_wording_and_a_high_one_more(run: Run, runs: dict[str, Path]) -> None:
    def wordings(**settings: Any) -> int:
        return len(set(made(run, runs, **settings).apply(["rain sun"] * 60, many(60))))

    assert wordings(temperature=0.001) == 1
    assert wordings(top_k=1) == 1
    assert wordings(temperature=1.0) >= 4


def test_texts_longer_than_the_window_stay_and_are_counted(run: Run, runs: dict[str, Path]) -> None:
    long = " ".join(["rain"] * 30)
    found = made(run, runs).apply([long, "rain", long], many(3))
    assert found[0] == found[2] == long
    assert MEANS[found[1]] == "water"
    assert dict(run.counts) == {
        ("augmentation 'back-translation'", "texts longer than the window of `there`, left as they were"): 2
    }


def test_texts_that_a_model_does_not_end_stay_and_are_counted(run: Run, runs: dict[str, Path]) -> None:
    augmentation = made(run, runs)
    assert isinstance(augmentation, BackTranslating)
    task = augmentation.back._opened.task
    task._how = type(task._how)(start=task._how.start, end=task._how.end, most=1)  # type: ignore[attr-defined]
    assert list(augmentation.apply(["rain", "sun snow"], many(2))) == ["rain", "sun snow"]
    assert list(run.counts.values()) == [2]
    assert "wrote nothing, or no end" in next(iter(run.counts))[1]


# -- in a run ----------------------------------------


def plan(folder: Path, runs: dict[str, Path], steps: int, seed: int = 3) -> nlpkernel.Plan:
    lines(folder / "docs.jsonl", [{"text": text} for text in sentences(24, 11)])
    values = values_of(
        "docs.jsonl",
        {},
        "lm",
        "gpt",
        data={
            "augment": [{"use": "back-translation", "there": str(runs["there"]), "back": str(runs["back"])}]
        },
        train={"steps": steps, "batch": 8, "seed": seed, "threads": 1, "log": {"every": 1}},
    )
    return nlpkernel.Plan.of(values, base=folder)


def losses(events: Any) -> list[float]:
    return [float(event.sums["loss"]) for event in events if isinstance(event, StepCompleted)]


def test_a_run_repeats_itself_and_a_resumed_one_goes_on_as_if_it_had_not_ended(
    tmp_path: Path, runs: dict[str, Path]
) -> None:
    whole = losses(nlpkernel.train(plan(tmp_path, runs, 6), runs_folder=tmp_path / "whole"))
    assert len(whole) == 6
    first = losses(nlpkernel.train(plan(tmp_path, runs, 3), runs_folder=tmp_path / "two"))
    rest = nlpkernel.train(plan(tmp_path, runs, 6), runs_folder=tmp_path / "two", resume="newest")
    assert first + losses(rest) == whole
    assert losses(nlpkernel.train(plan(tmp_path, runs, 3, 4), runs_folder=tmp_path / "other")) != first


def test_a_run_is_not_resumed_by_another_version_of_its_translator(
    tmp_path: Path, runs: dict[str, Path]
) -> None:
    shutil.copytree(runs["there"], tmp_path / "there" / "tiny")
    mine = {**runs, "there": tmp_path / "there" / "tiny"}

    def resumed(steps: int) -> list[float]:
        again = nlpkernel.train(plan(tmp_path, mine, steps), runs_folder=tmp_path / "run", resume="newest")
        return losses(again)

    assert len(losses(nlpkernel.train(plan(tmp_path, mine, 1), runs_folder=tmp_path / "run"))) == 1
    (mine["there"] / "logs" / "more.log").write_text("this changes no wording")
    assert len(resumed(2)) == 1
    longer = nlpkernel.Plan.of(translation("there", "en", "de", STEPS + 1), base=runs["there"].parent.parent)
    nlpkernel.run(longer, runs_folder=tmp_path / "there", resume="newest")
    with pytest.raises(NlpkernelError, match="data"):
        resumed(3)


# -- what is refused ----------------------------------------


def test_a_run_that_is_not_there_is_named_with_its_setting(run: Run, runs: dict[str, Path]) -> None:
    with pytest.raises(
        DataError, match=r"AUG003 the model of `back` cannot be opened: .*'nowhere' is no run"
    ):
        made(run, runs, back=Path("nowhere"))


def test_a_run_of_another_task_is_named_with_its_setting(run: Run, runs: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=r"AUG004 `there` = '.*classes.*' is no run .* 'classification'"):
        made(run, runs, there=runs["classes"])
