"""Text that is read as training goes on: in bounded memory, and resumed exactly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nlpkernel import component, hookimpl
from nlpkernel.errors import DataError
from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_text.corpus import Corpus
from nlpkernel_text.reading.components import Auto, JsonLines
from nlpkernel_text.samplers.components import Order
from nlpkernel_text.settings import Source, Stream
from nlpkernel_text.tokenizers.components import Bpe, Bytes, Characters
from nlpkernel_text.tokenizers.encoders import ByteTokenizer

Open = Callable[..., Any]
Write = Callable[[str, str | bytes], Path]
LINES: dict[str, Any] = {"format": Auto(documents="line"), "pack": "rows", "long": "truncate"}


def numbers(data: Any, first: int, last: int) -> list[int]:
    """The documents, which are numbers, of some windows."""
    return [
        int(data.codec.decode(row["tokens"].tolist()))
        for step in range(first, last)
        for index in range(len(data.window(step)))
        for row in data._made.rows[index]
    ]


def counted(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


@pytest.mark.parametrize("ahead", [0, 1, 4])
@pytest.mark.parametrize("buffer", [1, 15, 4096])
def test_case_r5_a_stream_of_25_in_12_windows_of_5_resumes_at_the_8th(
    write: Write, open_text: Open, buffer: int, ahead: int
) -> None:
    options = {**LINES, "stream": Stream(buffer=buffer, ahead=ahead), "train": {"batch": 5}}
    path = write("a.txt", counted(25))
    whole = open_text(path, **options)
    unbroken = numbers(whole, 0, 12)
    whole.close()
    assert Counter(unbroken) == Counter(dict.fromkeys(range(25), 2)) + Counter(unbroken[50:])
    if buffer == 1:
        assert Counter(unbroken) == {n: 3 if n < 10 else 2 for n in range(25)}
    first = open_text(path, **options)
    begun = numbers(first, 0, 7)
    state = json.loads(json.dumps(first.state()))
    first.close()
    again = open_text(path, **options)
    again.load_state(state)
    assert begun + numbers(again, 7, 12) == unbroken
    again.close()
    assert not [each for each in threading.enumerate() if each.name == "nlpkernel-text-ahead"]


@pytest.mark.parametrize("pack", ["joined", "isolated", "rows"])
@pytest.mark.parametrize("stop", [1, 3, 8, 17])
def test_any_packing_resumes_from_any_window(write: Write, open_text: Open, pack: str, stop: int) -> None:
    paths = [
        write(f"{name}.txt", "".join(f"{name} {'word ' * (n % 23)}\n" for n in range(150))) for name in "abc"
    ]
    options = {
        "format": Auto(documents="line"),
        "pack": pack,
        "window": 16,
        "stream": Stream(buffer=12),
        "train": {"batch": 6, "micro": 4, "seed": 3},
    }

    def batches(data: Any, first: int, last: int) -> list[Any]:
        return [
            (data.window(step), data.names(step, index), data.microbatch(step, index)["tokens"].tolist())
            for step in range(first, last)
            for index in range(len(data.window(step)))
        ]

    whole = batches(open_text(*paths, **options), 0, 20)
    first = open_text(*paths, **options)
    begun = batches(first, 0, stop)
    again = open_text(*paths, **options)
    again.load_state(first.state())
    assert begun + batches(again, stop, 20) == whole
    assert again.epoch(20) == open_text(*paths, **options).epoch(0) + again.epoch(20)


def test_a_resumed_stream_reads_one_buffer_and_one_file_again_at_most(
    write: Write, open_text: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(f"{number}.txt", counted(100)) for number in range(8)]
    options = {**LINES, "stream": Stream(buffer=20, ahead=0), "train": {"batch": 10}}
    data = open_text(*paths, **options)
    numbers(data, 0, 55)
    again = open_text(*paths, **options)
    opened: list[int] = []
    read = Corpus.raw_file
    monkeypatch.setattr(
        Corpus,
        "raw_file",
        lambda self, number, faults: (opened.append(number), read(self, number, faults))[1],
    )
    again.load_state(data.state())
    numbers(again, 55, 57)
    assert opened[0] in (4, 5)
    assert len(opened) <= 2


def test_each_pass_holds_each_document_once_in_another_order(write: Write, open_text: Open) -> None:
    data = open_text(write("a.txt", counted(40)), **LINES, stream=Stream(buffer=4096), train={"batch": 10})
    passes = [numbers(data, 4 * n, 4 * n + 4) for n in range(3)]
    assert all(sorted(one) == list(range(40)) for one in passes)
    assert len({tuple(one) for one in passes}) == 3
    assert sorted(passes[0][:10]) != list(range(10))
    assert data.epoch(12) == pytest.approx(3.0)


def test_a_look_at_the_first_rows_takes_nothing_away(write: Write, open_text: Open) -> None:
    options = {**LINES, "stream": Stream(buffer=10), "train": {"batch": 5}}
    path = write("a.txt", counted(40))
    unbroken = numbers(open_text(path, **options), 0, 10)
    data = open_text(path, **options)
    assert len(data.samples("train", 3)) == 3
    begun = numbers(data, 0, 4)
    assert len(data.samples("train", 3)) == 3
    assert begun + numbers(data, 4, 10) == unbroken
    assert data.names(2, 0) == []


def test_the_epoch_never_goes_back(write: Write, open_text: Open) -> None:
    paths = [write(f"{name}.txt", counted(13)) for name in "abc"]
    data = open_text(*paths, **LINES, stream=Stream(buffer=10), train={"batch": 5})
    epochs = [data.epoch(0)]
    for step in range(30):
        data.window(step)
        epochs.append(data.epoch(step + 1))
    assert epochs == sorted(epochs)
    assert epochs[-1] == pytest.approx(30 * 5 / 39, abs=0.7)


def test_order_is_that_of_the_files(write: Write, open_text: Open) -> None:
    data = open_text(
        write("a.txt", counted(40)), **LINES, sampling=Order(), stream=Stream(), train={"batch": 10}
    )
    assert numbers(data, 0, 8) == 2 * list(range(40))
    assert data.names(7, 0)[3].endswith("a.txt:34")


def test_joined_rows_hold_the_text_without_a_gap(write: Write, open_text: Open) -> None:
    text = "".join(f"line {n}, " for n in range(300))
    data = open_text(
        write("a.txt", text), window=16, sampling=Order(), stream=Stream(buffer=4), train={"batch": 2}
    )
    found = "".join(
        bytes(token for token in row if token < 256).decode()
        for step in range(60)
        for row in (data.window(step), data.microbatch(step, 0))[1]["tokens"].tolist()
    )
    assert found.startswith(text[:1000])


def test_a_million_lines_are_streamed_in_memory_that_does_not_grow(tmp_path: Path) -> None:
    """Ten times the input, the same peak; measured in processes of their own."""
    code = """
import resource, sys
from pathlib import Path
from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel_text.component import Text
from nlpkernel_text.reading.components import Auto
from nlpkernel_text.samplers.components import Shuffle
from nlpkernel_text.settings import Stream
from nlpkernel_text.task import Lm
from nlpkernel_text.tokenizers.components import Bytes
text = Text(paths=(Path(sys.argv[1]),), format=Auto(documents="line"), sampling=Shuffle(), tokenizer=Bytes(), task=Lm(),
            window=128, stream=Stream(buffer=512))
data = text.open_data(Run(name="t", folder=Path("r"), cache=Path(sys.argv[2]), train=Train(batch=64)))
step = 0
while data.epoch(step) < 1:
    for index in range(len(data.window(step))):
        data.microbatch(step, index)
    step += 1
print(step, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
data.close()
"""
    peaks = []
    for times in (4, 40):
        path = tmp_path / f"{times}.txt"
        path.write_text("some words on a line of text that is not short\n" * (10_000 * times))
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), str(tmp_path / "cache")],
            capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        steps, peak = map(int, done.stdout.split())
        assert steps > 50 * times
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 40


class Half:
    ordered = False

    def apply(self, documents: Documents) -> Outcome:
        return Outcome(dropped={n: "odd" for n, text in enumerate(documents.texts) if int(text) % 2})

    def finish(self, folder: Path) -> list[str]:
        return []


@component
class Even:
    @hookimpl
    def create_stage(self) -> Half:
        return Half()


@component
class All:
    @hookimpl
    def create_stage(self) -> Any:
        class Whole(Half):
            ordered = True

        return Whole()


def test_stages_clean_a_stream_and_what_they_drop_is_counted(
    write: Write, open_text: Open, make_run: Any
) -> None:
    run = make_run(batch=10)
    options = {**LINES, "sampling": Order(), "stages": [Even()], "stream": Stream(buffer=10, ahead=0)}
    data = open_text(write("a.txt", counted(40)), run=run, **options)
    assert numbers(data, 0, 4) == 2 * list(range(0, 40, 2))
    assert run.counts["stage Even", "documents dropped: odd"] in (20, 40)
    with pytest.raises(DataError, match="TXT035 the stage All has to see all documents"):
        open_text(write("a.txt", counted(40)), **{**options, "stages": [All()]})


def test_nothing_to_train_on_is_an_error_and_not_a_loop(write: Write, open_text: Open) -> None:
    with pytest.raises(DataError, match="TXT002 no examples in"):
        open_text(write("a.txt", "\n\n"), **LINES, stream=Stream()).window(0)
    with pytest.raises(DataError, match="TXT002 no examples in"):
        open_text(write("b.txt", "1\n3\n"), **LINES, stages=[Even()], stream=Stream()).window(0)


@pytest.mark.parametrize("text", ["far too long for it\n" * 9, "\n".join("ab") + "\n"])
def test_documents_that_give_no_rows_are_an_error_and_not_a_loop(
    write: Write, open_text: Open, make_run: Any, text: str
) -> None:
    @component
    class Endless(Bytes):
        """Bytes without an end of documents, so that one byte gives no row."""

        def load_tokenizer(self, run: Any, saved: bytes) -> Any:
            made = ByteTokenizer.load(saved)
            made.end = None
            return made

    run = make_run(batch=2)
    options = {**LINES, "long": "skip", "window": 8, "stream": Stream(), "tokenizer": Endless()}
    with pytest.raises(DataError, match="TXT002 no examples in"):
        open_text(write("a.txt", text), run=run, **options).window(0)
    assert any("documents" in what and number for (_, what), number in run.counts.items())


def test_a_tokenizer_of_a_stream_is_trained_on_cleaned_text(write: Write, open_text: Open) -> None:
    path = write("a.txt", "1\n22\n4\n")
    options = {**LINES, "stages": [Even()], "tokenizer": Characters(), "stream": Stream()}
    assert open_text(path, **options).info.vocabulary == 2


def test_sources_that_are_read_otherwise_are_other_streams(write: Write, open_text: Open) -> None:
    path = write("a.jsonl", json.dumps({"x": "abc", "y": "xyz"}) + "\n")

    def opened(column: str, **more: Any) -> Any:
        sources = [Source(paths=(path,), fields={"text": column})]
        return open_text(sources=sources, stream=Stream(), tokenizer=Characters(), **more)

    assert opened("x").info.fingerprint != opened("y").info.fingerprint
    assert opened("x").codec.tokenizer.characters == "abc"
    assert opened("y").codec.tokenizer.characters == "xyz"
    before = opened("x").info.fingerprint
    write("a.jsonl", json.dumps({"x": "abd", "y": "xyz"}) + "\n")
    assert opened("x").info.fingerprint != before


def test_what_is_left_out_of_the_validation_files_is_counted(
    write: Write, open_text: Open, make_run: Any
) -> None:
    run = make_run(batch=2)
    held = write("held.txt", "1\n2\n\n")
    open_text(
        write("a.txt", counted(9)),
        run=run,
        validation_paths=(held,),
        stages=[Even()],
        stream=Stream(),
        **LINES,
    )
    assert run.counts["stage Even", "documents dropped: odd"] == 1
    assert run.counts["data text", "blank lines"] == 1


def test_what_stages_did_is_counted_once_after_a_step_back(
    write: Write, open_text: Open, make_run: Any
) -> None:
    run = make_run(batch=10)
    options = {**LINES, "stages": [Even()], "stream": Stream(buffer=10, ahead=0)}
    data = open_text(write("a.txt", counted(40)), run=run, **options)
    numbers(data, 0, 1)
    before = data.state()
    counts = run.counts["stage Even", "documents dropped: odd"]
    numbers(data, 1, 2)
    data.load_state(before)
    numbers(data, 1, 2)
    assert run.counts["stage Even", "documents dropped: odd"] <= 3 * counts


def test_a_broken_record_stops_a_stream_where_it_comes(write: Write, open_text: Open) -> None:
    path = write("a.jsonl", "".join(json.dumps({"text": f"{n:2000}"}) + "\n" for n in range(900)) + "{oh\n")
    options = {
        **LINES,
        "format": JsonLines(),
        "window": 2000,
        "stream": Stream(buffer=100),
        "train": {"batch": 100},
    }
    data = open_text(path, **options)
    numbers(data, 0, 5)
    with pytest.raises(DataError, match=r"a\.jsonl:901:2: TXT004"):
        numbers(data, 5, 20)
    with pytest.raises(DataError, match=r"a\.jsonl:901:2: TXT004"):
        data.window(99)


def test_epochs_of_a_stream_are_refused_and_tokens_are_not(write: Write, open_text: Open) -> None:
    data = open_text(write("a.txt", counted(40)), window=8, stream=Stream(), train={"batch": 4})
    with pytest.raises(DataError, match="TXT035 how many steps are an epoch"):
        data.steps(epochs=1.0)
    assert data.steps(tokens=100) == 4
    ragged = open_text(write("a.txt", counted(40)), **LINES, stream=Stream())
    with pytest.raises(DataError, match="TXT035 how many steps are so many tokens"):
        ragged.steps(tokens=100)


def test_a_plan_streams_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("".join(f"the number {n} of many\n" for n in range(300)))
    (tmp_path / "held.txt").write_text("the number 7 of many\n" * 5)
    plan = {
        "train": {"steps": 60, "batch": 4, "seed": 1, "threads": 1, "evaluate": {"every": 10}},
        "data": {
            "use": "text",
            "paths": ["corpus.txt"],
            "validation_paths": ["held.txt"],
            "window": 16,
            "stream": {"buffer": 8},
            "format": {"use": "auto", "documents": "line"},
            "tokenizer": {"use": "bpe", "vocabulary": 280},
        },
        "model": {"use": "gpt", "layers": 1, "width": 16, "heads": 2},
        "optimizer": {"use": "adamw", "lr": 0.01},
        "checkpoint": {"use": "store", "every": 7},
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, "-m", "nlpkernel", "verify-resume", "plan.json", "--steps", "20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_sources_are_read_one_after_the_other(write: Write, open_text: Open) -> None:
    sources = [Source(paths=(write("a.txt", "1\n2\n"),)), Source(paths=(write("b.txt", "3\n"),))]
    data = open_text(sources=sources, **LINES, sampling=Order(), stream=Stream(), train={"batch": 3})
    assert numbers(data, 0, 2) == [1, 2, 3, 1, 2, 3]


def test_a_tokenizer_is_trained_on_the_beginning_of_a_stream_once(
    write: Write, open_text: Open, tmp_path: Path
) -> None:
    path = write("a.txt", "abab " * 2000 + "\n" + "xyxy " * 2000 + "\n")
    options = {**LINES, "tokenizer": Bpe(vocabulary=262), "stream": Stream(sample=5000)}
    data = open_text(path, **options)
    assert len(data.codec.encode("abab")) < len(data.codec.encode("xyxy"))
    saved = data.artifacts()["tokenizer"]
    (entry,) = (each for each in (tmp_path / "cache" / "text").iterdir() if not each.name.startswith("."))
    before = os.stat(entry / "tokenizer").st_mtime_ns
    assert open_text(path, **options).artifacts()["tokenizer"] == saved
    assert os.stat(entry / "tokenizer").st_mtime_ns == before
