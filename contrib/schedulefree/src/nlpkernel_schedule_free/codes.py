"""Error codes, with what `nlpkernel explain` says about each."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "SFR001": (
        "there is nothing to train",
        "The optimizer was given no parameter group: every parameter of the model is frozen.\n"
        "Look at the transforms of [model], which may leave nothing that is trained.",
    ),
    "SFR002": (
        "the parameters are too coarse for an average",
        "A schedule-free optimizer moves its average by a share that falls with every update, soon below the 1/256\n"
        "that bfloat16 can tell apart (1/2048 for float16): the average would stand still. Keep float32 parameters:\n"
        'precision = { use = "bf16", parameters = "fp32" } computes in bfloat16 all the same.',
    ),
    "SFR003": (
        "the optimizer's state is somewhere else",
        "Evaluations need the average, which follows from the weights and the optimizer's state. After updates this\n"
        "worker has no such state, as where servers hold it. To evaluate the weights of the training instead would\n"
        "give other numbers in silence. Use a communicator whose workers step their own parameters.",
    ),
}
