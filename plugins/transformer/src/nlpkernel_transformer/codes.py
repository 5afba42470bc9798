"""The error codes of this distribution, for `nlpkernel explain`."""

from __future__ import annotations

#: Whose errors these are.
OWNER = "model (nlpkernel-plugin-transformer)"

CODES: dict[str, tuple[str, str]] = {
    "TRF001": (
        "the model's context is shorter than the data's rows",
        """The setting `context` says how many positions a row may have, and the data gives longer rows. Leave `context`
out, and it is the window of the data; or write a larger one; or make the data's window smaller.""",
    ),
    "TRF002": (
        "nothing to start from",
        """Generation needs at least one token to go on from. An empty prompt starts at the end-of-text token, and this
run's tokenizer has none. Give a prompt.""",
    ),
    "TRF003": (
        "the model cannot generate",
        """The run's model has no `prefill` and `decode`: it is no language model that writes text, or a transform has
replaced it by one that cannot. Its other uses (evaluation, export) are not affected.""",
    ),
    "TRF004": (
        "the model gives no usable scores",
        """The scores of the next token are NaN or infinite: the weights of this version were lost in training. Generate
from an earlier version with `--version NAME`; `nlpkernel report RUN` tells when the loss went wrong.""",
    ),
    "TRF005": (
        "an option of generation is out of range",
        """--tokens and --top-k are at least 1, --temperature is at least 0 (0 takes the likeliest token), --top-p
lies above 0 and at most at 1, --seed is a whole number from 0 on and below 2^63, and a --stop text is not empty.""",
    ),
    "TRF006": (
        "the model has no head for the task",
        """Decoders (`gpt`, `llama`) predict the next token, for the task `lm`. An `encoder` sees a whole row at once:
it classifies rows (`classification`) and tokens (`tokens`), restores masked tokens (`mlm`) and compares texts
(`pairs`), and cannot be asked for the next token. An `encoder-decoder` reads one text and writes another (`seq2seq`).
`image-text` compares images and texts (`image-text`). Choose the model that goes with the task.""",
    ),
    "TRF007": (
        "the images do not go with the model",
        """The model `image-text` needs rows with images, which `fields = { image = ... }` and `images` in [data] bring.
It cuts them into square patches: `images.size` has to be a multiple of `patch`.""",
    ),
}
