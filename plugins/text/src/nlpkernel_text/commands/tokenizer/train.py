"""`tokenizer train`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpkernel.aside import aside
from nlpkernel.cli.output import say, write_json
from nlpkernel.errors import UsageError, fail
from nlpkernel_text.commands.opened import opened, structured, working_run

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.component import Text


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="PLAN|FILE",
        help="a plan; with --kind, the files, folders and patterns to train on",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="the file to write: a tokenizer.json")
    parser.add_argument(
        "--kind", help="a tokenizer component, instead of that of a plan: bpe, wordpiece, unigram, ..."
    )
    parser.add_argument("--vocabulary", metavar="N", help="entries, with --kind")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override a setting: data.tokenizer.lowercase=true",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file where it is there")
    parser.add_argument("--json", action="store_true", help="for machines")


def execute(args: argparse.Namespace) -> int:
    """Train on the training split, and write."""
    out = Path(args.out)
    if out.is_dir() or (out.exists() and not args.overwrite):
        what = "is a folder" if out.is_dir() else "exists"
        raise fail(
            UsageError, "TXT018", f"{str(out)!r} {what}", hint="name another file, or write --overwrite"
        )
    if not out.parent.is_dir():
        raise fail(UsageError, "TXT018", f"there is no folder {str(out.parent)!r} to write to")
    from nlpkernel_text.building import Building

    with _asked(args) as (text, run):
        corpus = Building(text, run).documents()
        start = time.perf_counter()
        tokenizer = run.ask(text.tokenizer, "create_tokenizer", run=run, texts=corpus.texts)
        seconds = time.perf_counter() - start
        with aside(out) as file:
            file.write(tokenizer.save())
    told: dict[str, Any] = {
        "file": str(out),
        "vocabulary": tokenizer.vocabulary,
        "end": tokenizer.end,
        "documents": corpus.size.documents,
        "seconds": seconds,
    }
    if args.json:
        write_json(told)
    elif not args.quiet:
        say(f"{out}: {tokenizer.vocabulary:,} entries, made in {seconds:.1f} s")
        say(f'a plan takes it up with tokenizer = {{ use = "pretrained", path = "{out.name}" }}')
    return 0


@contextmanager
def _asked(args: argparse.Namespace) -> Iterator[tuple[Text, Run]]:
    if args.kind is None:
        if args.vocabulary is not None:
            message = "--vocabulary goes with --kind"
            raise fail(
                UsageError, "TXT019", message, hint="with a plan, write --set data.tokenizer.vocabulary=N"
            )
        if len(args.inputs) > 1:
            message = f"{len(args.inputs)} plans are named, and one is wanted"
            raise fail(UsageError, "TXT019", message, hint="to train on files, write --kind")
        with opened(args.inputs[0], args.overrides, quiet=args.quiet) as found:
            yield found
        return
    tokenizer: dict[str, Any] = {"use": args.kind}
    if args.vocabulary is not None:
        tokenizer["vocabulary"] = int(args.vocabulary) if args.vocabulary.isdecimal() else args.vocabulary
    values = {"use": "text", "paths": list(args.inputs), "validation": 0.0, "tokenizer": tokenizer}
    with working_run(quiet=args.quiet) as run:
        yield structured("data", values, args.overrides), run
