"""`nlpkernel predict`: what a trained model says of new samples."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nlpkernel_tasks.commands.options import model_options, open_run, write_lines

if TYPE_CHECKING:
    from nlpkernel.engine.opened import OpenModel

HELP = """Tell what a trained model says of new samples: a line of JSON for each, with the file and line that it comes
from. Files are read as the plan reads its own, but for what the model is to say."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("run", help="the run's folder: runs/NAME, or runs/latest")
    parser.add_argument(
        "--input", action="append", required=True, metavar="FILE", help="may be given several times"
    )
    parser.add_argument("--output", metavar="FILE", help="where to; left out: standard output")
    model_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Open, ask, write."""
    write_lines(args.output, _answers(open_run(args, args.run), args.input))
    return 0


def _answers(opened: OpenModel, files: list[str]) -> Iterator[Mapping[str, Any]]:
    from nlpkernel_tasks.trying import judged

    for names, found, _ in judged(opened, opened.unseen(files, truth=False)):
        for name, answer in zip(names, found.answers, strict=True):
            yield {"sample": name, **answer}
