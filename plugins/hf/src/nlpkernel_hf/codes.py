"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

#: Whose errors these are.
OWNER = "model (nlpkernel-plugin-hf)"

CODES: dict[str, tuple[str, str]] = {
    "HFM001": (
        "the folder holds no model",
        """`folder` names a folder on this machine with a `config.json` and weights in safetensors, as
`save_pretrained` writes it. Nothing is fetched from anywhere: copy or download the folder first.""",
    ),
    "HFM002": (
        "the folder has no weights that are read",
        """Weights are read from `model.safetensors`, or from the shards that `model.safetensors.index.json` names.
Other formats (`pytorch_model.bin`) are pickles, which can run any code when they are opened, and are
refused. Convert them where you trust them: load the model with transformers and save it again with
`save_pretrained`.""",
    ),
    "HFM003": (
        "the library does not build this model",
        """`config` needs a `model_type` that the installed transformers knows, and values under the names of that
type's configuration class. Models whose code lies in the folder itself are not run, and quantized folders
are not read.""",
    ),
    "HFM004": (
        "the model's vocabulary is smaller than the tokenizer's",
        """A token whose number is beyond the model's embedding cannot be read. Take the tokenizer that belongs to the
model: `tokenizer = { use = "pretrained", path = "..." }` in [data], with the same folder; or leave
`vocab_size` out of `config`. A model may have more entries than the tokenizer.""",
    ),
    "HFM005": (
        "the rows are longer than the model's positions",
        """The model has a table of positions, or was made for so many, and the data gives longer rows. Shorten the
data's `window`; for a model from `config`, leave the number of positions out, and it is what the rows need.""",
    ),
    "HFM006": (
        "the model has no head for the task",
        """The library has no class that does this task with this type of model. Decoders (gpt2, llama, mixtral) do
`lm`, encoders (bert, roberta) `mlm`, encoder-decoders (t5) `seq2seq`; encoders and decoders do
`classification`, `tokens` and `pairs`; models of images and texts that work as CLIP does do `image-text`.""",
    ),
    "HFM007": (
        "the folder's weights are not those of the model",
        """Weights of the blocks are missing, or have other shapes than `config.json` says: the file is damaged, or
belongs to another model. Save the model again with `save_pretrained`.""",
    ),
    "HFM008": (
        "the model cannot keep documents apart",
        """With `pack = "isolated"` a token sees only its own document and counts positions in it. That takes a model
whose attention is full and whose positions can be given; this one slides a window, keeps a running state,
or counts places by itself. Write `pack = "rows"` in [data], one document a row, or `pack = "joined"`.""",
    ),
    "HFM009": (
        "the library has no first value for a parameter",
        """A new parameter is filled by the library's own rule (`_init_weights`), and it has none for this one. Load
the model from a folder that has it.""",
    ),
    "HFM010": (
        "a setting does not go with the model",
        """`dropout` needs a model whose configuration has dropouts, `attention` one that has this way to compute it,
and `checkpointing` one whose blocks are known. Leave the setting out.""",
    ),
    "HFM011": (
        "the images are not of the model's size",
        """A model reads images of one size, which its configuration names (`vision_config.image_size`). Write the same
in [data]: `images = { size = 224 }`; or leave it out of `config`, and it is that of the data.""",
    ),
}
