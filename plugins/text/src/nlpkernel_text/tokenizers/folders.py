"""Hugging Face folders without a tokenizer.json: vocab.json with merges.txt, and vocab.txt."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from nlpkernel.errors import DataError, Place, fail
from nlpkernel_text.tokenizers.bytelevel import alphabet
from nlpkernel_text.tokenizers.configuration import Configuration, read_json

#: Classes that are byte-level BPE as GPT-2 has it, and those that are WordPiece as BERT has it.
_BYTE_LEVEL = ("GPT2", "Roberta", "Bart", "Longformer", "LED", "Blenderbot")
_WORDPIECE = (
    "Bert",
    "DistilBert",
    "Electra",
    "MobileBert",
    "SqueezeBert",
    "MPNet",
    "Funnel",
    "ConvBert",
    "Retri",
    "DPR",
)
_SAVE = "save it with transformers as a tokenizer.json, which says all about it"


def from_merges(vocabulary: Path, merges: Path, beside: Configuration) -> Tokenizer:
    """Byte-level BPE as GPT-2 has it. Raise DataError (TXT014) where the files are something else."""
    _known(vocabulary, beside, _BYTE_LEVEL)
    entries = read_json(vocabulary)
    if not isinstance(entries, dict) or not all(isinstance(number, int) for number in entries.values()):
        raise _not(vocabulary, "it does not give each token its id")
    missing = sum(character not in entries for character in alphabet())
    ends = any(token.endswith("</w>") for token in entries)
    if missing or ends:
        what = "its words end with </w>" if ends else f"it lacks {missing} of the 256 bytes"
        raise _not(vocabulary, f"it is no byte-level vocabulary as GPT-2 has it: {what}")
    pairs: list[tuple[str, str]] = []
    try:
        lines = merges.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise _not(merges, f"it is no text ({error})") from error
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        first, _, second = line.partition(" ")
        if not first or not second or " " in second or first + second not in entries:
            raise fail(
                DataError,
                "TXT014",
                f"the line {line[:60]!r} is no pair of which {vocabulary.name} has the whole",
                place=Place(str(merges), number, 1),
            )
        pairs.append((first, second))
    tokenizer = Tokenizer(models.BPE(vocab=entries, merges=pairs))
    prefix = bool(beside.values.get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_tokens(tokenizer, vocabulary, beside)


def from_words(path: Path, beside: Configuration) -> Tokenizer:
    """WordPiece as BERT has it. Raise DataError (TXT014) where the file is something else."""
    _known(path, beside, _WORDPIECE)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise _not(path, f"it is no text ({error})") from error
    if lines[-1] == "":
        lines.pop()
    entries = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    unknown = beside.unknown or "[UNK]"
    if unknown not in entries:
        raise _not(path, f"it has no token {unknown!r} for unknown words")
    says = beside.values.get
    tokenizer = Tokenizer(models.WordPiece(vocab=entries, unk_token=unknown, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(says("tokenize_chinese_chars", True)),
        strip_accents=says("strip_accents"),
        lowercase=bool(says("do_lower_case", True)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    names = ("[CLS]", "[SEP]", "[MASK]", "[PAD]", unknown)
    tokenizer.add_special_tokens([name for name in names if name in entries])
    return _with_tokens(tokenizer, path, beside)


def _with_tokens(tokenizer: Tokenizer, path: Path, beside: Configuration) -> Tokenizer:
    """The tokens that stand beside the vocabulary, under the ids that are given for them."""
    for token in beside.added:
        made = AddedToken(
            token.name,
            special=token.special or token.name in beside.controls,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            single_word=token.single_word,
            normalized=token.normalized,
        )
        tokenizer.add_tokens([made])
        number = tokenizer.token_to_id(token.name)
        if number != token.id:
            raise _not(path, f"the token {token.name!r} beside it has the id {token.id}, and here {number}")
    known = [name for name in beside.controls if tokenizer.token_to_id(name) is not None]
    tokenizer.add_special_tokens(known)
    return tokenizer


def _known(path: Path, beside: Configuration, names: tuple[str, ...]) -> None:
    if beside.kind is not None and not beside.kind.startswith(names):
        raise _not(
            path,
            f"tokenizer_config.json says that it is a {beside.kind}, which {path.name} alone does not make",
        )


def _not(path: Path, why: str) -> Exception:
    return fail(
        DataError,
        "TXT014",
        f"this is no tokenizer that can be read: {why}",
        place=Place(str(path)),
        hint=_SAVE,
    )
