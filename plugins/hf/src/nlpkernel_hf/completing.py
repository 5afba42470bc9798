"""What the data say of a configuration that the plan leaves open: vocabulary, positions, the size of images."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from nlpkernel.errors import PlanError, fail
from nlpkernel_hf.codes import OWNER
from nlpkernel_hf.images import IMAGE, PARTS, TEXT

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import DataInfo

_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def needed(info: DataInfo) -> int:
    """Positions that the longest row needs: a language model does not read the last token, which is only predicted."""
    return info.window if info.task == "lm" else info.window + 1


def towers(cls: Any, kind: str, given: dict[str, Any], info: DataInfo) -> dict[str, Any]:
    """What is given for a model of two towers, with what the data say of texts and images."""
    _refuse_unknown(cls, cls(), kind, given)
    text, image = (dict(given.get(name) or {}) for name in PARTS)
    kinds = cls.sub_configs
    _refuse_unknown(kinds[IMAGE], kinds[IMAGE](), f"{kind}.{IMAGE}", image)
    if info.image is not None:
        image.setdefault("image_size", info.image)
    text.setdefault("max_position_embeddings", needed(info))
    text = completed(kinds[TEXT], f"{kind}.{TEXT}", text, info)
    if text.get("eos_token_id", 0) is None:
        # The library looks for it in each text; what it finds there is not used here.
        text["eos_token_id"] = text["vocab_size"] - 1
    return {**given, TEXT: text, IMAGE: image}


def completed(cls: Any, kind: str, given: dict[str, Any], info: DataInfo) -> dict[str, Any]:
    """What is given for a model of texts, with the vocabulary and the positions of the data."""
    blank = cls()
    known = _refuse_unknown(cls, blank, kind, given)
    own = _own_name(cls, "vocab_size")
    if not {"vocab_size", own} & given.keys():
        given[own] = info.vocabulary
    vocabulary: Any = given.get(own, given.get("vocab_size"))
    places = _own_name(cls, "max_position_embeddings")
    if places in known and not {"max_position_embeddings", places} & given.keys():
        given[places] = needed(info) + _reserved(
            given.get("pad_token_id", getattr(blank, "pad_token_id", None))
        )
    for name in _TOKENS:
        default = getattr(blank, name, None)
        if name not in given and isinstance(default, int) and default >= vocabulary:
            given[name] = None
    return given


def _refuse_unknown(cls: Any, blank: Any, kind: str, given: dict[str, Any]) -> set[str]:
    """The names of a configuration's values. Raise PlanError (HFM003) for others that are given."""
    known = {*blank.to_dict(), *cls.attribute_map}
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else None
            raise fail(
                PlanError,
                "HFM003",
                f"the configuration of {kind!r} has no value {name!r}",
                owner=OWNER,
                hint=hint,
            )
    return known


def _reserved(pad: Any) -> int:
    """Rows of the table of positions that no token has: RoBERTa and its kin begin behind the padding's number. A type
    that does not gets a few rows too many."""
    return pad + 1 if isinstance(pad, int) and 0 < pad < 8 else 0


def _own_name(cls: Any, name: str) -> str:
    return str(cls.attribute_map.get(name, name))
