"""Tokenizers that are there already: finding the files, and what kind they are, by their content."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.plugins.suggest import hint
from nlpkernel_text.tokenizers import spm
from nlpkernel_text.tokenizers.configuration import FILES, Configuration, read_configuration
from nlpkernel_text.tokenizers.encoders import ByteTokenizer, CharacterTokenizer
from nlpkernel_text.tokenizers.library import LibraryTokenizer, add_domain, template_end
from nlpkernel_text.tokenizers.pieces import PieceTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text.tokenizers.components import Pretrained

#: What a folder may hold, the most exact first: the files of each kind.
_KINDS = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
)
#: Classes of Hugging Face whose ids are those of the SentencePiece model.
_SAME_IDS = ("Llama", "CodeLlama", "Gemma", "Mistral")


def files_of(path: Path) -> Sequence[Path]:
    """The files that are read for a path. Raise DataError (TXT013, TXT014)."""
    if path.is_file():
        return (path,)
    if not path.is_dir():
        message = "there is no tokenizer: no such file or folder"
        raise fail(DataError, "TXT013", message, place=Place(str(path)), hint=_beside(path))
    for names in _KINDS:
        if all((path / name).is_file() for name in names):
            present = [path / name for name in FILES if (path / name).is_file()]
            return (*(path / name for name in names), *present)
    there = sorted(each.name for each in path.iterdir())[:12]
    raise fail(
        DataError,
        "TXT013",
        "the folder holds no tokenizer: no tokenizer.json, no SentencePiece model (tokenizer.model, spiece.model), no "
        "vocab.json with merges.txt, and no vocab.txt",
        place=Place(str(path)),
        hint=f"it holds {', '.join(there)}" if there else "it is empty",
    )


def _beside(path: Path) -> str | None:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    return hint(path.name, [each.name for each in sorted(path.parent.iterdir())[:200]])


def open_pretrained(settings: Pretrained, run: Run) -> Tokenizer:
    """The tokenizer that a path stands for, with the settings' own tokens. Raise DataError (TXT013, TXT014, TXT016,
    TXT017) for all that is wrong with it, PluginError (TXT015) where its library is missing."""
    from nlpkernel_text.tokenizers import folders

    files = files_of(settings.path)
    beside = read_configuration(settings.path) if settings.path.is_dir() else Configuration()
    first = files[0]
    made: Tokenizer
    if first.name == "vocab.json" and len(files) > 1:
        made = _library(folders.from_merges(first, files[1], beside), {}, beside, settings)
    elif first.name == "vocab.txt":
        # BERT's classes name no end: what stands after a text is the separator.
        beside = attrs.evolve(beside, end=beside.end or beside.separator)
        made = _library(folders.from_words(first, beside), {}, beside, settings)
    else:
        made = _opened(first, beside, settings)
    if made.end is None and settings.end is None:
        run.notice(
            "tokenizer pretrained",
            f"{first} names no token that ends a document, so nothing stands between documents; `end` names one",
        )
    return made


def load_saved(saved: bytes) -> Tokenizer:
    """Take up what the `save` of any tokenizer of this package gave. Raise DataError (TXT012)."""
    if saved.lstrip()[:1] != b"{":
        return PieceTokenizer(saved)
    try:
        kind = json.loads(saved).get("kind")
    except ValueError as error:
        raise fail(DataError, "TXT012", f"the saved tokenizer cannot be read ({error})") from error
    if kind == "bytes":
        return ByteTokenizer.load(saved)
    if kind == "characters":
        return CharacterTokenizer.load(saved)
    return LibraryTokenizer.load(saved)


def _opened(path: Path, beside: Configuration, settings: Pretrained) -> Tokenizer:
    from tokenizers import Tokenizer as Library

    content = path.read_bytes()
    if content.lstrip()[:1] != b"{":
        if spm.read_model(content) is None:
            raise _unknown(
                path, f"it is neither JSON nor a whole SentencePiece model ({len(content):,} bytes)"
            )
        return _pieces(path, content, beside, settings)
    try:
        text = content.decode("utf-8")
        values: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise _unknown(path, f"it begins as JSON and cannot be read as such ({error})") from error
    if values.get("kind") in ("bytes", "characters"):
        if settings.special or settings.end is not None or settings.pad is not None:
            raise _unknown(path, f"it is one of kind {values['kind']!r}, which takes no other tokens")
        return load_saved(content)
    if "model" not in values or "added_tokens" not in values:
        keys = ", ".join(list(values)[:5])
        raise _unknown(path, f"it is JSON, and has no `model` with `added_tokens`; it has {keys}, ...")
    try:
        library = Library.from_str(text)
    except Exception as error:
        raise _unknown(path, f"the tokenizers library does not take it ({error})") from error
    return _library(library, values, beside, settings)


def _library(
    library: Library, values: dict[str, Any], beside: Configuration, settings: Pretrained
) -> LibraryTokenizer:
    """A tokenizer of the library with the tokens of the settings."""
    from tokenizers import AddedToken

    if library.model.__class__.__name__ == "BPE":
        library.model.dropout = None
    end = _named(settings.end, beside.end or template_end(values))
    pad = _named(settings.pad, beside.pad or (values.get("padding") or {}).get("pad_token"))
    roles = {name for name in (end, pad) if name is not None}
    entries = library.get_vocab(with_added_tokens=True)
    for name, role in ((end, "end"), (pad, "pad")):
        if name is not None and name not in entries and name not in settings.special:
            raise _missing(settings, role, name, entries)
    added = {token.content for token in library.get_added_tokens_decoder().values() if token.special}
    known = [name for name in settings.special if name in added - roles]
    library.add_special_tokens(
        [
            AddedToken(name, special=True, normalized=False)
            for name in (end, pad)
            if name and name not in added
        ]
    )
    library = _read_in_texts(library, known)
    add_domain(library, [name for name in settings.special if name not in roles and name not in known])
    return LibraryTokenizer(library, end=end, pad=pad)


def _pieces(path: Path, content: bytes, beside: Configuration, settings: Pretrained) -> PieceTokenizer:
    """A SentencePiece model with the tokens of the settings."""
    if beside.kind is not None and not beside.kind.startswith(_SAME_IDS):
        raise _unknown(
            path,
            f"tokenizer_config.json says that it is a {beside.kind}, which numbers the pieces otherwise than the model",
            hint="save it as tokenizer.json, or name the model itself to have its own ids",
        )
    model = spm.read_model(content)
    assert model is not None, "looked at before"
    entries = {name: number for number, (name, _) in enumerate(model.pieces)}
    kinds = dict(model.pieces)
    more: dict[str, int] = {}
    for each in beside.added:
        number = entries.get(each.name, len(entries) + len(more))
        if number != each.id:
            raise _unknown(path, f"the token {each.name!r} beside it has the id {each.id}, and here {number}")
        if each.name not in entries:
            more[each.name] = spm.CONTROL if each.special else spm.USER
    end, pad = (_named(settings.end, beside.end), _named(settings.pad, beside.pad))
    for token in settings.special:
        kind = spm.CONTROL if token in (end, pad) else spm.USER
        if kinds.get(token, kind) != kind:
            raise fail(
                DataError,
                "TXT017",
                f"{token!r} cannot be a special token: the model has it already, as another kind of piece",
                place=Place(str(path)),
                hint="write another name",
            )
        if token not in entries:
            more.setdefault(token, kind)
    for name, role in ((end, "end"), (pad, "pad")):
        if name and (kinds | more).get(name) != spm.CONTROL:
            controls = {each: 0 for each, kind in (kinds | more).items() if kind == spm.CONTROL}
            raise _missing(settings, role, name, controls)
    return PieceTokenizer(
        spm.added(content, more, end=_written(settings.end, end), pad=_written(settings.pad, pad))
    )


def _named(asked: str | None, found: str | None) -> str | None:
    """The settings' word for a token, and else what was found."""
    return found if asked is None else asked or None


def _written(asked: str | None, name: str | None) -> str | None:
    return "" if asked == "" else name


def _read_in_texts(library: Library, names: Sequence[str]) -> Library:
    """The tokenizer, in which control tokens of these names are read in texts."""
    if not names:
        return library
    from tokenizers import Tokenizer as Library

    values = json.loads(library.to_str())
    for token in values["added_tokens"]:
        if token["content"] in names:
            token["special"] = False
    return Library.from_str(json.dumps(values))


def _missing(settings: Pretrained, role: str, name: str, entries: dict[str, int]) -> Exception:
    likely = [each for each in entries if not each[:1].isalnum()][:2000]
    tip = hint(name, likely) if len(likely) <= 40 else None
    return fail(
        DataError,
        "TXT016",
        f"the tokenizer has no token {name!r} that could be its {role}",
        place=Place(str(settings.path)),
        hint=tip or "name one that it has; one that is listed in `special` as well is added",
    )


def _unknown(path: Path, why: str, hint: str | None = None) -> Exception:
    return fail(
        DataError,
        "TXT014",
        f"this is no tokenizer that can be read: {why}",
        place=Place(str(path)),
        hint=hint or "a tokenizer.json, a SentencePiece model, or a Hugging Face folder is wanted",
    )
