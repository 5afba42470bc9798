"""Error codes of this distribution, with what `nlpkernel explain` says about each."""

from __future__ import annotations

#: Code to title and explanation.
CODES: dict[str, tuple[str, str]] = {
    "TXT001": (
        "no file is there",
        "A path of the plan names no file or folder, or a pattern fits none. Relative paths start from the folder\n"
        "of the file that writes them. `*` stands for any part of a name, `**` for any folders in between.",
    ),
    "TXT002": (
        "there is nothing to train on, or nothing to validate on",
        "The files were read and no document came out of them: they are empty, hold blank lines only, or all\n"
        "documents were left out by `long` or `on_error`. The message counts what was found.",
    ),
    "TXT003": (
        "a file is not UTF-8",
        "The bytes at the place that the message gives are no UTF-8 text: the file has another encoding, is cut\n"
        'off in the middle of a character, or is no text. Convert it, or write `on_error = "skip"` to leave\n'
        'out the line (with `documents = "file"` the file) and count it in the run\'s report.',
    ),
    "TXT004": (
        "a record is broken",
        "A line of a JSONL file is no JSON object, more follows the end of a JSON file's records, a row of a CSV or\n"
        "TSV file does not have the columns of the header or has a quote that does not end, or a line is longer than\n"
        '256 MiB. Mend the file, or write `on_error = "skip"` to leave it out and count it in the report.',
    ),
    "TXT005": (
        "a record has no text",
        "`fields` says which key of a record holds its text, its label and so on; without it the text is under the\n"
        "key text. This record does not have the key, or its value cannot be used. Write the right name\n"
        '(`fields = { text = "..." }`), or `on_error = "skip"` to leave such records out.',
    ),
    "TXT006": (
        "a file has no such column",
        "The first line of a CSV or TSV file names its columns, and one that `fields` names is not among them. The\n"
        'message lists those found. Write the right name: `fields = { text = "..." }`.',
    ),
    "TXT007": (
        "the format of a file is not known",
        'With `format = "auto"` the end of a file\'s name says how it is read: .jsonl and .ndjson, .json, .csv, .tsv\n'
        "and .tab, each perhaps followed by .gz, .bz2, .xz or .zst; other names are plain text, except those that are\n"
        "known to be something else. Write `format` to say which reader is for the files: the distribution\n"
        "nlpkernel-plugin-formats brings those of Parquet, Arrow, TFRecord, HDF5, WARC and HTML.",
    ),
    "TXT008": (
        "a character is not in the vocabulary",
        "The tokenizer `characters` knows the characters of the training split and no others. Train on text that\n"
        'holds the character, write `unknown = "replace"` to read all others as U+FFFD, or take the tokenizer\n'
        "`bytes` or `bpe`, which know every text.",
    ),
    "TXT009": (
        "the data cannot be split",
        "A validation split by document needs two documents or more. Cut the files into more documents\n"
        '(`format = { use = "text", documents = "line" }`, or "blank"), take the end of the text with\n'
        '`split = "tail"`, name files of their own with `validation_paths`, or do without (`validation = 0`).',
    ),
    "TXT010": (
        "a file changed while it was read",
        "A file of the data was written to between the moment that its content was hashed and the moment that it\n"
        "was tokenized. Run again when the file is complete.",
    ),
    "TXT011": (
        "the token cache cannot be written",
        "Tokens are kept in the cache folder, so that the next run need not make them again. The disk is full or\n"
        "the folder cannot be written to; the message says which.",
    ),
    "TXT012": (
        "the artifacts of a version do not fit",
        "A version keeps the tokenizer and what is known of its data. A file of these is missing or is not what\n"
        "this plugin writes; the version was made by something else, or is damaged.",
    ),
    "TXT013": (
        "no tokenizer is there",
        "The path of the tokenizer `pretrained` (or of a command) names no file or folder, or a folder that holds no\n"
        "tokenizer. It may name a tokenizer.json, a SentencePiece model, or a folder with one of them, with\n"
        "vocab.json and merges.txt, or with vocab.txt. Relative paths start from the folder of the file that writes\n"
        "them.",
    ),
    "TXT014": (
        "a tokenizer cannot be read",
        "A file of a tokenizer is cut off, is damaged, or is something else than its place says; the message tells\n"
        "what was found. Files whose ids would not be those of the class that tokenizer_config.json names are refused\n"
        "too: save such a tokenizer with transformers as a tokenizer.json, which says all about it.",
    ),
    "TXT015": (
        "a tokenizer needs a package that is missing",
        "SentencePiece models are read by the package sentencepiece, which is an extra of this distribution:\n"
        'pip install "nlpkernel-plugin-text[sentencepiece]".',
    ),
    "TXT016": (
        "a tokenizer has no such token",
        "`end` and `pad` name tokens of the tokenizer. In a SentencePiece model they have to be control pieces. To\n"
        "add one, list it in `special` as well; the vocabulary grows then.",
    ),
    "TXT017": (
        "a token cannot be a special one",
        "The vocabulary has an entry of this name already that stands for something else: for other bytes in the\n"
        "alphabet of byte-level tokenizers, or as a control piece of a SentencePiece model. Write another name.",
    ),
    "TXT018": (
        "a file cannot be written, or would be overwritten",
        "The command writes to a file that is there, or into a folder that is not. Name another file, or write\n"
        "--overwrite to replace the one that is there.",
    ),
    "TXT019": (
        "a tokenizer command has nothing to work on",
        "The command needs a plan whose data component is `text`, a run of such a plan, a tokenizer's file or folder,\n"
        "or the name of a tokenizer component, with sizes if it is trained: bpe:4096,8192. The message says what was\n"
        "found instead.",
    ),
    "TXT020": (
        "a file of the data cannot be read",
        "The operating system or the server refuses it, or the connection broke and did so again when it was tried\n"
        "again. The message says what was said. Credentials for remote files go into `storage`, or into the\n"
        "environment that the driver reads.",
    ),
    "TXT021": (
        "a packed file is damaged",
        "A file ends in the middle of its packed data, or does not pass the checks that its format has; often a\n"
        'download that was cut off. Get it again, or write `on_error = "skip"` to keep the records before the damage\n'
        "and count the file in the run's report.",
    ),
    "TXT022": (
        "a file is not packed as its name says",
        "The end of the name says gzip (.gz), bzip2 (.bz2), xz (.xz) or zstd (.zst), and the file does not begin as\n"
        "such a file does: it is not packed at all, or in another way. Rename it, or pack it.",
    ),
    "TXT023": (
        "a file is not in the encoding that the plan says",
        "The bytes at the place that the message gives are no text in that `encoding`, or Python knows no encoding of\n"
        'that name. Write the right one, `encoding = "auto"` to have it found out, or `on_error = "skip"` to keep\n'
        "what comes before and count the file in the run's report.",
    ),
    "TXT024": (
        "the encoding of a file cannot be found out",
        'With `encoding = "auto"` a byte-order mark decides; then whether the file is UTF-8; then what the library\n'
        "charset-normalizer makes of it, if decoding and encoding the whole file gives the same bytes again. None of\n"
        "these held. Write the `encoding`, or convert the file.",
    ),
    "TXT025": (
        "remote files have no driver, or it refuses",
        "Files at URLs are read through fsspec. It is not installed, has no driver for the URL's protocol, or the\n"
        "driver does not take the options in `storage`. The message says which, without what is secret.",
    ),
    "TXT026": (
        "a library is missing",
        "What this file needs is in a library that is not installed. The message says which, and which extra of\n"
        "this distribution brings it.",
    ),
    "TXT027": (
        "a file of records cannot be written",
        "The file is there already, the disk is full, the folder is not there or cannot be written to, or a value is\n"
        "nothing that the format has. A file that was there before is left as it was.",
    ),
    "TXT030": (
        "a sampler lacks what it goes by",
        "The message says what: labels for those that go by class, weights, rows that begin with documents, a\n"
        "micro-batch that is large enough. Name the field that holds it in `fields`, or take another sampler.",
    ),
    "TXT031": (
        "a stage does not keep to its contract",
        "A stage gives as many texts as it gets, and names those that it drops. This one did not; its author\n"
        "has to mend it.",
    ),
    "TXT032": (
        "stages cannot work in other processes",
        "With `workers` the stages work in processes of their own. A stage cannot be sent there (it is\n"
        "defined in a single file, say), or such a process ended by itself, often for want of memory. Write\n"
        "`workers = 0`, or fewer.",
    ),
    "TXT033": (
        "a label is never trained",
        "The validation split has a label that no document of the training split has, so that no answer could\n"
        "be right. The message names the first place. Often it is a spelling, or a class too rare to be\n"
        "divided.",
    ),
    "TXT034": (
        "an augmentation does not keep to its contract",
        "An augmentation gives a text for each that it gets, and no empty one. This one did not; its author\n"
        "has to mend it.",
    ),
    "TXT035": (
        "a stream cannot do that",
        "With `stream` nothing is held. What needs all documents is not to be had then: stages that find\n"
        "duplicates, a number of epochs, a share for validation. Leave it out, or leave `stream` out.",
    ),
    "TXT036": (
        "some documents have a label, a weight, a target, tags or an image, and some have none",
        "What `fields` names is for all documents or for none. Files of plain text have none; sources of a mixture\n"
        "may name their own `fields`. The message names a file of each kind.",
    ),
    "TXT037": (
        "a model cannot be tried on the plan's own validation split",
        "`evaluate` goes by the validation split that the plan names. The plan has none, or its files or settings\n"
        "have changed since the model was trained, so that the split may hold what it was trained on. Name files:\n"
        "`nlpkernel evaluate RUN --data held.jsonl`.",
    ),
    "TXT038": (
        "an image cannot be read",
        "A record names an image file that is not there (a path is relative to the folder of the records' file), or\n"
        "the image is damaged, of a format that Pillow does not know, or of more pixels than it takes for honest.\n"
        'Mend it, or write `on_error = "skip"` to leave the record out and count it in the report.',
    ),
}
