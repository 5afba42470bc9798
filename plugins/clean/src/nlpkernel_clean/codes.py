"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "CLN001": (
        "a stage needs a column that the documents do not have",
        "The stages `filter` and `label-noise` look at what was read beside the text, by the column's name. The\n"
        "message lists the columns that are there. The fields of the data's sources say which are read.",
    ),
    "CLN002": (
        "a regular expression did not end in time",
        "Some patterns try so many ways to match that a long text takes them years, mostly those with a repeat\n"
        "inside a repeat: (a+)+. The message names pattern and document. Write the pattern without it, make the\n"
        "repeat possessive (a++), or raise `timeout` where the text is just long.",
    ),
    "CLN003": (
        "a language is not known",
        "Languages are given as ISO 639-1 codes, as py3langid writes them: en, de, zh, pt. Variants (pt-BR, zh-CN)\n"
        "are not told apart. The hint lists all that it knows.",
    ),
    "CLN004": (
        "a region is not known",
        "Phone numbers without a country's code are found as the countries of `regions` write them. A region is\n"
        "the code of a country in two capitals (ISO 3166): US, GB, DE.",
    ),
    "CLN005": (
        "the list of names cannot be used",
        "The stage `pii` finds names by a file that lists them, one a line, in UTF-8. It cannot be read, or is\n"
        'empty. Correct `names`, or leave "name" out of `kinds`.',
    ),
    "CLN006": (
        "label-noise needs scikit-learn",
        "The stage trains a linear model of scikit-learn, which is not installed with this plugin by itself: pip\n"
        'install "nlpkernel-plugin-clean[labels]".',
    ),
    "CLN007": (
        "a document has no label",
        "The stage `label-noise` compares labels, and the document named has none in the column. Drop such\n"
        "documents before with the stage `filter` and this column, or name the right column.",
    ),
    "CLN008": (
        "there are too few labels to find wrong ones",
        "Each label is predicted by models that were trained without it, so there have to be two labels at least,\n"
        "and of each as many documents as there are folds.",
    ),
    "CLN009": (
        "the list of suspects cannot be read",
        "`drop` takes the file suspects.jsonl that the stage `label-noise` wrote in an earlier build: an object a\n"
        "line, with the `name` of a document. It is missing, or something else.",
    ),
}
