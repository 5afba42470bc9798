"""`nlpkernel evaluate`: how good a trained model is."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nlpkernel.cli.output import count, say, table, write_json
from nlpkernel_tasks.commands.options import model_options, open_run, write_lines

if TYPE_CHECKING:
    from nlpkernel.engine.opened import OpenModel
    from nlpkernel.hookspecs.data import Unseen
    from nlpkernel_tasks.trying import Tried

HELP = """Evaluate a trained model: on the validation split of its plan, or on other files that are read as the plan
reads its own. A model that writes texts writes them, and is measured by what it wrote."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("run", help="the run's folder: runs/NAME, or runs/latest")
    parser.add_argument(
        "--data", action="append", default=[], metavar="FILE", help="may be given several times"
    )
    parser.add_argument("--confusion", action="store_true", help="how often each class was taken for each")
    parser.add_argument(
        "--worst", type=int, default=0, metavar="N", help="the N samples with the highest loss"
    )
    parser.add_argument(
        "--answers", metavar="FILE", help="write what the model says of each sample, as JSON lines"
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    model_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Open, try, show."""
    from nlpkernel_tasks.trying import evaluated

    opened = open_run(args, args.run)
    samples = opened.unseen(args.data)
    tried = evaluated(opened, samples)
    if args.answers:
        pairs = zip(tried.names, tried.answers, strict=True)
        write_lines(args.answers, ({"sample": name, **answer} for name, answer in pairs))
    found: dict[str, Any] = {
        "run": str(opened.folder),
        "version": opened.version,
        "samples": len(tried.names),
        "metrics": dict(tried.metrics),
    }
    if "bleu" in tried.metrics:
        from nlpkernel_tasks.texts import signature

        found["bleu"] = signature()
    if args.confusion:
        found["confusion"] = _confusion(opened, tried)
    if args.worst > 0:
        found["worst"] = _worst(tried, samples, args.worst)
    if args.json:
        write_json(found)
    else:
        _show(found)
    return 0


def _confusion(opened: OpenModel, tried: Tried) -> dict[str, Any]:
    from nlpkernel.errors import UsageError, fail

    if tried.confusion is None:
        raise fail(
            UsageError,
            "TSK012",
            f"the task {opened.task.name!r} has no classes that are taken for each other",
        )
    return {"labels": list(opened.info.labels), "counts": tried.confusion.astype(int).tolist()}


def _worst(tried: Tried, samples: Unseen, most: int) -> list[dict[str, Any]]:
    import numpy as np

    from nlpkernel.errors import UsageError, fail

    if tried.losses is None:
        raise fail(UsageError, "TSK012", "the task counts no loss of single samples")
    worst = np.argsort(-tried.losses, kind="stable")[:most].tolist()
    return [
        {
            "sample": tried.names[each],
            "loss": float(tried.losses[each]),
            "text": samples.texts(each, 1)[0],
            **tried.answers[each],
        }
        for each in worst
    ]


def _show(found: dict[str, Any]) -> None:
    say(f"{found['run']}, version {found['version']}: {count(found['samples'], 'sample')}")
    say()
    table([(name, "-" if value is None else f"{value:.4f}") for name, value in found["metrics"].items()])
    if "bleu" in found:
        say()
        say(f"BLEU: {found['bleu']}")
    if "confusion" in found:
        labels = found["confusion"]["labels"]
        say()
        table(
            [
                ("true \\ said", *labels),
                *((name, *row) for name, row in zip(labels, found["confusion"]["counts"], strict=True)),
            ],
            head=True,
        )
    for worst in found.get("worst", ()):
        say()
        say(f"{worst['sample']}  loss {worst['loss']:.4f}")
        text = " ".join(worst["text"].split())
        say(f"  {text[:200]}{'...' if len(text) > 200 else ''}")
        said = {
            name: value for name, value in worst.items() if name not in ("sample", "loss", "text", "scores")
        }
        say(f"  {', '.join(f'{name}: {value}' for name, value in said.items())}")
