"""The error codes of this distribution, for `nlpkernel explain`."""

from __future__ import annotations

#: Whose errors these are.
OWNER = "model (nlpkernel-plugin-recurrent)"

CODES: dict[str, tuple[str, str]] = {
    "RCR001": (
        "the model has no head for the task",
        """`recurrent` predicts the next token (`lm`) and classifies rows (`classification`) and tokens (`tokens`). It
does not restore masked tokens, write a second text or compare texts. Choose another task in [data], or a model that
goes with it: an `encoder` (`mlm`, `pairs`) or an `encoder-decoder` (`seq2seq`).""",
    ),
    "RCR002": (
        "the model's context is shorter than the data's rows",
        """The setting `context` says how many tokens generation reads at once, and the data gives longer rows. Leave it
out, and it is the window of the data; or write a larger one.""",
    ),
}
