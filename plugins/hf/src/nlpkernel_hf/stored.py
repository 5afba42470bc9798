"""Weights of a folder, read one at a time."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)

from nlpkernel.errors import CheckpointError, Place, PlanError, fail
from nlpkernel_hf.codes import OWNER

_ONE, _INDEX = "model.safetensors", "model.safetensors.index.json"


class Stored:
    """The tensors of a folder under the names that a model has for them.

    The library renames and puts together what older versions wrote otherwise (the experts of a mixture, each of its
    own); its rules are applied to one tensor when that is asked for. `left`: names in the folder that the model has no
    place for.
    """

    def __init__(self, folder: Path, model: Any) -> None:
        """model: of the library, on the meta device. Raise PlanError (HFM002) for a folder without safetensors, and
        CheckpointError (HFM007) for files that cannot be read."""
        self._folder, self._model = folder, model
        self._files = _files(folder)
        self._open: dict[Path, Any] = {}
        self._ready: dict[str, Tensor] = {}
        expected = model.state_dict()
        rules = get_model_conversion_mapping(model)
        renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
        converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
        by_pattern = {pattern: rule for rule in converters for pattern in rule.source_patterns}
        prefix = model.base_model_prefix
        #: By the first name that a rule gives: the rule, and what it is given.
        self._rules: dict[str, tuple[Any, list[tuple[str, str]]]] = {}
        self._first: dict[str, str] = {}
        self.left: list[str] = []
        for key in sorted(self._files, key=dot_natural_key):
            name, pattern = rename_source_key(key, renamings, converters, prefix, expected)
            if name not in expected and key in expected:
                name, pattern = rename_source_key(key, [], [], prefix, expected)
            if name not in expected:
                self.left.append(key)
                continue
            rule = None if pattern is None else by_pattern[pattern]
            self._rules.setdefault(name, (rule, []))[1].append((key, pattern or key))
            self._first[name] = name
            if rule is not None:
                for target in rule.target_patterns:
                    self._first[name.replace(rule.target_patterns[0], target, 1)] = name

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def read(self, name: str) -> Tensor:
        """The tensor of this name in the model. Raise CheckpointError (HFM007) where the files do not give it."""
        if name not in self._ready:
            first = self._first[name]
            rule, keys = self._rules[first]
            if rule is None:
                # A later key of the same name is what the library would take, too.
                return self._tensor(keys[-1][0])
            working = copy.deepcopy(rule)
            for key, pattern in keys:
                working.add_tensor(first, key, pattern, self._tensor(key))
            made = working.convert(first, model=self._model, config=self._model.config)
            for target, tensor in made.items():
                self._ready[target] = tensor[0] if isinstance(tensor, list) else tensor
        if name not in self._ready:
            raise _damaged(self._folder, f"the library makes no {name} of it")
        return self._ready.pop(name)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor that is in the folder as it is; None for one that is put together."""
        rule, keys = self._rules[self._first[name]]
        if rule is not None:
            return None
        return tuple(self._handle(keys[-1][0]).get_slice(keys[-1][0]).get_shape())

    def _tensor(self, key: str) -> Tensor:
        tensor: Tensor = self._handle(key).get_tensor(key)
        return tensor

    def _handle(self, key: str) -> Any:
        path = self._files[key]
        if path not in self._open:
            self._open[path] = _opened(path)
        return self._open[path]


def _files(folder: Path) -> Mapping[str, Path]:
    """The file of each tensor."""
    one, index = folder / _ONE, folder / _INDEX
    if index.is_file():
        try:
            table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            files = {str(key): folder / str(name) for key, name in table.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(index, f"it is no index of shards ({error})") from error
        missing = sorted({path.name for path in files.values() if not path.is_file()})
        if missing:
            raise _damaged(index, f"it names files that are not there: {', '.join(missing[:3])}")
        return files
    if one.is_file():
        return dict.fromkeys(_opened(one).keys(), one)
    pickles = [path.name for path in _pickles(folder)]
    what = f"only {', '.join(pickles[:3])}, which are pickles" if pickles else f"no {_ONE}"
    raise fail(
        PlanError,
        "HFM002",
        f"{str(folder)!r} has {what}",
        place=Place(str(folder)),
        owner=OWNER,
        hint="save the model with `save_pretrained`, which writes safetensors",
    )


def _pickles(folder: Path) -> Sequence[Path]:
    return sorted(path for suffix in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(suffix))


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise _damaged(path, f"it cannot be read ({error})") from error


def _damaged(path: Path, what: str) -> CheckpointError:
    error = fail(CheckpointError, "HFM007", what, place=Place(str(path)), owner=OWNER)
    assert isinstance(error, CheckpointError)
    return error
