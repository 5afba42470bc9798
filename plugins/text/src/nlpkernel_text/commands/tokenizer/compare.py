"""`tokenizer compare`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpkernel.cli.options import plan_options
from nlpkernel.cli.output import say, table, write_json
from nlpkernel.errors import UsageError, fail
from nlpkernel_text.commands.opened import opened, structured

if TYPE_CHECKING:
    from nlpkernel_text.component import Text
    from nlpkernel_text.corpus import Corpus

_HEAD = (
    *("tokenizer", "vocabulary", "used", "tokens", "per word", "characters per token", "bytes per token"),
    *("unknown", "comes back", "speed"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    plan_options(parser)
    parser.add_argument(
        "tokenizers",
        nargs="+",
        metavar="TOKENIZER",
        help="a file or folder, a component (bytes), one with sizes, which is trained on the plan's training split "
        "(bpe:4096,8192), or `plan` for the plan's own",
    )
    parser.add_argument(
        "--characters",
        type=_count,
        default=5_000_000,
        metavar="N",
        help="how much text to measure on (5,000,000)",
    )
    parser.add_argument(
        "--rounds", type=_count, default=3, metavar="N", help="how often each encodes it, for the speed (3)"
    )
    parser.add_argument("--json", action="store_true", help="for machines")


def execute(args: argparse.Namespace) -> int:
    """Make all tokenizers, measure each, and let them take turns for the speed."""
    from nlpkernel_text.building import Building
    from nlpkernel_text.tokenizers.measuring import fit, speeds

    with opened(args.plan, args.overrides, quiet=args.quiet) as (text, run):
        # Structured first: a mistake in the last one is told before the first is trained.
        wanted = [each for word in args.tokenizers for each in _wanted(word, text)]
        corpus = Building(text, run).documents()
        split, texts = _texts(corpus, args.characters)
        made = [
            run.ask(component, "create_tokenizer", run=run, texts=corpus.texts) for _, component in wanted
        ]
        fits = [fit(tokenizer, texts) for tokenizer in made]
        with run.working("encoding", len(made) * args.rounds, "turns") as work:
            fast = speeds(made, texts, args.rounds, work.advance)
    rows: list[dict[str, Any]] = [
        {"tokenizer": name, **measure.plain(), "speed": speed}
        for (name, _), measure, speed in zip(wanted, fits, fast, strict=True)
    ]
    if args.json:
        write_json({"split": split, "texts": len(texts), "rows": rows})
        return 0
    table([_HEAD, *map(_cells, rows)], head=True)
    if not args.quiet:
        first = rows[0]
        say(
            f"\nmeasured on the {split} split: {first['characters']:,} characters, {first['words']:,} words (what "
            f"stands between white space); speed is relative to {first['tokenizer']}"
        )
    return 0


def _wanted(word: str, text: Text) -> list[tuple[str, Any]]:
    """The components that a word on the command line means, with their names in the table."""
    from nlpkernel.plugins.catalog import Catalog
    from nlpkernel.plugins.suggest import hint

    if word == "plan":
        return [("plan", text.tokenizer)]
    names = Catalog().names("tokenizer")
    kind, colon, sizes = word.partition(":")
    if kind in names and not colon:
        return [(word, structured("tokenizer", {"use": kind}))]
    if kind in names:
        return [
            (f"{kind}:{size}", structured("tokenizer", {"use": kind, "vocabulary": _size(size)}))
            for size in sizes.split(",")
        ]
    if Path(word).exists():
        return [(word, structured("tokenizer", {"use": "pretrained", "path": word}))]
    raise fail(
        UsageError,
        "TXT019",
        f"{word!r} is neither a file or folder nor a tokenizer component",
        hint=hint(kind, [*names, "plan"]),
    )


def _size(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _texts(corpus: Corpus, most: int) -> tuple[str, list[str]]:
    """The texts to measure on, and of which split they are: of the training split where nothing is held out."""
    from nlpkernel_text.tokenizers.training import sample

    for split in ("validation", "train"):

        def of_split(split: str = split) -> Any:
            return (text for piece in corpus.pieces() if piece.split == split for text in piece.chunk.texts)

        total = sum(map(len, of_split()))
        if total:
            return split, list(sample(of_split(), total, most))
    return "train", []


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    unknown = row["unknown_rate"]
    return (
        row["tokenizer"],
        f"{row['vocabulary']:,}",
        f"{row['used_share']:.1%}",
        f"{row['tokens']:,}",
        f"{row['fertility']:.3f}",
        f"{row['characters_per_token']:.3f}",
        f"{row['bytes_per_token']:.3f}",
        "" if unknown is None else f"{unknown:.3%}",
        f"{row['exact']:.1%}",
        f"{row['speed']:.3g}",
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it has to be 1 or more")
    return number
