"""The examples run, and the guide to tasks shows what comes of them."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nlpkernel
from nlpkernel.cli import main
from nlpkernel.errors import CheckpointError
from nlpkernel_sdk import tiny_values

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs/examples"
GUIDE = ROOT / "docs/tasks.md"
#: Most lines of each file here.
FEW = {"train": 400, "held": 24}


def script(name: str) -> ModuleType:
    """A script of the examples, as a module."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


make, STEPS = script("data"), script("run").STEPS

pytest.importorskip("nlpkernel_text")
pytest.importorskip("nlpkernel_tasks")
pytest.importorskip("nlpkernel_transformer")


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files that the script makes, of some packages of the standard library."""
    folder = tmp_path_factory.mktemp("data")
    library = tmp_path_factory.mktemp("library")
    for package in make.PACKAGES:
        shutil.copytree(Path(sysconfig.get_paths()["stdlib"]) / package, library / package)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(library)})
        make.main(folder / "one")
        make.main(folder / "two")
    return folder


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Path]:
    """The examples with some of their data, each trained for two steps, as `run.py` does it."""
    folder = tmp_path_factory.mktemp("examples") / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("data", "runs", "__pycache__"))
    (folder / "data").mkdir()
    for path in (data / "one").iterdir():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        step = max(1, len(lines) // FEW[path.suffixes[0].removeprefix(".")])
        (folder / "data" / path.name).write_text("".join(lines[::step]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NLPKERNEL_CACHE", str(folder / "cache"))
        for step in STEPS:
            plan = f"{step.example}/{step.plan}"
            if step.tokenizer:
                out = f"data/{step.tokenizer}.tokenizer.json"
                assert main(["tokenizer", "train", plan, "--out", out]) == 0
            steps = [
                "train.steps=2",
                "train.micro=8",
                "train.evaluate.every=2",
                "optimizer.schedule.warmup=0",
            ]
            options = [part for each in (*step.settings, *steps) for part in ("--set", each)]
            assert main(["run", "-q", plan, *options]) == 0, plan
        yield folder


def test_every_step_of_an_example_has_the_metrics_that_the_table_shows(
    examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in STEPS:
        name = step.run
        report = json.loads((examples / "runs" / name / "report.json").read_text())
        assert report["status"] == "finished"
        if name in ("translation", "embedding", "tuned"):
            assert main(["evaluate", f"runs/{name}", "--json"]) == 0
            found = json.loads(capsys.readouterr().out)["metrics"]
        else:
            found = {key.removeprefix("validation/"): value for key, value in report["metrics"].items()}
        assert set(step.metrics) <= set(found), name


def test_the_data_of_the_examples_is_the_same_each_time_and_held_out_by_what_is_asked(data: Path) -> None:
    made = sorted((data / "one").iterdir())
    for path in made:
        assert path.read_bytes() == (data / "two" / path.name).read_bytes(), path.name

    def first(name: str) -> set[str]:
        lines = (data / "one" / name).read_text(encoding="utf-8").splitlines()
        values = [next(iter(json.loads(line).values())) for line in lines]
        return {value if isinstance(value, str) else " ".join(value) for value in values}

    names = sorted({path.name.split(".")[0] for path in made})
    for name in names:
        train, held = first(f"{name}.train.jsonl"), first(f"{name}.held.jsonl")
        assert not train & held, name
        assert len(held) > 10, name
    # What a model is pre-trained on is not what it is tried on afterwards.
    assert not first("statements.train.jsonl") & first("few.held.jsonl")


def test_numbers_and_days_are_said_as_both_languages_say_them() -> None:
    assert [make.english(number) for number in (7, 12, 40, 83)] == [
        "seven",
        "twelve",
        "forty",
        "eighty-three",
    ]
    assert [make.german(number) for number in (7, 21, 30, 76)] == [
        "sieben",
        "einundzwanzig",
        "dreißig",
        "sechsundsiebzig",
    ]
    day = make.date(1974, 5, 3)
    assert make._english_date(day, 3, 2) == (
        "At half past three on Friday, the third of May, nineteen seventy-four."
    )
    assert make._german_date(day, 3, 2) == (
        "Am Freitag, dem dritten Mai neunzehnhundertvierundsiebzig, um halb vier."
    )


def test_tags_of_a_statement_are_those_of_its_syntax() -> None:
    def tags(words: str) -> str:
        text = words.replace(" . ", ".")
        return " ".join(make._tags(text, words.split()))

    assert tags("from os . path import join") == "O B-MODULE I-MODULE I-MODULE O O"
    assert tags("raise ValueError ( name )") == "O B-ERROR O O O"
    assert tags("x = os . stat ( path , dir_fd = fd )") == "O O B-CALL I-CALL I-CALL O O O B-ARGUMENT O O O"


def test_a_fine_tuned_model_begins_with_the_weights_of_the_run_and_a_new_head(
    examples: Path, tmp_path: Path
) -> None:
    def first(*settings: str) -> Any:
        plan = nlpkernel.Plan.load(
            examples / "masked/tune.toml", ["train.steps=1", "optimizer.lr=1e-12", *settings]
        )
        report = nlpkernel.run(plan, runs_folder=tmp_path / "runs", overwrite=True)
        return dict(nlpkernel.open_model(report.folder, device="cpu").model.named_parameters())

    source = nlpkernel.open_model("runs/masked", device="cpu")
    theirs = dict(source.model.named_parameters())
    tuned, scratch = first(), first("model.transform=[]")
    shared = {name for name in tuned if name in theirs and not name.startswith("head")}
    assert {name for name in tuned if name not in shared} == {"head.weight", "head.bias"}
    assert all(tuned[name].allclose(theirs[name], atol=1e-9) for name in shared)
    assert not scratch["embedding.weight"].allclose(theirs["embedding.weight"], atol=1e-3)
    # The text is read by the same tokenizer.
    other = nlpkernel.open_model("runs/tuned", device="cpu")
    assert source.codec.encode("raise ValueError ( name )") == other.codec.encode("raise ValueError ( name )")


def test_weights_that_do_not_fit_are_refused_by_name(examples: Path, tmp_path: Path) -> None:
    plan = nlpkernel.Plan.load(examples / "masked/tune.toml", ["model.width=64", "train.steps=1"])
    with pytest.raises(CheckpointError, match=r"embedding.weight is \[\d+, 128\]"):
        nlpkernel.run(plan, runs_folder=tmp_path / "runs")


@pytest.mark.parametrize("number", range(6))
def test_the_plans_of_the_guide_have_no_mistake(tmp_path: Path, number: int) -> None:
    found = blocks(GUIDE, "toml")
    assert len(found) == 6
    rest = tiny_values(name="guide")
    del rest["data"], rest["model"]
    nlpkernel.Plan.of({**rest, **tomllib.loads(found[number])}, base=tmp_path).compose()


def test_the_commands_of_the_guide_say_what_it_shows(
    examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = blocks(GUIDE, "console")
    assert len(shown) >= 4
    for block in shown:
        command, *lines = block.splitlines()
        name, _, rest = command.partition("$ nlpkernel ")
        assert not name
        assert main(shlex.split(rest)) == 0, command
        out = capsys.readouterr().out
        if rest.startswith("predict"):
            assert set(json.loads(lines[0])) == set(json.loads(out.splitlines()[0]))
            continue
        # Numbers are those of longer runs: what is the same are the names of metrics, classes and columns.
        said = out.split()
        for line in lines:
            if re.match(r"[a-z_]+ +\S", line):
                assert line.split()[0] in said, (command, line)


def test_the_table_of_the_guide_has_a_line_for_each_step() -> None:
    rows = re.findall(
        r"^\| (\w+) \| ([\w-]+)(?: \(([^)]*)\))? \| [\d,]+ \| ([^|]*) \| \d+ \|$",
        GUIDE.read_text(),
        re.MULTILINE,
    )
    assert [(row[0], row[2]) for row in rows] == [(step.example, step.note) for step in STEPS]
    for row, step in zip(rows, STEPS, strict=True):
        assert row[1] == step.run
        assert tuple(re.findall(r"(\w+) \d+\.", row[3])) == step.metrics


@pytest.mark.parametrize(
    "path", [*EXAMPLES.glob("*.md"), *EXAMPLES.glob("*/README.md")], ids=lambda path: path.parent.name
)
def test_every_link_of_an_example_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
