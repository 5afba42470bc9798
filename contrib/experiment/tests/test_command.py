"""What `nlpkernel experiments` shows."""

import json

import pytest

import nlpkernel
from nlpkernel.cli import main
from nlpkernel_sdk import tiny_plan


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A book of three runs."""
    root = tmp_path_factory.mktemp("runs")
    for name, lr, batch in (("slow", 1e-4, 8), ("fast", 0.1, 8), ("wide", 0.1, 16)):
        plan = tiny_plan(
            name=name,
            train={"steps": 5, "batch": batch, "evaluate": {"every": 5}},
            optimizer={"lr": lr},
            monitor=[{"use": "experiment"}],
        )
        nlpkernel.run(plan, runs_folder=root)
    return str(root / "experiments")


def shown(capsys, *words):
    assert main(["experiments", *words]) == 0
    return capsys.readouterr().out


def test_the_table_has_the_settings_in_which_runs_differ(book, capsys):
    head, _, *rows, last = shown(capsys, book).splitlines()
    assert head.split() == [
        "run",
        "status",
        "steps",
        "validation/loss",
        "loss",
        "norm",
        "train.batch",
        "optimizer.lr",
    ]
    assert [row.split()[0] for row in rows] == ["slow", "fast", "wide"]
    assert [row.split()[-2:] for row in rows] == [["8", "0.0001"], ["8", "0.1"], ["16", "0.1"]]
    assert all(row.split()[1:3] == ["finished", "5/5"] for row in rows)
    assert "rate" in last


def test_it_sorts_by_a_metric(book, capsys):
    plain = json.loads(shown(capsys, book, "--json"))
    by_loss = sorted(plain, key=lambda each: each["best"]["metrics"]["validation/loss"])
    for words, wanted in (((), by_loss), (("--descending",), by_loss[::-1])):
        found = json.loads(shown(capsys, book, "--json", "--sort", "validation/loss", *words))
        assert [each["name"] for each in found] == [each["name"] for each in wanted]
    assert "validation/loss" in shown(capsys, book, "--sort", "validation/loss").splitlines()[0]


def test_a_metric_that_nobody_has_is_an_error_with_those_that_there_are(book, capsys):
    assert main(["experiments", book, "--sort", "accuracy"]) == 2
    text = capsys.readouterr().err
    assert "EXP003" in text
    assert "validation/loss" in text


def test_a_folder_without_runs_is_an_error(tmp_path, capsys):
    assert main(["experiments", str(tmp_path)]) == 2
    assert "EXP002" in capsys.readouterr().err


def test_a_damaged_entry_hides_no_other(book, capsys, tmp_path):
    import shutil

    copy = tmp_path / "book"
    shutil.copytree(book, copy)
    first = next(path for path in sorted(copy.iterdir()) if path.name.startswith("fast"))
    (first / "entry.json").write_text('{"name": "fa', encoding="utf-8")
    text = shown(capsys, str(copy))
    assert "damaged" in text
    assert "slow" in text
    assert "wide" in text
