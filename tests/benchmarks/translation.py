"""Multi30k, English to German: an encoder-decoder from scratch, by BLEU on the 2016 test captions.

    python tests/benchmarks/translation.py --data data/multi30k [--seeds 3] [--epochs 12] [--threads 2]

--data is a folder with train, val and test_2016_flickr captions of Multi30k, task 1, each as `.en.gz` and `.de.gz`.
Each seed is a whole run through a plan: one byte-level BPE for both languages is trained on the training captions, and
so is a Transformer of 3 + 3 layers and width 128. Nothing was chosen by the test captions: the last version is
evaluated on them once, with 5 beams, through `nlpkernel evaluate`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

import nlpkernel

PLAN: dict[str, Any] = {
    "name": "translation",
    "train": {"batch": 128, "clip": 1.0, "evaluate": {"every": 500}},
    "data": {
        "use": "text",
        "paths": ["train.jsonl"],
        "validation_paths": ["val.jsonl"],
        "fields": {"text": "en", "target": "de"},
        "pack": "rows",
        "long": "truncate",
        "window": 64,
        "sampling": "length-grouped",
        "tokenizer": {"use": "bpe", "vocabulary": 6000},
        "task": {"use": "seq2seq", "smoothing": 0.1, "beams": 5, "most": 64, "measures": ["bleu", "chrf"]},
    },
    "model": {
        "use": "encoder-decoder",
        "layers": 3,
        "heads": 4,
        "width": 128,
        "hidden": 512,
        "dropout": 0.15,
    },
    "optimizer": {"use": "adamw", "lr": 2e-3, "schedule": {"use": "cosine", "warmup": 300}},
    "checkpoint": {"use": "store", "keep": {"last": 1}},
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data/multi30k"), help="folder of the captions")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--epochs", type=float, default=12.0)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if not list(args.data.glob("train*.en.gz")):
        raise SystemExit(
            f"left out: there are no captions in {args.data}; give the folder of Multi30k with --data"
        )
    print("$ python", " ".join(sys.argv))
    with tempfile.TemporaryDirectory() as folder:
        sizes = [_write(args.data, Path(folder), name) for name in ("train", "val", "test_2016_flickr")]
        print(f"{sizes[0]} pairs to train on, {sizes[1]} to validate on, {sizes[2]} to test on")
        found = [
            _seed(Path(folder), seed, args.epochs, args.threads)
            for seed in range(args.first, args.first + args.seeds)
        ]
    bleu, chrf = ([each[name] for each in found] for name in ("bleu", "chrf"))
    print(f"BLEU {mean(bleu):.2f}, from {min(bleu):.2f} to {max(bleu):.2f}; chrF2 {mean(chrf):.2f}")


def _write(source: Path, folder: Path, name: str) -> int:
    sides = []
    for language in ("en", "de"):
        (path,) = source.glob(f"{name}*.{language}.gz")
        with gzip.open(path, "rt", encoding="utf-8") as file:
            sides.append(file.read().splitlines())
    pairs = list(zip(*sides, strict=True))
    lines = [json.dumps({"en": en, "de": de}, ensure_ascii=False) + "\n" for en, de in pairs]
    (folder / f"{name.partition('_')[0]}.jsonl").write_text("".join(lines), encoding="utf-8")
    return len(pairs)


def _seed(folder: Path, seed: int, epochs: float, threads: int) -> dict[str, float]:
    train = {**PLAN["train"], "seed": seed, "epochs": epochs, "threads": threads}
    start = time.monotonic()
    report = nlpkernel.run(
        nlpkernel.Plan.of({**PLAN, "train": train}, base=folder), runs_folder=folder / str(seed)
    )
    seconds = time.monotonic() - start
    command = [sys.executable, "-m", "nlpkernel", "evaluate", str(report.folder), "--json"]
    out = subprocess.run(
        [*command, "--data", str(folder / "test.jsonl")], check=True, capture_output=True, text=True
    )
    found = json.loads(out.stdout)
    opened = nlpkernel.open_model(report.folder, device="cpu")
    parameters = sum(each.numel() for each in opened.model.parameters())
    values: dict[str, float] = found["metrics"]
    print(
        f"seed {seed}: BLEU {values['bleu']:.2f} ({found['bleu']}), chrF2 {values['chrf']:.2f}; loss of the validation "
        f"captions {report.metrics['validation/loss']:.4f}; {parameters:,} parameters, "
        f"{report.progress.tokens:,} tokens of English, {seconds / 60:.1f} minutes"
    )
    return values


if __name__ == "__main__":
    main()
