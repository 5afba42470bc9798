"""`nlpkernel tokenizer`: train, compare, show."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nlpkernel
from nlpkernel.cli import main
from nlpkernel_sdk import tiny_values
from nlpkernel_text.tokenizers.components import Bpe, Pretrained
from nlpkernel_text.tokenizers.encoders import ByteTokenizer
from nlpkernel_text.tokenizers.measuring import fit, speeds

WORDS = (
    "the cat sat on the mat, purring quietly",
    "a dog ran to the cat and barked loudly",
    "walking and running dogs sat down together",
    "naïve cats run whenever thunder rolls",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan with its text; no cache outside."""
    made = tmp_path_factory.mktemp("plan")
    for number in range(12):
        text = "\n".join(WORDS[(number + place) % 4] for place in range(12))
        (made / f"{number}.txt").write_text(text, encoding="utf-8")
    data = {"use": "text", "paths": ["*.txt"], "window": 16, "tokenizer": {"use": "bpe", "vocabulary": 300}}
    checkpoint = {"use": "store", "every": 2, "fsync": False}
    values = tiny_values(
        name="small",
        data=data,
        model={"use": "gpt", "layers": 1, "heads": 2, "width": 16},
        checkpoint=checkpoint,
        train={"steps": 2},
    )
    (made / "plan.toml").write_text(nlpkernel.Plan.of(values, base=made).text(), encoding="utf-8")
    return made


@pytest.fixture
def command(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Run a command in the folder of the plan: its exit code, what it wrote, and what it said beside that."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NLPKERNEL_CACHE", str(tmp_path / "cache"))

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["tokenizer", *map(str, words)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_train_writes_the_tokenizer_of_the_plan(command: Any, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    code, text, _ = command("train", "plan.toml", "--out", out)
    assert (code, text.splitlines()[0].startswith(f"{out}: ")) == (0, True)
    data = nlpkernel.Plan.load("plan.toml").compose().slot("data").component
    run = nlpkernel.context.Run(
        name="same", folder=tmp_path, cache=tmp_path / "cache", train=nlpkernel.plan.train.Train()
    )
    assert data.open_data(run).codec.tokenizer.save() == out.read_bytes()
    made = Pretrained(path=out).create_tokenizer(run, tuple)
    assert made.decode(made.encode("naïve")) == "naïve"
    assert made.piece(made.end) == "<|end|>"


def test_train_never_overwrites_without_being_told_to(command: Any, tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    out.write_text("mine")
    code, _, said = command("train", "plan.toml", "--out", out)
    assert (code, "TXT018" in said, out.read_text()) == (2, True, "mine")
    code, text, _ = command("train", "plan.toml", "--out", out, "--overwrite", "--json")
    assert (code, json.loads(text)["vocabulary"], json.loads(text)["documents"]) == (0, 300, 12)
    assert out.read_bytes().startswith(b"{")
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["made.json"]
    assert command("train", "plan.toml", "--out", tmp_path / "no" / "x.json")[0] == 2
    assert command("train", "plan.toml", "--out", tmp_path, "--overwrite")[0] == 2


def test_train_goes_without_a_plan(command: Any, tmp_path: Path) -> None:
    words = [
        "train",
        "0.txt",
        "[1-3].txt",
        "--kind",
        "wordpiece",
        "--vocabulary",
        "120",
        "--out",
        tmp_path / "w.json",
    ]
    code, text, _ = command(*words, "--set", "data.tokenizer.lowercase=false", "--json")
    assert (code, json.loads(text)["documents"]) == (0, 4)
    model = json.loads((tmp_path / "w.json").read_text())
    assert model["model"]["type"] == "WordPiece"
    assert not model["normalizer"]["normalizers"][-1]["lowercase"]
    assert "TXT019" in command("train", "0.txt", "1.txt", "--out", tmp_path / "x.json")[2]
    assert "TXT019" in command("train", "plan.toml", "--vocabulary", "9", "--out", tmp_path / "x.json")[2]
    code, _, said = command(
        "train", "0.txt", "--kind", "bpe", "--vocabulary", "9", "--out", tmp_path / "x.json"
    )
    assert (code, "vocabulary" in said, "257" in said) == (2, True, True)


def test_compare_measures_on_the_validation_split(command: Any, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(ByteTokenizer().save())
    words = ["bytes", "plan", "bpe:290,310", "wordpiece:200", str(tmp_path / "bytes.json")]
    code, text, _ = command("compare", "plan.toml", *words, "--rounds", "1", "--json")
    told = json.loads(text)
    assert (code, told["split"]) == (0, "validation")
    names = [row["tokenizer"] for row in told["rows"]]
    assert names == ["bytes", "plan", "bpe:290", "bpe:310", "wordpiece:200", str(tmp_path / "bytes.json")]
    rows = dict(zip(names, told["rows"], strict=True))
    first = rows["bytes"]
    assert first["speed"] == 1.0
    assert first["tokens"] == first["bytes"] == rows[names[-1]]["tokens"]
    assert first["fertility"] == first["bytes"] / first["words"]
    assert rows["plan"]["vocabulary"] == 300
    # A larger vocabulary takes fewer tokens.
    assert first["tokens"] > rows["bpe:290"]["tokens"] > rows["bpe:310"]["tokens"]
    assert all(row["unknown_rate"] == 0 for row in told["rows"])
    assert rows["bpe:310"]["exact"] == 1.0
    assert rows["wordpiece:200"]["exact"] < 1.0
    code, text, _ = command("compare", "plan.toml", "bytes", "bpe:290", "--rounds", "1")
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["tokenizer", "vocabulary", "used"]
    assert [line.split()[0] for line in lines[2:4]] == ["bytes", "bpe:290"]
    assert "speed is relative to bytes" in lines[-1]


def test_compare_takes_the_training_text_where_nothing_is_held_out(command: Any) -> None:
    words = ["--set", "data.validation=0", "--characters", "200", "--rounds", "1", "--json"]
    told = json.loads(command("compare", "plan.toml", "bytes", *words)[1])
    assert (told["split"], told["rows"][0]["characters"]) == ("train", 200)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["bytse"],
            "TXT019 'bytse' is neither a file or folder nor a tokenizer component; did you mean 'bytes'",
        ),
        (["bpe:12"], "NK104"),
        (["bpe:many"], "NK10"),
        (["bytes:300"], "NK101"),
        (["plan.toml"], "TXT014"),
    ],
)
def test_compare_names_what_it_cannot_take(command: Any, words: list[str], said: str) -> None:
    code, text, errors = command("compare", "plan.toml", *words)
    assert code in (1, 2)
    assert said in errors
    assert text == ""


def test_a_plan_of_other_data_is_refused(command: Any, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(nlpkernel.Plan.of(tiny_values()).text(), encoding="utf-8")
    code, _, said = command("compare", tmp_path / "other.toml", "bytes")
    assert (code, "TXT019" in said) == (2, True)


def test_show_tells_pieces_and_facts(command: Any, tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    assert command("train", "plan.toml", "--out", out)[0] == 0
    told = json.loads(command("show", out, "--text", "the é", "--json")[1])
    assert "".join(told["pieces"]) == "the \\xc3\\xa9"
    assert (told["decoded"], len(told["ids"])) == ("the é", len(told["pieces"]))
    assert told["end"] == {"id": 0, "piece": "<|end|>"}
    code, text, _ = command("show", out, "--text", "the cat")
    assert (code, text.splitlines()[-1]) == (
        0,
        f"{len(text.splitlines()) - 1} tokens; it comes back as it is",
    )
    assert "0 '<|end|>'" in command("show", out)[1]
    assert command("show", tmp_path / "gone.json")[0] == 1
    assert "TXT019 --text is not UTF-8" in command("show", out, "--text", "\udcff")[2]


def test_show_reads_the_tokenizer_of_a_run(command: Any, folder: Path, tmp_path: Path) -> None:
    nlpkernel.run(nlpkernel.Plan.load(folder / "plan.toml"), runs_folder=tmp_path / "runs")
    told = json.loads(command("show", tmp_path / "runs" / "small", "--text", "the cat", "--json")[1])
    assert told["vocabulary"] == 300
    assert "".join(told["pieces"]) == "the cat"
    out = tmp_path / "made.json"
    command("train", "plan.toml", "--out", out)
    assert json.loads(command("show", out, "--text", "the cat", "--json")[1]) == told
    assert "TXT019" in command("show", out, "--version", "x")[2]


def test_the_command_is_found_and_light(folder: Path) -> None:
    code = (
        "import sys; from nlpkernel.cli import main; main(['tokenizer', '--help']);"
        "print([name for name in ('torch', 'numpy', 'tokenizers', 'sentencepiece') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(f"\n    {action} " in done.stdout for action in ("train", "compare", "show"))
    assert done.stdout.splitlines()[-1] == "[]"


def test_fit_counts_what_it_says(tmp_path: Path) -> None:
    from nlpkernel_text.tokenizers.encoders import CharacterTokenizer

    made = CharacterTokenizer("ab é", replace=True, end=True)
    found = fit(made, ["ab  é", "\nzz\n", ""])
    assert (found.tokens, found.words, found.characters, found.bytes) == (9, 3, 9, 10)
    assert (found.unknown, found.used, found.vocabulary) == (4, 5, 6)
    assert found.exact == 2 / 3
    assert found.plain()["unknown_rate"] == 4 / 9
    turns: list[None] = []
    assert len(speeds([made, ByteTokenizer()], ["ab"], 2, lambda: turns.append(None))) == 2
    assert len(turns) == 4
    assert Bpe().estimate is not None
