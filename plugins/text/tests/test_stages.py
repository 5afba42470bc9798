"""Documents through stages: every one is accounted for, in one process or several, and what was cleaned is kept."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel import component, hookimpl, setting
from nlpkernel.context import Run
from nlpkernel.errors import DataError
from nlpkernel.hookspecs.reader import Records
from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_text.chunks import Chunk
from nlpkernel_text.cleaning.batches import Batch, batches
from nlpkernel_text.cleaning.kept import Kept, write
from nlpkernel_text.cleaning.running import Cleaning
from nlpkernel_text.reading.components import Auto, JsonLines

Open = Callable[..., Any]
Write = Callable[[str, str | bytes], Path]

#: A module of stages that other processes can import.
MODULE = """
import os
import signal

from nlpkernel import component, hookimpl, setting
from nlpkernel.hookspecs.stage import Outcome


class Opened:
    ordered = False

    def __init__(self, word, fatal):
        self.word, self.fatal = word, fatal

    def apply(self, documents):
        if self.fatal and any(self.fatal in text for text in documents.texts):
            os.kill(os.getpid(), signal.SIGKILL)
        texts = [text.replace(self.word, "") for text in documents.texts]
        return Outcome(texts=texts, counts={f"texts seen by {'another' if self.word else ''} process": len(texts)})

    def finish(self, folder):
        return []


@component
class Without:
    word: str = setting(default="x", help="what is taken out")
    fatal: str = setting(default="", help="what kills the process")

    @hookimpl
    def create_stage(self):
        return Opened(self.word, self.fatal)
"""


class Shorter:
    """Drops short texts, and notes lengths."""

    ordered = False

    def __init__(self, least: int) -> None:
        self.least = least

    def apply(self, documents: Documents) -> Outcome:
        short = {
            n: f"shorter than {self.least}"
            for n, text in enumerate(documents.texts)
            if len(text) < self.least
        }
        return Outcome(
            dropped=short, notes={n: f"{len(text)} long" for n, text in enumerate(documents.texts)}
        )

    def finish(self, folder: Path) -> Sequence[str]:
        return []


@component
class Short:
    least: int = setting(default=3, help="fewest characters")

    @hookimpl
    def create_stage(self) -> Shorter:
        return Shorter(self.least)


class Seen:
    """Drops what came before, and writes what it saw."""

    ordered = True

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    def apply(self, documents: Documents) -> Outcome:
        dropped = {}
        for number, (text, name) in enumerate(zip(documents.texts, documents.names, strict=True)):
            if text in self.seen:
                dropped[number] = "seen before"
            self.seen.setdefault(text, name)
        return Outcome(dropped=dropped)

    def finish(self, folder: Path) -> Sequence[str]:
        (folder / "seen.json").write_text(json.dumps(self.seen))
        return [f"{len(self.seen)} texts"]


@component
class Once:
    @hookimpl
    def create_stage(self) -> Seen:
        return Seen()


class Faulty:
    ordered = False

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def apply(self, documents: Documents) -> Outcome:
        return self.outcome

    def finish(self, folder: Path) -> Sequence[str]:
        return []


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "some_stages_of_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    yield importlib.import_module("some_stages_of_a_test")
    del sys.modules["some_stages_of_a_test"]


def documents(data: Any) -> list[str]:
    stream = data.packers["train"].stream
    pieces = [
        stream.tokens[first:last]
        for first, last in zip(stream.starts, [*stream.starts[1:], None], strict=True)
    ]
    return [data.codec.decode(piece.tolist()) for piece in pieces]


def test_every_document_is_kept_or_counted_with_its_reason(
    write: Write, open_text: Open, make_run: Callable[..., Run], heard: Any, tmp_path: Path
) -> None:
    path = write("a.txt", "aaaa\nb\nbxx\naaaa\nccccc\n\ndd\naaaa\n")
    for _ in range(2):  # The second time from the cache.
        run = make_run()
        data = open_text(path, run=run, format=Auto(documents="line"), stages=[Once(), Short()])
        assert documents(data) == ["aaaa", "bxx", "ccccc"]
        assert run.counts == {
            ("data text", "blank lines"): 1,
            ("stage Once", "documents dropped: seen before"): 2,
            ("stage Short", "documents dropped: shorter than 3"): 2,
        }
    assert "stage Once: 5 texts" in heard.notices
    (seen,) = (tmp_path / "cache" / "text").glob("*/stages/Once/seen.json")
    assert json.loads(seen.read_text())["bxx"].endswith("a.txt:3")
    # Where a document is from outlasts that others were dropped before it.
    assert data.names(0, 0)[0].endswith("a.txt:1")
    assert [data._name(data._train, int(start))[-7:] for start in data._train.stream.starts] == [
        "a.txt:1", "a.txt:3", "a.txt:5",
    ]  # fmt: skip


def test_stages_are_applied_in_plan_order_and_other_stages_make_another_entry(
    write: Write, open_text: Open, module: Any
) -> None:
    path = write("a.txt", "axx\nbb\nabc\n")
    lines = Auto(documents="line")
    assert documents(open_text(path, format=lines, stages=[Short(), module.Without()])) == ["a", "abc"]
    assert documents(open_text(path, format=lines, stages=[module.Without(), Short()])) == ["abc"]
    assert documents(open_text(path, format=lines)) == ["axx", "bb", "abc"]


def test_a_text_of_which_nothing_is_left_is_dropped_and_counted(
    write: Write, open_text: Open, module: Any, make_run: Callable[..., Run]
) -> None:
    run = make_run()
    data = open_text(
        write("a.txt", "xx\nab\n"), run=run, format=Auto(documents="line"), stages=[module.Without()]
    )
    assert documents(data) == ["ab"]
    assert run.counts["stage Without", "documents dropped: nothing left of the text"] == 1


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_several_processes_give_the_same_documents_in_the_same_order(
    write: Write, open_text: Open, module: Any, make_run: Callable[..., Run], workers: int
) -> None:
    lines = [f"line {number % 1700} x{'y' * (number % 7)}" for number in range(3000)]
    run = make_run()
    data = open_text(
        write("a.txt", "\n".join(lines)),
        write("b.txt", "\n".join(lines[:50])),
        run=run,
        format=Auto(documents="line"),
        stages=[module.Without(), Once(), module.Without(word="y")],
        workers=workers,
    )
    whole = list(dict.fromkeys(line.replace("x", "") for line in lines))
    assert documents(data) == [text.replace("y", "") for text in whole]
    assert run.counts["stage Once", "documents dropped: seen before"] == 3050 - len(whole)
    assert run.counts["stage Without 1", "texts seen by another process"] == 3050


def test_a_process_that_is_killed_is_an_error_and_leaves_nothing(
    write: Write, open_text: Open, module: Any, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="TXT032 a process that works on the stages ended by itself"):
        open_text(
            write("a.txt", "a\nboom\n"),
            format=Auto(documents="line"),
            stages=[module.Without(fatal="boom")],
            workers=1,
        )
    assert [path for path in (tmp_path / "cache" / "text").iterdir() if not path.name.startswith(".")] == []


def test_ctrl_c_in_a_terminal_does_not_end_the_processes_before_their_parent(
    module: Any, make_run: Callable[..., Run]
) -> None:
    cleaning = Cleaning(make_run(), [module.Without()], ["a"], 1)
    batch = Batch(["ax"], {}, [0], [1])
    assert [each.texts for each in cleaning.clean(iter([batch]))] == [["a"]]
    assert cleaning._processes is not None
    for child in cleaning._processes._pool._processes:
        os.kill(child, signal.SIGINT)
    assert [each.texts for each in cleaning.clean(iter([batch] * 3))] == [["a"]] * 3
    cleaning.close()


def test_a_stage_of_a_single_file_says_that_it_cannot_go_to_another_process(
    write: Write, open_text: Open
) -> None:
    @component
    class Local:
        @hookimpl
        def create_stage(self) -> Shorter:
            return Shorter(1)

    with pytest.raises(DataError, match="TXT032 a stage cannot go to another process"):
        open_text(write("a.txt", "a\n"), stages=[Local()], workers=1)


@pytest.mark.parametrize("outcome", [Outcome(texts=["a", "b"]), Outcome(dropped={5: "gone"})])
def test_a_stage_that_gives_what_it_did_not_get_is_named(
    write: Write, open_text: Open, outcome: Outcome
) -> None:
    @component
    class Bad:
        @hookimpl
        def create_stage(self) -> Faulty:
            return Faulty(outcome)

    with pytest.raises(DataError, match="TXT031 the stage Bad got 1 documents"):
        open_text(write("a.txt", "a"), stages=[Bad()])


def test_an_error_of_a_stage_is_told_with_its_name_and_the_documents(write: Write, open_text: Open) -> None:
    class Broken(Shorter):
        def apply(self, documents: Documents) -> Outcome:
            raise OSError("no model here")

    @component
    class Bad:
        @hookimpl
        def create_stage(self) -> Broken:
            return Broken(1)

    said = r"TXT031 the stage Bad raised OSError at the documents .*a\.txt:1 to .*a\.txt:1: no model here"
    with pytest.raises(DataError, match=said):
        open_text(write("a.txt", "a"), stages=[Bad()])


def test_values_of_any_kind_reach_stages_as_simple_ones(write: Write, open_text: Open) -> None:
    seen: list[Any] = []

    class Columns(Shorter):
        def apply(self, documents: Documents) -> Outcome:
            seen.extend(documents.columns["extra"])
            return Outcome()

    @component
    class Looking:
        @hookimpl
        def create_stage(self) -> Columns:
            return Columns(0)

    values = [1 << 70, None, [1, "a"], {"b": 2}, 1.5, True, "text"]
    path = write("a.jsonl", "".join(json.dumps({"text": "t", "x": value}) + "\n" for value in values))
    open_text(path, format=JsonLines(), fields={"extra": "x"}, stages=[Looking()])
    assert seen == [str(1 << 70), None, '[1, "a"]', '{"b": 2}', 1.5, True, "text"]


def test_pieces_of_documents_beside_whole_ones_are_put_together(write: Write, open_text: Open) -> None:
    class Pieces:
        unit = "record"
        text = False

        def read(self, source: Any, columns: Any, faults: Any) -> Any:
            yield Records({"text": ["one", "two", "three-be"]}, [1, 2, 3], closes=False)
            yield Records({"text": ["gin", "four", ""]}, [3, 4, 5], opens=False, closes=False)
            yield Records({"text": ["five"]}, [5], opens=False)

    @component
    class InPieces:
        @hookimpl
        def create_reader(self) -> Pieces:
            return Pieces()

    whole = ["one", "two", "three-begin", "four", "five"]
    for stages in ([], [Short()]):
        data = open_text(write("a.bin", "x"), format=InPieces(), stages=stages)
        assert documents(data) == whole


def test_nothing_left_says_which_stage_dropped_it(write: Write, open_text: Open) -> None:
    with pytest.raises(DataError, match=r"TXT002 no examples in .*a\.txt") as failure:
        open_text(write("a.txt", "a\nb\n"), format=Auto(documents="line"), stages=[Short()])
    assert failure.value.problems[0].hint == "Short dropped 2: shorter than 3"


def test_long_documents_reach_a_stage_whole(write: Write, open_text: Open) -> None:
    class Lengths(Shorter):
        seen: ClassVar[list[int]] = []

        def apply(self, documents: Documents) -> Outcome:
            self.seen.extend(map(len, documents.texts))
            return Outcome()

    @component
    class Whole:
        @hookimpl
        def create_stage(self) -> Lengths:
            return Lengths(0)

    text = "some words\n" * 100_000
    open_text(write("a.txt", text), write("b.txt", "b"), stages=[Whole()])
    assert Lengths.seen == [len(text), 1]


def test_stages_see_the_columns_that_the_plan_names(write: Write, open_text: Open) -> None:
    seen: list[Mapping[str, Sequence[Any]]] = []

    class Columns(Shorter):
        def apply(self, documents: Documents) -> Outcome:
            seen.append(documents.columns)
            return Outcome(dropped={0: "first"})

    @component
    class Looking:
        @hookimpl
        def create_stage(self) -> Columns:
            return Columns(0)

    rows = [{"body": f"text {n}", "lang": f"l{n}", "meta": {"stars": n}} for n in range(3)]
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
    data = open_text(
        path,
        format=JsonLines(),
        fields={"text": "{lang}: {body}", "label": "meta.stars", "language": "lang"},
        stages=[Looking()],
        pack="rows",
    )
    assert seen == [{"label": [0, 1, 2], "language": ["l0", "l1", "l2"]}]
    assert documents(data) == ["l1: text 1", "l2: text 2"]
    assert data.info.labels == ("1", "2")


CHUNKS = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=5)),
    max_size=8,
)


@given(CHUNKS)
def test_kept_documents_come_back_by_file(tmp_path_factory: pytest.TempPathFactory, given: Any) -> None:
    path = tmp_path_factory.mktemp("kept") / "documents"
    chunks = [
        (file, Chunk(texts, range(10, 10 + len(texts)), columns={"n": list(map(len, texts))}))
        for file, texts in sorted(given, key=lambda pair: pair[0])
    ]
    kept = Kept(path, write(path, batches(iter(chunks))))
    for file in range(5):
        wanted = [text for number, chunk in chunks if number == file for text in chunk.texts]
        found = list(kept.chunks(file))
        assert [text for chunk in found for text in chunk.texts] == wanted
        assert [n for chunk in found for n in chunk.columns["n"]] == list(map(len, wanted))
        assert (kept.documents(file), kept.characters(file)) == (len(wanted), sum(map(len, wanted)))


def test_no_process_outlives_a_parent_that_is_killed(module: Any, tmp_path: Path) -> None:
    code = f"""
import sys, time; sys.path.insert(0, {str(tmp_path / "modules")!r})
if __name__ == "__main__":
    import some_stages_of_a_test as stages
    from pathlib import Path
    from nlpkernel.context import Run
    from nlpkernel.plan.train import Train
    from nlpkernel_text.cleaning.batches import Batch
    from nlpkernel_text.cleaning.running import Cleaning
    run = Run(name="t", folder=Path("r"), cache=Path("c"), train=Train())
    cleaning = Cleaning(run, [stages.Without()], ["a"], 1)
    next(cleaning.clean(iter([Batch(["x"], {{}}, [0], [1])] * 9)))
    print(*cleaning._processes._pool._processes, flush=True)
    time.sleep(60)
"""
    script = tmp_path / "parent.py"
    script.write_text(code)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    (child,) = map(int, parent.stdout.readline().split())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    for _ in range(500):
        try:
            os.kill(child, 0)
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
        except (ProcessLookupError, FileNotFoundError):
            break
        time.sleep(0.01)
    else:
        pytest.fail("the child lives on")


def test_counts_of_all_stages_add_up_to_what_came(
    write: Write, open_text: Open, make_run: Callable[..., Run]
) -> None:
    run = make_run()
    lines = [f"{number % 37}{'a' * (number % 5)}" for number in range(400)]
    data = open_text(
        write("a.txt", "\n".join(lines)),
        run=run,
        format=Auto(documents="line"),
        stages=[Short(), Once(), Short(least=4)],
    )
    dropped = Counter(
        what for (_, what), number in run.counts.items() for _ in range(number) if "dropped" in what
    )
    assert len(documents(data)) + sum(dropped.values()) == 400
