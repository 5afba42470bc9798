"""Text files to packed tokens: the plugin `text` against its tokenizer alone, and against Hugging Face `datasets`.

    python tests/benchmarks/packing.py [--data PATH] [--documents line] [--repeats 5] [--threads 2] [--json]

The documents are the files of the Python standard library without its tests, or those of --data. One BPE tokenizer is
trained before. All arms have it, in one process and with as many threads (RAYON_NUM_THREADS, 0: all cores), and take
turns. Arms:

  tokenizer   `Tokenizer.encode_batch_fast` of the tokenizers library on all documents, which are in memory, and the
              ids of each as a list: tokens that nobody reads are of no use
  text        from files to rows: found, hashed, checked, tokenized, written to the memory-mapped cache, opened. Rows
              are views of the cache, so packing is done when it is open. `text: tokenizing` is that phase of it
  datasets    from files to rows: `load_dataset("text")`, `map` of the tokenizer over batches, `map` that groups its
              tokens into rows, both into Arrow files. `datasets: map` is the two maps of it

Throughput is characters a second of wall time. `text is` says how many times as fast `text` is (`text: tokenizing` for
`datasets: map`); medians of the repeats, with the least and the most. Budget (issue 2): 0.9 of the tokenizer, 1.2 times
`datasets`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WINDOW = 256


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a text file or folder; left out: the standard library")
    parser.add_argument("--documents", default="file", choices=("file", "line", "blank"))
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="threads of the tokenizer; 0: all cores")
    parser.add_argument("--without-datasets", action="store_true", help="leave the arm out")
    parser.add_argument("--json", action="store_true", help="one object a row")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
    if args.threads:
        os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    rows = measure(args)
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return
    print("$ python", " ".join(sys.argv))
    print(
        f"{rows[0]['characters']:,} characters, {rows[0]['tokens']:,} tokens, {args.repeats} repeats, interleaved"
    )
    print(f"{'arm':<18}{'Mchar/s':>9}{'seconds':>9}{'cpu s':>8}{'text is':>10}{'least':>8}{'most':>8}")
    for row in rows:
        ratio = (
            "" if row["ratio"] is None else f"{row['ratio']:>9.2f}x{row['least']:>8.2f}{row['most']:>8.2f}"
        )
        print(f"{row['arm']:<18}{row['mchar_s']:>9.2f}{row['seconds']:>9.2f}{row['cpu']:>8.2f}{ratio}")


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row an arm."""
    from nlpkernel import component
    from nlpkernel.context import Run, Task
    from nlpkernel.events import Event, Working
    from nlpkernel.plan.train import Train
    from nlpkernel_text.component import Text
    from nlpkernel_text.corpus import Corpus
    from nlpkernel_text.opening import open_text
    from nlpkernel_text.reading.components import Auto
    from nlpkernel_text.reading.faults import Faults
    from nlpkernel_text.samplers.components import Shuffle
    from nlpkernel_text.task import Lm
    from nlpkernel_text.tokenizers.components import Bpe
    from nlpkernel_text.tokenizers.library import LibraryTokenizer

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def run_in(cache: str) -> Run:
            return Run(name="packing", folder=folder, cache=folder / cache, train=Train())

        source = {"paths": (args.data,)} if args.data else {"source": "stdlib"}
        settings: dict[str, Any] = {**source, "validation": 0.0, "window": WINDOW, "task": Lm()}
        settings |= {"format": Auto(documents=args.documents), "sampling": Shuffle()}
        bpe = Bpe(vocabulary=args.vocabulary)
        corpus = Corpus(Text(tokenizer=bpe, **settings), run_in("x"))
        corpus.measure(Faults(False), Task(run_in("x").bus, "", None, ""))
        saved = bpe.create_tokenizer(run_in("x"), corpus.texts).save()
        documents: list[str] = []
        for piece in corpus.pieces():
            if not piece.chunk.opens:
                documents[-1] += piece.chunk.texts[0]
            documents += piece.chunk.texts if piece.chunk.opens else piece.chunk.texts[1:]
        characters = sum(map(len, documents))

        @component
        class Trained(Bpe):
            """The tokenizer as it is, so that training is no part of what is measured."""

            def create_tokenizer(self, run: Run, texts: Any) -> LibraryTokenizer:
                return LibraryTokenizer.load(saved, self.end)

        def alone() -> dict[str, float]:
            tokenizer = LibraryTokenizer.load(saved, bpe.end)._tokenizer
            watch = Watch()
            found = [each.ids for each in tokenizer.encode_batch_fast(documents, add_special_tokens=False)]
            return {"tokenizer": watch.wall(), "cpu tokenizer": watch.cpu(), "tokens": sum(map(len, found))}

        def text(number: int) -> dict[str, float]:
            run = run_in(f"cache-{number}")
            phases: dict[str, tuple[Watch, float, float]] = {}

            def hear(event: Event) -> None:
                if isinstance(event, Working):
                    watch = phases[event.what][0] if event.what in phases else Watch()
                    phases[event.what] = (watch, watch.wall(), watch.cpu())

            run.bus.on(Event, hear)
            watch = Watch()
            open_text(Text(tokenizer=Trained(vocabulary=args.vocabulary), **settings), run)
            _, seconds, cpu = phases["tokenizing"]
            return {
                "text": watch.wall(),
                "cpu text": watch.cpu(),
                "text: tokenizing": seconds,
                "cpu text: tokenizing": cpu,
            }

        arms: list[Callable[[int], dict[str, float]]] = [lambda number: alone(), text]
        if not args.without_datasets:
            paths = [each.file.where for each in corpus.files]
            arms.append(
                lambda number: peer(paths, args.documents, saved, bpe.end, folder / f"arrow-{number}")
            )
        found: dict[str, list[float]] = {}
        for number in range(-1, args.repeats):
            for arm in arms:
                for what, value in arm(number).items():
                    # The first turn imports what an arm needs, and warms the files.
                    if number >= 0:
                        found.setdefault(what, []).append(value)
    rows = []
    for name in ("tokenizer", "text", "text: tokenizing", "datasets", "datasets: map"):
        if name not in found:
            continue
        ours = "text: tokenizing" if name == "datasets: map" else "text"
        ratios = (
            [] if name.startswith("text") else [a / b for a, b in zip(found[name], found[ours], strict=True)]
        )
        seconds = statistics.median(found[name])
        rows.append(
            {
                "arm": name,
                "characters": characters,
                "tokens": int(found["tokens"][0]),
                "seconds": seconds,
                "cpu": statistics.median(found[f"cpu {name}"]),
                "mchar_s": characters / seconds / 1e6,
                "ratio": statistics.median(ratios) if ratios else None,
                "least": min(ratios, default=None),
                "most": max(ratios, default=None),
            }
        )
    return rows


class Watch:
    """Wall and CPU time, with that of child processes."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), self._now()

    def wall(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._wall

    def cpu(self) -> float:
        """Seconds of CPU since it was made."""
        return self._now() - self._cpu

    @staticmethod
    def _now() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system


def peer(paths: list[str], documents: str, saved: bytes, end: str, cache: Path) -> dict[str, float]:
    """The recipe of Hugging Face's language-modelling examples: load, tokenize in batches, group."""
    import datasets

    from nlpkernel_text.tokenizers.library import LibraryTokenizer

    datasets.disable_progress_bars()
    tokenizer = LibraryTokenizer.load(saved, end)._tokenizer
    last = tokenizer.token_to_id(end)

    def tokenize(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        encodings = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"ids": [[*encoding.ids, last] for encoding in encodings]}

    def group(batch: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        flat = [number for ids in batch["ids"] for number in ids]
        return {"ids": [flat[at : at + WINDOW] for at in range(0, len(flat), WINDOW)]}

    cache.mkdir()
    watch = Watch()
    by = {"file": "document", "line": "line", "blank": "paragraph"}[documents]
    made = datasets.load_dataset(
        "text", data_files=paths, sample_by=by, split="train", cache_dir=str(cache / "loaded")
    )
    loaded, loaded_cpu = watch.wall(), watch.cpu()
    options = {"batched": True, "load_from_cache_file": False}
    # Named, because hashing the functions would count as work.
    tokens = made.map(
        tokenize,
        remove_columns=["text"],
        cache_file_name=str(cache / "1.arrow"),
        new_fingerprint=f"{cache.name}-1",
        **options,
    )
    tokens.map(group, cache_file_name=str(cache / "2.arrow"), new_fingerprint=f"{cache.name}-2", **options)
    return {
        "datasets": watch.wall(),
        "cpu datasets": watch.cpu(),
        "datasets: map": watch.wall() - loaded,
        "cpu datasets: map": watch.cpu() - loaded_cpu,
    }


if __name__ == "__main__":
    main()
