"""Error codes, with what `nlpkernel explain` says about each."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "EXP001": (
        "the book of runs cannot be written",
        "The monitor `experiment` keeps a folder for each run below its setting `folder`, which is taken from the\n"
        "folder that holds the run's own. It cannot be made there: no right to write, or a file of that name.\n"
        "Nothing has been started. Mend the place, or give the monitor another `folder`.",
    ),
    "EXP002": (
        "there is no book of runs",
        "`nlpkernel experiments` was given a folder in which the monitor `experiment` has written nothing. By default\n"
        "that is `experiments` beside the runs: `nlpkernel experiments runs/experiments`.",
    ),
    "EXP003": (
        "no run has such a metric",
        "`--sort` takes the name of a metric as evaluations and logs have it, such as `validation/loss` or `loss`.\n"
        "The message names those that there are.",
    ),
}
