"""Options that several commands have."""

from __future__ import annotations

import argparse


def plan_options(parser: argparse.ArgumentParser) -> None:
    """A plan, and overrides of its settings."""
    parser.add_argument("plan", help="the plan: .toml, .yaml or .json")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="override a setting"
    )
