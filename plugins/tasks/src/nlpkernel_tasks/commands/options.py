"""Options that the commands share, and what they open."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpkernel.errors import UsageError, fail

if TYPE_CHECKING:
    from nlpkernel.engine.opened import OpenModel


def model_options(parser: argparse.ArgumentParser) -> None:
    """How a model is opened."""
    parser.add_argument("--version", metavar="NAME", help="a saved version; left out: the newest")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (auto)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="another setting of how the model is used: data.task.beams=1",
    )


def open_run(args: argparse.Namespace, run: str) -> OpenModel:
    """The model of a run."""
    from nlpkernel import open_model

    return open_model(run, version=args.version, device=args.device, overrides=args.overrides)


def write_lines(path: str | None, records: Iterable[Mapping[str, Any]]) -> None:
    """Records as JSON lines, into a file that is whole or not there; without a path to standard output, each as soon
    as it is known. Raise UsageError (TSK011) where the file cannot be written."""
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    if path is None or path == "-":
        for line in lines:
            sys.stdout.write(line)
            sys.stdout.flush()
        return
    from nlpkernel.aside import aside

    try:
        with aside(Path(path)) as stream:
            for line in lines:
                stream.write(line.encode())
    except OSError as error:
        raise fail(UsageError, "TSK011", f"{path!r} cannot be written: {error.strerror}") from error
