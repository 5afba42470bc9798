"""The command line. Each command is a module with HELP, `arguments(parser)` and `execute(args) -> exit code`.

Only the module of the command that is asked for is imported, so that `--help` and `plugins` stay fast and work
whatever is broken elsewhere. Plugins add commands through the entry-point group `nlpkernel.command.v1`.

Exit codes: 0 done; 1 the run, the data or a version failed; 2 the plan, a plugin or the command line is wrong;
130, 138 and 143 ended by SIGINT, SIGUSR1 and SIGTERM after the state was saved; 141 the reader of the output went away.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nlpkernel.errors import NlpkernelError

#: Command to the module below `nlpkernel.cli` that holds it, and its line in the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "write a commented starter plan"),
    "check": ("check", "find every mistake in a plan, and show it filled"),
    "run": ("run", "train"),
    "resume": ("resume", "continue a run from its newest version"),
    "verify-resume": ("verify_resume", "prove that a plan resumes bit for bit"),
    "lock": ("lock", "write down what exactly a plan would run"),
    "runs": ("runs", "list runs"),
    "report": ("report", "show what a run came to"),
    "plan": ("plan", "compare two plans"),
    "plugins": ("plugins", "list installed plugins, show one, find what is wrong"),
    "explain": ("explain", "explain an error code"),
    "schema": ("schema", "print a JSON Schema of plans, for editors"),
    "completion": ("completion", "print shell completion"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # Closed by the caller (`>&-`): there is nobody to tell.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file name that the terminal's encoding has no letters for is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _main(arguments)
        except SystemExit as end:  # argparse's, after help or a wrong option
            code = int(end.code or 0)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _out(_help())
        return 0
    if arguments[0] in ("-V", "--version"):
        from nlpkernel import __version__

        _out(f"nlpkernel {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name.startswith("-"):
        return _usage(f"nlpkernel: unknown option {name!r}; options of a command follow it")
    module = _command(name)
    if isinstance(module, str):
        return _usage(module)
    import argparse

    parser = argparse.ArgumentParser(prog=f"nlpkernel {name}", description=module.HELP)
    parser.add_argument("-q", "--quiet", action="store_true", help="warnings and errors only")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show log lines and the traceback of a failure"
    )
    module.arguments(parser)
    parser.set_defaults(words=tuple(arguments))
    args = parser.parse_args(rest)
    return _execute(module, args)


def _execute(module: ModuleType, args: object) -> int:
    verbose = bool(getattr(args, "verbose", False))
    if verbose:
        import logging

        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        return int(module.execute(args))
    except Exception as error:
        # Imported only now: errors carry attrs, which `plugins` has no need of.
        from nlpkernel.errors import NlpkernelError

        if not isinstance(error, NlpkernelError):
            raise
        if verbose:
            import traceback

            traceback.print_exception(error)
        _tell(error, as_json=bool(getattr(args, "json", False)))
        return error.exit_code


def _tell(error: NlpkernelError, *, as_json: bool) -> None:
    """Every problem as a line on standard error; with --json also as values on standard output."""
    for problem in error.problems:
        _err(f"error: {problem}")
    if len(error.problems) > 1:
        _err(f"{len(error.problems)} problems; `nlpkernel explain CODE` tells more of each")
    if as_json:
        import attrs

        from nlpkernel.cli.output import write_json

        write_json({"problems": [attrs.asdict(problem) for problem in error.problems]})


def _command(name: str) -> ModuleType | str:
    """The module of a command, or what to say where there is none."""
    from importlib import import_module

    if name in COMMANDS:
        return import_module(f"nlpkernel.cli.{COMMANDS[name][0]}")
    from nlpkernel.plugins.scan import scan
    from nlpkernel.plugins.suggest import hint

    offers = [offer for offer in scan() if offer.point == "command"]
    named = [offer for offer in offers if offer.name == name]
    if not named:
        known = [*COMMANDS, *(offer.name for offer in offers)]
        return f"nlpkernel: there is no command {name!r}; {hint(name, known)}"
    if len(named) > 1:
        whose = " and ".join(f"{offer.distribution} {offer.release}" for offer in named)
        return f"nlpkernel: the command {name!r} is offered by {whose}; uninstall one of them"
    from nlpkernel.errors import PluginError
    from nlpkernel.plugins.examine import service

    try:
        module: ModuleType = service(named[0])
    except PluginError as error:
        return f"nlpkernel: {error}"
    return module


def _help() -> str:
    from nlpkernel.plugins.scan import scan

    lines = [
        "usage: nlpkernel COMMAND [options]",
        "",
        "Trains NLP and language models from a plan and plugins.",
        "",
    ]
    lines += [f"  {name:<12}{text}" for name, (_, text) in COMMANDS.items()]
    added = [offer for offer in scan() if offer.point == "command"]
    lines += [f"  {offer.name:<12}(from {offer.distribution})" for offer in added]
    return "\n".join(
        [*lines, "", "`nlpkernel COMMAND --help` tells the options of a command; --version the version."]
    )


def _usage(message: str) -> int:
    _err(message)
    return 2


def _out(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _err(text: str) -> None:
    sys.stderr.write(text + "\n")
