"""Text through plans: the public way in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nlpkernel
from nlpkernel.errors import DataError, NlpkernelError, PlanError
from nlpkernel.events import StepCompleted

WORDS = "the cat sat on the mat and the dog ran to the cat\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NLPKERNEL_CACHE", str(tmp_path / "cache"))


def plan_file(folder: Path, text: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def plan(folder: Path, data: dict[str, Any], **train: Any) -> nlpkernel.Plan:
    return nlpkernel.Plan.of(
        {
            "name": "text",
            "train": {"steps": 6, "batch": 4, "threads": 1, "seed": 1, **train},
            "data": {"use": "text", "paths": [str(folder / "*.txt")], "window": 16, **data},
            "model": {"use": "gpt", "layers": 1, "heads": 2, "width": 16},
            "optimizer": {"use": "tiny", "lr": 0.05},
            "checkpoint": {"use": "store"},
        }
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(WORDS * 20, encoding="utf-8")
    return folder


@pytest.mark.parametrize("pack", ["joined", "isolated", "rows"])
@pytest.mark.parametrize("micro", [4, 3])
def test_a_plan_trains_on_text_and_its_version_brings_the_tokenizer(
    corpus: Path, tmp_path: Path, pack: str, micro: int
) -> None:
    data = {
        "pack": pack,
        "format": {"use": "auto", "documents": "line"},
        "tokenizer": {"use": "bpe", "vocabulary": 270},
    }
    report = nlpkernel.run(plan(corpus, data, steps=40, micro=micro), runs_folder=tmp_path / "runs")
    assert report.status == "finished"
    assert set(report.metrics) == {
        f"validation/{name}" for name in ("loss", "perplexity", "accuracy", "bits_per_byte")
    }
    loss = report.metrics["validation/loss"]
    assert loss is not None
    assert loss < 4.0
    opened = nlpkernel.open_model(tmp_path / "runs" / "text")
    assert opened.codec.info.vocabulary == 270
    assert opened.codec.decode(opened.codec.encode("the cat")) == "the cat"


def losses(events: Any) -> list[float]:
    return [float(event.sums["loss"]) for event in events if isinstance(event, StepCompleted)]


@pytest.mark.parametrize("sampling", ["shuffle", "random"])
def test_a_resumed_run_sees_what_the_unbroken_one_saw(corpus: Path, tmp_path: Path, sampling: str) -> None:
    data = {"format": {"use": "auto", "documents": "line"}, "sampling": sampling}
    unbroken = losses(nlpkernel.train(plan(corpus, data, steps=10), runs_folder=tmp_path / "one"))
    first = losses(nlpkernel.train(plan(corpus, data, steps=4), runs_folder=tmp_path / "two"))
    rest = losses(
        nlpkernel.train(plan(corpus, data, steps=10), runs_folder=tmp_path / "two", resume="newest")
    )
    assert first + rest == unbroken


def test_case_d6_no_examples_is_told_before_any_model_is_built(corpus: Path, tmp_path: Path) -> None:
    (corpus / "a.txt").write_text("\n\n")
    bad = plan(corpus, {"format": {"use": "auto", "documents": "line"}})
    with pytest.raises(DataError, match=r"TXT002 no examples in .*2 blank lines"):
        nlpkernel.run(bad, runs_folder=tmp_path / "runs")


def test_what_is_skipped_is_in_the_report(corpus: Path, tmp_path: Path) -> None:
    (corpus / "b.txt").write_bytes(b"good\nbad \xff\n\n")
    data = {"format": {"use": "auto", "documents": "line"}, "on_error": "skip"}
    report = nlpkernel.run(plan(corpus, data), runs_folder=tmp_path / "runs")
    counted = {(count.source, count.what): count.number for count in report.counts}
    assert counted == {("data text", "lines that are not UTF-8"): 1, ("data text", "blank lines"): 1}


def test_paths_start_from_the_file_that_writes_them(corpus: Path, tmp_path: Path) -> None:
    path = plan_file(
        corpus,
        """
name = "relative"
train = { steps = 1, batch = 2, threads = 1 }
data = { use = "text", paths = ["*.txt"], window = 8, split = "tail" }
model = { use = "gpt", layers = 1, heads = 2, width = 16 }
optimizer = { use = "tiny", lr = 0.01 }
""",
    )
    report = nlpkernel.run(nlpkernel.Plan.load(path), runs_folder=tmp_path / "runs")
    assert report.progress.samples == 2


def test_mistakes_in_a_plan_are_told_together_with_their_places(corpus: Path) -> None:
    path = plan_file(
        corpus,
        """
name = "wrong"
train = { steps = 1 }
model = { use = "gpt" }
optimizer = { use = "tiny", lr = 0.01 }

[data]
use = "text"
path = ["*.txt"]
window = 0
pack = "isolate"
tokenizer = { use = "bpe", vocabulary = 100 }
task = "ml"
""",
    )
    with pytest.raises(PlanError) as caught:
        nlpkernel.Plan.load(path).compose()
    shown = str(caught.value)
    for place in ("9:1", "10:10", "11:8", "12:41", "13:8"):
        assert f"plan.toml:{place}: " in shown, shown
    assert "'paths'" in shown
    assert "'isolated'" in shown or "isolated" in shown


def test_errors_of_the_data_are_errors_of_the_product(corpus: Path, tmp_path: Path) -> None:
    (corpus / "a.txt").write_bytes(b"\xff")
    with pytest.raises(NlpkernelError, match=r"a\.txt:1:1: TXT003"):
        nlpkernel.run(plan(corpus, {}), runs_folder=tmp_path / "runs")
