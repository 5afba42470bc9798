"""`nlpkernel tokenizer`: train a tokenizer, compare several, show what one makes of a text."""

from __future__ import annotations

import argparse
from importlib import import_module

HELP = "Train a tokenizer and write it to a file, compare several on a plan's text, or show what one makes of a text."

#: Sub-command to its line in the help; each is a module of this package.
ACTIONS = {
    "train": "train the tokenizer of a plan, or one on files, and write it to a file",
    "compare": "measure several tokenizers on the validation text of a plan",
    "show": "what a tokenizer is, and the pieces that it makes of a text",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", metavar="COMMAND", title="commands", required=True)
    for name, text in ACTIONS.items():
        made = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        import_module(f"{__name__}.{name}").arguments(made)


def execute(args: argparse.Namespace) -> int:
    """Carry out the sub-command."""
    return int(import_module(f"{__name__}.{args.action}").execute(args))
