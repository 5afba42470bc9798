"""From messy records to batches: the plugins `text` and `clean` against Hugging Face `datasets`.

    python tests/benchmarks/pipeline.py [speed] [memory] [waiting] [--data FILE.jsonl] [--processes 1 2] [--repeats 3]

The records are JSON lines with a text: what stands between blank lines in the Python standard library (about 90,000
records, some of them twice), or those of --data. A BPE tokenizer is trained before.

speed    Both arms read the records, normalize them (the stage `normalize`, in as many processes), drop exact duplicates
         (the stage `duplicates`, in order), tokenize, pack into rows of 256 tokens, and give one epoch of batches of 16
         rows as tensors. They take turns. `datasets`: load_dataset("json"), map and filter over the same two stages,
         map of the same tokenizer, map that groups tokens, a torch DataLoader. `ours is` says how many times as fast
         `text` is: medians of the repeats, with the least and the most. Aim (issue 6): 1.2
memory   The peak of a process that cleans and tokenizes the records, and of one that does it with ten times as many;
         the same for a stream. What finds duplicates keeps some bytes of each record, and is left out
waiting  The share of the time for which a training loop waits that takes 50,000 tokens a second: rows of the cache,
         rows with other wordings, and a stream that is cleaned and tokenized as it goes. Aim: under 2%
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

WINDOW, ROWS = 256, 16
RATE = 50_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["speed", "memory", "waiting"])
    parser.add_argument("--data", type=Path, help="JSON lines with a text under the key `text`")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one object a row")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
    print("$ python", " ".join(sys.argv))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = args.data or library(folder / "records.jsonl")
        saved = trained(records, folder)
        for part in args.parts:
            for row in PARTS[part](records, saved, folder, args):
                print(json.dumps(row) if args.json else "  ".join(f"{value}" for value in row.values()))


def library(path: Path) -> Path:
    """What stands between blank lines in the standard library, as records."""
    from nlpkernel_text.reading.faults import Faults
    from nlpkernel_text.reading.finding import stdlib_files
    from nlpkernel_text.reading.plain import Paragraphs

    with path.open("w", encoding="utf-8") as file:
        for each in stdlib_files():
            for records in Paragraphs().read(each, ("text",), Faults(True)):
                for text in records.columns["text"]:
                    file.write(json.dumps({"text": text, "file": each.shown}) + "\n")
    return path


def plan(records: Path, saved: bytes, **settings: Any) -> Any:
    """The data of a plan, with a tokenizer that is trained already."""
    from nlpkernel import component
    from nlpkernel_text.component import Text
    from nlpkernel_text.reading.components import JsonLines
    from nlpkernel_text.samplers.components import Shuffle
    from nlpkernel_text.task import Lm
    from nlpkernel_text.tokenizers.components import Bpe
    from nlpkernel_text.tokenizers.library import LibraryTokenizer

    @component
    class Trained(Bpe):
        """The tokenizer as it is, so that training is no part of what is measured."""

        def create_tokenizer(self, run: Any, texts: Any) -> LibraryTokenizer:
            return LibraryTokenizer.load(saved, self.end)

    common: dict[str, Any] = {
        "format": JsonLines(),
        "sampling": Shuffle(),
        "task": Lm(),
        "tokenizer": Trained(),
    }
    return Text(**{"paths": (records,), "validation": 0.0, "window": WINDOW, **common, **settings})


def run_in(cache: Path, heard: Callable[[Any], None] | None = None) -> Any:
    """A run that trains nothing."""
    from nlpkernel.context import Run
    from nlpkernel.events import Event
    from nlpkernel.plan.train import Train

    run = Run(name="pipeline", folder=cache, cache=cache, train=Train(batch=ROWS, steps=1, policy=()))
    if heard is not None:
        run.bus.on(Event, heard)
    return run


def trained(records: Path, folder: Path) -> bytes:
    """A tokenizer for the records."""
    from nlpkernel_text.tokenizers.components import Bpe

    def texts() -> Iterator[str]:
        with records.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)["text"]

    return bytes(Bpe(vocabulary=4096).create_tokenizer(run_in(folder), texts).save())


# -- speed ----------------------------------------


def speed(records: Path, saved: bytes, folder: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each arm and phase."""
    yield {"head": f"{'speed':<22}{'documents/s':>12}{'tokens/s':>12}{'ours is':>9}{'least':>7}{'most':>7}"}
    with records.open(encoding="utf-8") as file:
        documents = sum(1 for _ in file)
    for processes in args.processes:
        found: dict[str, dict[str, list[float]]] = {"text": {}, "datasets": {}}
        tokens = 0
        for turn in range(-1, args.repeats):
            for name, arm in (("text", ours), ("datasets", theirs)):
                with tempfile.TemporaryDirectory(dir=folder) as cache:
                    phases = arm(records, saved, processes, Path(cache))
                tokens = max(tokens, int(phases.pop("tokens", 0)))
                # The first turn imports what an arm needs, and warms the files.
                for phase, seconds in phases.items() if turn >= 0 else ():
                    found[name].setdefault(phase, []).append(seconds)
        for phase in found["text"]:
            for name in ("text", "datasets"):
                seconds = statistics.median(found[name][phase])
                ratios = [a / b for a, b in zip(found["datasets"][phase], found["text"][phase], strict=True)]
                ratio = f"{statistics.median(ratios):>8.2f}x{min(ratios):>7.2f}{max(ratios):>7.2f}"
                yield {
                    "arm": f"{name}, {processes}: {phase}".ljust(22),
                    "documents": f"{documents / seconds:>12,.0f}",
                    "tokens": f"{tokens / seconds:>12,.0f}",
                    "ratio": ratio if name == "datasets" else "",
                }


def ours(records: Path, saved: bytes, processes: int, cache: Path) -> dict[str, float]:
    """Seconds of each phase of the plugin, and of all."""
    from nlpkernel.events import Working
    from nlpkernel_clean.components.duplicates import Duplicates
    from nlpkernel_clean.components.normalize import Normalize

    marks: dict[str, list[float]] = {}

    def hear(event: Any) -> None:
        if isinstance(event, Working):
            marks.setdefault(event.what, []).append(time.perf_counter())

    stages = [Normalize(), Duplicates()]
    text = plan(records, saved, stages=stages, workers=processes if processes > 1 else 0)
    begun = time.perf_counter()
    data = text.open_data(run_in(cache, hear))
    opened = time.perf_counter()
    for step in range(data.steps(epochs=1.0)):
        for index in range(len(data.window(step))):
            data.microbatch(step, index)
    ended = time.perf_counter()
    data.close()
    clean = marks["cleaning"][-1] - marks["cleaning"][0]
    return {
        "read, clean": clean + (marks["reading"][-1] - marks["reading"][0]),
        "tokenize, pack": opened - marks["tokenizing"][0],
        "batches": ended - opened,
        "all": ended - begun,
        "tokens": float(data.info.splits["train"].tokens or 0),
    }


def theirs(records: Path, saved: bytes, processes: int, cache: Path) -> dict[str, float]:
    """The same with `datasets`."""
    import datasets
    import torch

    from nlpkernel.hookspecs.stage import Documents
    from nlpkernel_clean.components.duplicates import Duplicates
    from nlpkernel_clean.components.normalize import Normalize
    from nlpkernel_text.tokenizers.library import LibraryTokenizer

    datasets.disable_progress_bars()
    tokenizer = LibraryTokenizer.load(saved, "<|end|>")._tokenizer
    last = tokenizer.token_to_id("<|end|>")
    normalize, duplicates = Normalize().create_stage(), Duplicates().create_stage()

    def cleaned(batch: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
        texts = batch["text"]
        outcome = normalize.apply(Documents(texts, {}, texts))
        made = texts if outcome.texts is None else outcome.texts
        return {"text": [text for number, text in enumerate(made) if number not in outcome.dropped]}

    def once(batch: Mapping[str, list[str]]) -> list[bool]:
        outcome = duplicates.apply(Documents(batch["text"], {}, batch["text"]))
        return [number not in outcome.dropped for number in range(len(batch["text"]))]

    def tokenize(batch: Mapping[str, list[str]]) -> dict[str, list[list[int]]]:
        encodings = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"ids": [[*encoding.ids, last] for encoding in encodings]}

    def group(batch: Mapping[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        flat = [number for ids in batch["ids"] for number in ids]
        return {"ids": [flat[at : at + WINDOW] for at in range(0, len(flat) - WINDOW + 1, WINDOW)]}

    def options(name: str) -> dict[str, Any]:
        # Named, because hashing the functions would count as work.
        return {"batched": True, "load_from_cache_file": False, "new_fingerprint": f"{cache.name}-{name}",
                "cache_file_name": str(cache / f"{name}.arrow")}  # fmt: skip

    begun = time.perf_counter()
    made = datasets.load_dataset(
        "json", data_files=[str(records)], split="train", cache_dir=str(cache / "loaded")
    ).select_columns(["text"])
    several = {"num_proc": processes} if processes > 1 else {}
    made = made.map(cleaned, **several, **options("cleaned"))
    made = made.filter(once, **options("once"))
    clean = time.perf_counter()
    made = made.map(tokenize, remove_columns=["text"], **several, **options("tokens"))
    made = made.map(group, **several, **options("rows"))
    packed = time.perf_counter()
    loader = torch.utils.data.DataLoader(made.with_format("torch"), batch_size=ROWS, shuffle=True)
    for _ in loader:
        pass
    ended = time.perf_counter()
    return {
        "read, clean": clean - begun,
        "tokenize, pack": packed - clean,
        "batches": ended - packed,
        "all": ended - begun,
    }


# -- memory ----------------------------------------


def memory(records: Path, saved: bytes, folder: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Peaks of processes of their own."""
    yield {"head": f"{'memory':<22}{'MB of records':>14}{'peak, MB':>12}"}
    large = folder / "large.jsonl"
    content = records.read_bytes()
    with large.open("wb") as file:
        for _ in range(10):
            file.write(content)
    context = multiprocessing.get_context("spawn")
    for what in (built, streamed):
        peaks = []
        for path in (records, large):
            queue = context.Queue()
            with tempfile.TemporaryDirectory(dir=folder) as cache:
                process = context.Process(target=peak_of, args=(what, path, saved, Path(cache), queue))
                process.start()
                peaks.append(queue.get())
                process.join()
            yield {
                "what": what.__name__.ljust(22),
                "size": f"{path.stat().st_size / 1e6:>14.1f}",
                "peak": f"{peaks[-1]:>12.0f}",
            }
        yield {"what": f"{what.__name__}, ten times".ljust(22), "ratio": f"{peaks[1] / peaks[0]:>26.2f}x"}


def peak_of(what: Any, path: Path, saved: bytes, cache: Path, queue: Any) -> None:
    """Do it and tell the peak of this process in MB."""
    import resource

    what(path, saved, cache)
    queue.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def built(path: Path, saved: bytes, cache: Path) -> None:
    """Clean and tokenize."""
    from nlpkernel_clean.components.normalize import Normalize

    plan(path, saved, stages=[Normalize()]).open_data(run_in(cache)).close()


def streamed(path: Path, saved: bytes, cache: Path) -> None:
    """A pass of a stream."""
    from nlpkernel_clean.components.normalize import Normalize
    from nlpkernel_text.settings import Stream

    data = plan(path, saved, stages=[Normalize()], stream=Stream(buffer=512)).open_data(run_in(cache))
    step = 0
    while data.epoch(step) < 1:
        data.window(step)
        data.microbatch(step, 0)
        step += 1
    data.close()


# -- waiting ----------------------------------------


def waiting(records: Path, saved: bytes, folder: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Shares of the time of a loop at a given rate."""
    from nlpkernel_augment.component import Swap
    from nlpkernel_clean.components.normalize import Normalize
    from nlpkernel_text.settings import Stream

    yield {"head": f"{'waiting':<22}{'tokens/s':>12}{'waits':>9}{'longest, ms':>13}"}
    rows = {"pack": "rows", "long": "truncate"}
    arms: dict[str, dict[str, Any]] = {
        "cache": {"stages": [Normalize()]},
        "other wordings": {**rows, "augment": [Swap(strength=0.1)]},
        "stream": {"stages": [Normalize()], "stream": Stream()},
    }
    for name, settings in arms.items():
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            data = plan(records, saved, **settings).open_data(run_in(Path(cache)))
            waits, seconds, tokens = loop(data)
            data.close()
        yield {
            "arm": name.ljust(22),
            "rate": f"{tokens / seconds:>12,.0f}",
            "share": f"{sum(waits) / seconds:>9.2%}",
            "longest": f"{1e3 * max(waits):>13.1f}",
        }


def loop(data: Any, steps: int = 150) -> tuple[list[float], float, int]:
    """Take batches at the rate; what the loop waits for each, what it takes in all, and the tokens. Between two batches
    torch works in another thread's place, as in training: it does not hold the interpreter."""
    import torch

    square = torch.randn(256, 256)
    data.window(0)
    data.microbatch(0, 0)
    waits, tokens = [], 0
    begun = time.perf_counter()
    for step in range(1, steps + 1):
        before = time.perf_counter()
        window = data.window(step)
        for index in range(len(window)):
            data.microbatch(step, index)
        waits.append(time.perf_counter() - before)
        tokens += sum(each.tokens for each in window)
        until = begun + tokens / RATE + sum(waits)
        while time.perf_counter() < until:
            square @ square
    return waits, time.perf_counter() - begun, tokens


PARTS: Mapping[str, Any] = {"speed": speed, "memory": memory, "waiting": waiting}

if __name__ == "__main__":
    main()
