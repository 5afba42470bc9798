"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

#: Whose errors these are.
OWNER = "task (nlpkernel-plugin-tasks)"

CODES: dict[str, tuple[str, str]] = {
    "TSK001": (
        "the data does not have what the task learns",
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
        "the data gives rows without a key or a number",
        "What is masked is drawn from a number that the data gives with each row (`key`), so that the same step\n"
        "masks the same anywhere; pairs are put by their place in the split (`number`), so that an evaluation is the\n"
        "same in any batches. This data component gives none; its author has to add it.",
    ),
    "TSK007": (
        "a measure of texts needs another package",
        "BLEU is counted by sacrebleu, so that it can be compared with published figures: pip install\n"
        '"nlpkernel-plugin-tasks[texts]". Or choose other `measures`: chrf and rouge need nothing.',
    ),
    "TSK008": (
        "the model does not write texts",
        "To write a second text, a model reads the first (`encode`) and then token after token of the second\n"
        "(`decode`, `select`). This one only scores a text that is there. Take the model `encoder-decoder`.",
    ),
    "TSK009": (
        "the tokenizer has no token to begin or end a text with",
        "A second text begins after one token and ends with one: the tokenizer's end, or the ones that `start` names.\n"
        "Take a tokenizer that has an end.",
    ),
    "TSK010": (
        "the results of two runs cannot be compared",
        "`compare` goes by results of the same samples in the same order, one by one. The message says in what they\n"
        "differ. Evaluate both on the same file: `--data held.jsonl`.",
    ),
    "TSK011": (
        "the file of answers cannot be written",
        "Answers are written aside and put in place when they are complete. The message says what went wrong.",
    ),
    "TSK012": (
        "the task does not count that",
        "A confusion table is of classes or tags, and the worst samples are those of the highest loss. The task of\n"
        "this run has no such thing for single samples. Leave the option out.",
    ),
}
