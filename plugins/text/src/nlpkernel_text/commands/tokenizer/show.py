"""`tokenizer show`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpkernel.cli.output import say, table, write_json
from nlpkernel.errors import UsageError, fail
from nlpkernel_text.commands.opened import as_text, structured, working_run

if TYPE_CHECKING:
    from nlpkernel.hookspecs.tokenizer import Tokenizer


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument(
        "source", metavar="PATH|RUN", help="a tokenizer's file or folder, or the folder of a run"
    )
    parser.add_argument("--text", help="the text to tokenize")
    parser.add_argument("--version", metavar="VERSION", help="of a run; left out: the newest")
    parser.add_argument("--json", action="store_true", help="for machines")


def execute(args: argparse.Namespace) -> int:
    """Show the tokenizer, or what it makes of a text."""
    if args.text is not None and not args.text.isascii():
        try:
            args.text.encode()
        except UnicodeEncodeError as error:
            raise fail(UsageError, "TXT019", f"--text is not UTF-8: {error.reason}") from error
    tokenizer = _open(args)
    told: dict[str, Any] = {
        "vocabulary": tokenizer.vocabulary,
        **{role: _named(tokenizer, getattr(tokenizer, role, None)) for role in ("end", "pad", "unknown")},
    }
    if args.text is not None:
        ids = [int(number) for number in tokenizer.encode(args.text)]
        told["ids"] = ids
        told["pieces"] = [_piece(tokenizer, number) for number in ids]
        told["decoded"] = tokenizer.decode(ids)
    if args.json:
        write_json(told)
    elif args.text is None:
        rows = [("vocabulary", f"{told['vocabulary']:,}")]
        for role in ("end", "pad", "unknown"):
            mark = told[role]
            rows.append((role, "none" if mark is None else f"{mark['id']} {mark['piece']!r}"))
        table(rows)
    else:
        table([(number, repr(piece)) for number, piece in zip(told["ids"], told["pieces"], strict=True)])
        back = (
            "it comes back as it is"
            if told["decoded"] == args.text
            else f"it comes back as {told['decoded']!r}"
        )
        if not args.quiet:
            say(f"{len(told['ids'])} tokens; {back}")
    return 0


def _open(args: argparse.Namespace) -> Tokenizer:
    from nlpkernel import runs

    path = Path(args.source)
    tokenizer: Tokenizer
    if (path / runs.PLAN).is_file():
        return _of_run(args.source, args.version)
    if args.version is not None:
        raise fail(UsageError, "TXT019", f"--version goes with a run, and {args.source!r} is none")
    with working_run(quiet=True) as run:
        component = structured("tokenizer", {"use": "pretrained", "path": args.source})
        tokenizer = run.ask(component, "create_tokenizer", run=run, texts=tuple)
    return tokenizer


def _of_run(source: str, version: str | None) -> Tokenizer:
    """The tokenizer of a version of a run."""
    from nlpkernel import runs
    from nlpkernel.engine.opening import activate, reading
    from nlpkernel.plan import Plan
    from nlpkernel_text.codec import TOKENIZER

    folder = runs.find(source)
    run, hooks, composition = activate(Plan.load(folder / runs.PLAN), folder)
    text = as_text(composition.slot("data").component, source)
    if not composition.has("checkpoint"):
        raise fail(
            UsageError, "TXT019", f"the run {source!r} keeps no versions: its plan has no [checkpoint]"
        )
    with reading(run, hooks, composition) as store:
        if not store.list():
            raise fail(UsageError, "TXT019", f"the run {source!r} has no complete version yet")
        artifacts = store.load(version).artifacts
    if TOKENIZER not in artifacts:
        raise fail(UsageError, "TXT019", f"the version of {source!r} holds no tokenizer")
    tokenizer: Tokenizer = run.ask(text.tokenizer, "load_tokenizer", run=run, saved=artifacts[TOKENIZER])
    return tokenizer


def _named(tokenizer: Tokenizer, number: int | None) -> dict[str, Any] | None:
    return None if number is None else {"id": number, "piece": _piece(tokenizer, number)}


def _piece(tokenizer: Tokenizer, number: int) -> str:
    """What an id stands for, as a person reads it."""
    piece = getattr(tokenizer, "piece", None)
    return str(piece(number)) if piece is not None else tokenizer.decode([number])
