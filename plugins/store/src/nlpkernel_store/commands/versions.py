"""`nlpkernel versions`: list, show, verify, compare, tag, prune, export and import the versions of a run."""

from __future__ import annotations

import argparse
from importlib import import_module

HELP = """List the versions of a run, and show, verify, compare, tag, prune, export or import them. `versions RUN` is
short for `versions list RUN`."""

#: Sub-command to its module, below this package, and its line in the help.
ACTIONS = {
    "list": ("listing", "all versions: what each is, and how it came about"),
    "show": ("show", "what one version consists of, and what made it"),
    "verify": ("verify", "compare every tensor with its digest; exit code 1 where one differs"),
    "diff": (
        "diff",
        "tensors, settings and releases in which two versions differ; exit code 1 where any does",
    ),
    "tag": ("tag", "give a version a name; it is not rotated while it has one"),
    "prune": ("prune", "remove what roll-backs left behind, or other versions"),
    "export": ("export", "write the weights as plain safetensors, with the artifacts"),
    "import": ("importing", "make a version of exported weights"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", metavar="COMMAND", title="commands", required=True)
    for name, (module, text) in ACTIONS.items():
        made = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        import_module(f"nlpkernel_store.commands.{module}").arguments(made)
    parse = parser.parse_args

    def with_list(argv: list[str]) -> argparse.Namespace:
        # argparse knows no sub-command that is taken where none is given.
        place = next((index for index, word in enumerate(argv) if not word.startswith("-")), None)
        if place is not None and argv[place] not in ACTIONS:
            before = [word for word in argv[:place] if word != "--json"]
            asked = ["--json"] if "--json" in argv[:place] else []
            argv = [*before, "list", *asked, *argv[place:]]
        return parse(argv)

    parser.parse_args = with_list  # type: ignore[method-assign, assignment]


def execute(args: argparse.Namespace) -> int:
    """Carry out the sub-command."""
    module = import_module(f"nlpkernel_store.commands.{ACTIONS[args.action][0]}")
    return int(module.execute(args))
