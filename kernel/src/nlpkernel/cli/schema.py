"""`nlpkernel schema`: a JSON Schema of plans with the plugins that are installed, for editors."""

from __future__ import annotations

import argparse
import sys

from nlpkernel.cli.output import write_json

HELP = "Print a JSON Schema of plans with the plugins that are installed here, for editors."


def arguments(parser: argparse.ArgumentParser) -> None:
    """No options."""


def execute(args: argparse.Namespace) -> int:
    """Print; a plugin that cannot be loaded is left out and named on standard error."""
    from nlpkernel.plan.schema import plan_schema

    schema, problems = plan_schema()
    for problem in problems:
        sys.stderr.write(f"left out: {problem}\n")
    write_json(schema)
    return 0
