"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

#: Whose errors these are.
OWNER = "task (nlpkernel-plugin-tasks)"

CODES: dict[str, tuple[str, str]] = {
    "TSK001": (
        "there are no classes to tell apart",
        "Classification needs rows with labels, and at least two of them. Name the column in [data], with\n"
        '`fields = { label = "stars" }`, and let each document begin a row of its own: `pack = "rows"`, and\n'
        '`long = "truncate"` where documents may be longer than a row.',
    ),
    "TSK002": (
        "the weights of the classes do not go with the classes",
        "`weights` names a class that the data does not have. Classes are named as in the data; whole numbers are\n"
        "written as text. The message lists the classes that there are.",
    ),
    "TSK003": (
        "the numbers of the classes are not known",
        '`weights = "balanced"` goes by how many samples each class has, which only opened data tells. A version\n'
        "that was opened without its data can be evaluated and used, and not trained.",
    ),
    "TSK004": (
        "the tokenizer has no token that masks",
        "Masked language modelling puts a token in the place of others, and the tokenizer has none of the name in\n"
        '`mask`. Add it: `tokenizer = { use = "wordpiece", special = ["[MASK]"] }`; or name the one that a pretrained\n'
        "tokenizer has.",
    ),
    "TSK005": (
        "the tokenizer does not tell where words begin",
        "With `words = true` whole words are masked. That can be said of WordPiece, and of vocabularies whose\n"
        "pieces begin with the white space before a word. Leave `words` out, or take such a tokenizer.",
    ),
    "TSK006": (
        "the data gives rows without a key",
        "What is masked is drawn from a number that the data gives with each row (`key`), so that the same step\n"
        "masks the same anywhere. This data component gives none; its author has to add it.",
    ),
}
