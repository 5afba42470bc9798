"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "OPT001": (
        "there is nothing to train",
        "The optimizer was given no parameter. Either the model has none, or a transform froze all of them.\n"
        "Look at what the transforms of the plan leave trainable.",
    ),
    "OPT002": (
        "the device has no fused kernel for this optimizer",
        "A fused kernel updates all parameters in one call and can skip an update by a flag on the device.\n"
        'The plan asks for it (`fused = "on"`, or an optimizer that is built on it), and torch has none for this\n'
        'device or this type of number. Use `fused = "auto"` or "off" where the optimizer has the setting, or\n'
        "another optimizer.",
    ),
    "OPT003": (
        "the schedule needs the length of the run",
        "The schedule is stretched over the run, or its warm-up is a fraction of the run, and nobody knows how many\n"
        "updates the run will make. Give `steps`, `epochs` or `tokens` in [train], or `length` in the schedule.",
    ),
    "OPT004": (
        "muon found no matrix",
        "Muon updates hidden matrices: parameters of two dimensions that carry one of the tags in its setting\n"
        "`matrices`. No parameter of this model does. Name the tags that the model uses, or take another optimizer.",
    ),
    "OPT005": (
        "the plateau schedule would never hear of its metric",
        "The schedule lowers the rate when a metric of the evaluations stops getting better. Either the plan never\n"
        "evaluates during the run (give `evaluate = { every = ... }` in [train]), or it does not evaluate the split\n"
        "that the metric belongs to, or the task has no metric of that name.",
    ),
}
