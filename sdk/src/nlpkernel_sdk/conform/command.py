"""`nlpkernel conform`: what every plugin has to hold, asked of an installed distribution."""

from __future__ import annotations

import argparse
from pathlib import Path

from nlpkernel.cli.output import say, write_json

HELP = """Look whether a distribution of components conforms: its metadata and settings (static), what it does in tiny
plans (behaviour), with two workers (distributed), and what it costs (cost, which never fails)."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("distribution", help="an installed distribution: nlpkernel-plugin-mine")
    parser.add_argument(
        "--level",
        action="append",
        choices=["static", "behaviour", "distributed", "cost"],
        help="may be given several times (default: static and behaviour)",
    )
    parser.add_argument(
        "--json", metavar="FILE", nargs="?", const="-", help="for machines, to a file or shown"
    )
    parser.add_argument("--junit", metavar="FILE", help="for continuous integration")
    parser.add_argument(
        "--known",
        action="append",
        default=[],
        metavar="CHECK=REASON",
        help="a failure that is known, as static.readme=later or behaviour.resume[optimizer.mine]=why",
    )
    parser.add_argument("--at-least", type=int, metavar="N", help="how many checks have to be run")
    parser.add_argument(
        "--lock", metavar="FILE", help="write the result into the lock of a plan that uses the distribution"
    )
    parser.add_argument("--row", action="store_true", help="show a row of a Markdown table")
    parser.add_argument(
        "--project",
        default=".",
        metavar="FOLDER",
        help="where pyproject.toml with [tool.nlpkernel.conform] is (default: here, or above)",
    )


def execute(args: argparse.Namespace) -> int:
    """Check, and show what is wrong."""
    import attrs

    from nlpkernel.errors import UsageError, fail
    from nlpkernel_sdk.conform.runner import conform, raise_for
    from nlpkernel_sdk.conform.subject import Config, Subject

    config = Config.read(Path(args.project).absolute())
    known = dict(config.known)
    for text in args.known:
        case, equals, reason = text.partition("=")
        if not equals or not reason.strip():
            raise fail(UsageError, "SDK012", f"--known {text!r} has no reason", hint="write CHECK=REASON")
        known[case.strip()] = reason.strip()
    config = attrs.evolve(
        config, known=known, at_least=config.at_least if args.at_least is None else args.at_least
    )
    subject = Subject(args.distribution, config)
    verdict = conform(subject, args.level or ("static", "behaviour"))
    if args.lock:
        from nlpkernel_sdk.conform.recording import record

        record(verdict, subject, Path(args.lock))
    if args.junit:
        verdict.write_junit(Path(args.junit))
    if args.json == "-":
        write_json(
            {"conforms": verdict.conforms, "outcomes": [attrs.asdict(each) for each in verdict.outcomes]}
        )
        return 0 if verdict.conforms else 1
    if args.json:
        verdict.write_json(Path(args.json))
    for outcome in verdict.outcomes:
        if outcome.status == "failed":
            say(f"FAILED {outcome.case}: {outcome.said}")
            say(f"       {outcome.reason}")
        elif not args.quiet and (outcome.status != "passed" or outcome.level == "cost"):
            say(f"{outcome.status} {outcome.case}: {outcome.said}")
    say(verdict.row() if args.row else verdict.line())
    raise_for(verdict)
    return 0
