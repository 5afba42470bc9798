"""`nlpkernel generate`: text from a trained model. Light: torch is imported when it runs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from nlpkernel.errors import UsageError, fail

HELP = "Write text with a trained language model."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("run", help="the run's folder: runs/NAME, or runs/latest")
    parser.add_argument(
        "--prompt",
        action="append",
        metavar="TEXT",
        help="what to go on from; may be given several times; - reads it from standard input; left out: a new text",
    )
    parser.add_argument("--tokens", type=int, default=200, metavar="N", help="at most so many tokens (200)")
    parser.add_argument(
        "--temperature",
        type=float,
        default=0.8,
        metavar="X",
        help="0: always the likeliest token; 1: as learned (0.8)",
    )
    parser.add_argument("--top-k", type=int, metavar="K", help="draw among the K likeliest tokens only")
    parser.add_argument(
        "--top-p", type=float, metavar="P", help="draw among the likeliest tokens with probability P in all"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="repeats the same text; the next prompt has N + 1 (0)",
    )
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before it; may be repeated"
    )
    parser.add_argument("--version", metavar="NAME", help="a saved version; left out: the newest")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (auto)")
    parser.add_argument("--json", action="store_true", help="one JSON object for each prompt, each on a line")


def execute(args: argparse.Namespace) -> int:
    """Open the model and write."""
    prompts = [sys.stdin.read() if prompt == "-" else prompt for prompt in args.prompt or [""]]
    from nlpkernel_transformer.generation import Sampling

    plans = [
        Sampling(
            tokens=args.tokens,
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
            seed=args.seed + number,
            stop=tuple(args.stop),
        )
        for number in range(len(prompts))
    ]
    from nlpkernel import open_model

    opened = open_model(args.run, version=args.version, device=args.device)
    if not (hasattr(opened.model, "prefill") and hasattr(opened.model, "decode")):
        raise fail(
            UsageError,
            "TRF003",
            f"the model of {args.run!r} ({type(opened.model).__name__}) does not generate text",
        )
    for number, (prompt, sampling) in enumerate(zip(prompts, plans, strict=True)):
        if args.json:
            _write_json(opened, prompt, sampling)
        else:
            if number:
                sys.stdout.write("\n")
            _write_text(opened, prompt, sampling)
    return 0


def _write_text(opened: Any, prompt: str, sampling: Any) -> None:
    """Prompt and text on standard output, each piece as soon as it is there."""
    from nlpkernel_transformer.generation import sample

    last = prompt
    sys.stdout.write(prompt)
    sys.stdout.flush()
    for piece in sample(opened.model, opened.codec, prompt, sampling, device=opened.device):
        sys.stdout.write(piece)
        sys.stdout.flush()
        last = piece
    if not last.endswith("\n"):
        sys.stdout.write("\n")


def _write_json(opened: Any, prompt: str, sampling: Any) -> None:
    """One object on one line."""
    import json

    from nlpkernel_transformer.generation import sample

    text = sample(opened.model, opened.codec, prompt, sampling, device=opened.device)
    row = {
        "prompt": prompt,
        "text": "".join(text),
        "tokens": text.tokens,
        "ended": text.reason,
        "seed": sampling.seed,
        "version": opened.version,
    }
    sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    sys.stdout.flush()
