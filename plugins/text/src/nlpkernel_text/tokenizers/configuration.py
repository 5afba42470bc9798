"""What the files beside a tokenizer say of it: tokenizer_config.json, special_tokens_map.json, added_tokens.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.errors import DataError, Place, fail

#: The files, the most telling last.
FILES = ("added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")


@attrs.frozen(kw_only=True)
class Added:
    """A token beside the model's own. special: a control token, which is not read in texts."""

    id: int
    name: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


@attrs.frozen(kw_only=True)
class Configuration:
    """What the files say; None or empty where they do not. kind: the name of the class that a tokenizer is of."""

    kind: str | None = None
    end: str | None = None
    pad: str | None = None
    unknown: str | None = None
    separator: str | None = None
    controls: tuple[str, ...] = ()
    added: tuple[Added, ...] = ()
    values: Mapping[str, Any] = attrs.field(factory=dict)


def read_configuration(folder: Path) -> Configuration:
    """Read the files that are there. Raise DataError (TXT014) where one is not what its name says."""
    values: dict[str, Any] = {}
    added: dict[int, Added] = {}
    for name in FILES:
        path = folder / name
        if not path.is_file():
            continue
        found = read_json(path)
        if not isinstance(found, dict):
            raise _not(path, "it holds no JSON object")
        try:
            if name == "added_tokens.json":
                added.update(
                    {int(number): Added(id=int(number), name=token) for token, number in found.items()}
                )
                continue
            for number, facts in (found.get("added_tokens_decoder") or {}).items():
                known = {key: bool(facts[key]) for key in _FLAGS if key in facts}
                added[int(number)] = Added(id=int(number), name=str(facts["content"]), **known)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise _not(path, f"its added tokens cannot be read ({error!r})") from error
        values.update(found)
    more = values.get("additional_special_tokens") or values.get("extra_special_tokens") or ()
    controls = [
        _token(values.get(f"{role}_token")) for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
    ]
    controls += [_token(each) for each in (more.values() if isinstance(more, dict) else more)]
    return Configuration(
        kind=values.get("tokenizer_class"),
        end=_token(values.get("eos_token")),
        pad=_token(values.get("pad_token")),
        unknown=_token(values.get("unk_token")),
        separator=_token(values.get("sep_token")),
        controls=tuple(dict.fromkeys(name for name in controls if name)),
        added=tuple(added[number] for number in sorted(added)),
        values=values,
    )


_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


def read_json(path: Path) -> Any:
    """The value in a JSON file. Raise DataError (TXT014)."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise _not(path, f"it cannot be read as JSON ({error})") from error


def _token(value: Any) -> str | None:
    """A token is written as its name, or as a table with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _not(path: Path, why: str) -> Exception:
    return fail(DataError, "TXT014", f"this is no file of a tokenizer: {why}", place=Place(str(path)))
