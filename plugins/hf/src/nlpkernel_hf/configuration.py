"""The library's configuration of a model, from the settings and the data."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub.errors import StrictDataclassError

from nlpkernel.errors import Place, PlanError, fail
from nlpkernel_hf.codes import OWNER
from nlpkernel_hf.completing import completed, needed, towers
from nlpkernel_hf.images import TASK, fit_images, has_towers, parts_of, text_of

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import DataInfo
    from nlpkernel_hf.component import Hf

#: The copy of a folder's configuration that a run keeps, so that its versions open without the folder.
KEPT = "hf-config.json"
#: What the library raises where a configuration makes no sense.
REFUSALS = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    AssertionError,
    ImportError,
    RuntimeError,
    StrictDataclassError,
)


def configure(settings: Hf, run: Run, info: DataInfo) -> Any:
    """A configuration with the data's vocabulary, labels and positions, and with what the settings change.

    Raise PlanError for a folder without one (HFM001), one that the library does not know (HFM003), a vocabulary
    (HFM004) or positions (HFM005) that are too few, for images of another size (HFM011), and for dropouts that there
    are not (HFM010).
    """
    if settings.folder is not None:
        config = of_folder(settings.folder, run)
    else:
        config = _of_values(settings.config or {}, info)
    config.use_cache = False
    for part in parts_of(config):
        _fit_heads(part)
    _fit_vocabulary(config, settings.folder, info)
    _fit_positions(config, info)
    if info.task == TASK and has_towers(config):
        fit_images(config, info)
    if info.task in ("classification", "tokens"):
        config.id2label = dict(enumerate(info.labels))
        config.label2id = {label: number for number, label in enumerate(info.labels)}
    if settings.dropout is not None:
        _drop(config, settings.dropout)
    return config


def of_folder(folder: Path, run: Run) -> Any:
    """The configuration in a folder; where the folder is gone, the copy that the run keeps."""
    from transformers import CONFIG_MAPPING

    path, kept = folder / "config.json", run.folder / KEPT
    if not path.is_file():
        if not kept.is_file():
            what = "has no config.json" if folder.is_dir() else "is no folder on this machine"
            raise fail(
                PlanError,
                "HFM001",
                f"{str(folder)!r} {what}",
                place=Place(str(folder)),
                owner=OWNER,
                hint="name a folder that `save_pretrained` wrote; nothing is downloaded",
            )
        path = kept
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
            raise ValueError("it has no model_type")
        if "quantization_config" in values:
            raise ValueError("it is of a quantized model")
        if values["model_type"] not in CONFIG_MAPPING:
            raise ValueError(f"the installed transformers knows no model_type {values['model_type']!r}")
        config = CONFIG_MAPPING[values["model_type"]].from_dict(values)
    except (OSError, *REFUSALS) as error:
        raise fail(
            PlanError,
            "HFM003",
            f"the library builds no model from this configuration: {_line(error)}",
            place=Place(str(path)),
            owner=OWNER,
        ) from error
    if path != kept and run.rank <= 0 and run.folder.is_dir():
        _keep(json.dumps(values), kept)
    return config


def names_of(folder: Path | None, run: Run) -> Sequence[str]:
    """The classes that the folder's own head was trained for, in order; empty where it names none."""
    if folder is None:
        return ()
    names = list(of_folder(folder, run).id2label.values())
    return () if all(name == f"LABEL_{number}" for number, name in enumerate(names)) else names


def position_limit(config: Any) -> int | None:
    """The most positions of a row that the configuration knows of, without those that a type reserves."""
    limit = getattr(text_of(config), "max_position_embeddings", None)
    return None if not isinstance(limit, int) or limit <= 0 else limit


def _of_values(values: dict[str, Any], info: DataInfo) -> Any:
    from transformers import CONFIG_MAPPING

    kind = values["model_type"]
    if kind not in CONFIG_MAPPING:
        near = get_close_matches(kind, CONFIG_MAPPING.keys(), n=3)
        raise fail(
            PlanError,
            "HFM003",
            f"the installed transformers knows no model_type {kind!r}",
            owner=OWNER,
            hint=f"did you mean {', '.join(map(repr, near))}?" if near else None,
        )
    cls = CONFIG_MAPPING[kind]
    given = {name: value for name, value in values.items() if name != "model_type"}
    try:
        if has_towers(cls):
            return cls(**towers(cls, kind, given, info))
        return cls(**completed(cls, kind, given, info))
    except REFUSALS as error:
        raise refused(kind, error) from error


def refused(kind: str, error: Exception) -> Exception:
    """The library's own complaint, located."""
    return fail(
        PlanError,
        "HFM003",
        f"the library does not build a {kind!r} of this configuration: {_line(error)}",
        owner=OWNER,
        hint="see the class of this type's configuration in the library for what goes together",
    )


def _fit_heads(config: Any) -> None:
    """The library finds this out in the first forward only."""
    heads, groups = (getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
    if isinstance(heads, int) and isinstance(groups, int) and (groups < 1 or heads % groups):
        raise fail(
            PlanError,
            "HFM003",
            f"{heads} attention heads do not divide into {groups} groups of one key-value head",
            owner=OWNER,
            hint="write num_key_value_heads, which this type may have a default of its own for",
        )


def _fit_vocabulary(config: Any, folder: Path | None, info: DataInfo) -> None:
    size = getattr(text_of(config), "vocab_size", None)
    if not isinstance(size, int):
        raise fail(
            PlanError,
            "HFM003",
            f"a model of the type {config.model_type!r} has no vocabulary of its own",
            owner=OWNER,
            hint="choose a model of texts",
        )
    if size < info.vocabulary:
        fix = "leave vocab_size out of config"
        if folder is not None:
            fix = f'write `tokenizer = {{ use = "pretrained", path = "{folder}" }}` in [data]'
        raise fail(
            PlanError,
            "HFM004",
            f"the model has {size} entries, and the tokenizer {info.vocabulary}",
            place=None if folder is None else Place(str(folder / "config.json")),
            owner=OWNER,
            hint=fix,
        )


def _fit_positions(config: Any, info: DataInfo) -> None:
    limit = position_limit(config)
    if limit is not None and limit < needed(info):
        raise fits_not(limit, info)


def fits_not(limit: int, info: DataInfo) -> Exception:
    """The error of rows that are too long."""
    return fail(
        PlanError,
        "HFM005",
        f"the model has {limit} positions, and the data's rows need {needed(info)}",
        owner=OWNER,
        hint=f"write a window of at most {limit - (needed(info) - info.window)} in [data]",
    )


def _drop(config: Any, share: float) -> None:
    found = [
        (part, name)
        for part in parts_of(config)
        for name, value in part.to_dict().items()
        if ("dropout" in name or name.endswith("pdrop"))
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
    ]
    if not found:
        raise fail(
            PlanError,
            "HFM010",
            f"the configuration of {config.model_type!r} has no dropout",
            owner=OWNER,
            hint="leave dropout out",
        )
    for part, name in found:
        setattr(part, name, share)


def _keep(text: str, path: Path) -> None:
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
