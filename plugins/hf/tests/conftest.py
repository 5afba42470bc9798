"""Tiny models of the types that are promised, as our component makes them and as the library does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from nlpkernel.context import Run
from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.hookspecs.data import DataInfo
from nlpkernel.hookspecs.model import Model
from nlpkernel.plan.train import Train
from nlpkernel_hf.component import Hf
from nlpkernel_hf.heads import AUTO

_BODY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_CONFIGS: dict[str, dict[str, Any]] = {
    "bert": _BODY,
    "roberta": _BODY,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "llama": {**_BODY, "num_key_value_heads": 2},
    "mixtral": {**_BODY, "num_key_value_heads": 2, "num_local_experts": 4},
    "t5": {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64},
}


class Lab:
    """Makes models of rows of at most `window` tokens and of `vocabulary` entries."""

    vocabulary = 50
    window = 15
    #: Rows of different lengths, padded behind.
    lengths = (15, 9, 1, 12)
    configs: Mapping[str, Mapping[str, Any]] = _CONFIGS

    def __init__(self, run: Run) -> None:
        self.run = run

    def task(self, kind: str) -> str:
        """What a type is first of all for."""
        return {"bert": "mlm", "roberta": "mlm", "t5": "seq2seq"}.get(kind, "lm")

    def info(self, task: str, labels: Sequence[str] = (), **changes: Any) -> DataInfo:
        """What the data would say."""
        facts = {"vocabulary": self.vocabulary, "window": self.window, **changes}
        return DataInfo(task=task, fingerprint="", splits={}, labels=tuple(labels), **facts)

    def settings(self, kind: str, values: Mapping[str, Any] | None = None, **changes: Any) -> Hf:
        """The component for a type, with other values of its configuration and other settings."""
        return Hf(config={"model_type": kind, **_CONFIGS[kind], **(values or {})}, **changes)

    def structure(self, settings: Hf, info: DataInfo) -> Model:
        """A model before it is filled."""
        with torch.device("meta"):
            made = settings.create_model(run=self.run, info=info)
        assert {each.device.type for each in made.module.parameters()} == {"meta"}
        return made

    def model(self, settings: Hf, info: DataInfo, seed: int = 1) -> Model:
        """A model, filled as the engine does it."""
        made = self.structure(settings, info)
        allocate(made.module, torch.device("cpu"), torch.float32)
        fill(made, list(whole(made.module)), seed)
        made.module.eval()
        return made

    def of(self, kind: str, task: str | None = None, **changes: Any) -> Any:
        """The filled module of a type."""
        return self.model(self.settings(kind, **changes), self.info(task or self.task(kind))).module

    def library(self, kind: str, task: str, like: Any = None, *, fresh: bool = False, **values: Any) -> Any:
        """The library's own model with weights that are far from each other; or with those of our module `like`. fresh:
        with the library's first values."""
        if like is not None:
            name = "n_positions" if kind == "gpt2" else "max_position_embeddings"
            values |= {name: getattr(like.model.config, name)} if hasattr(like.model.config, name) else {}
        else:
            values |= {"t5": {}, "gpt2": {"n_positions": 15}}.get(kind, {"max_position_embeddings": 18})
        given = {"vocab_size": self.vocabulary, **_CONFIGS[kind], **values}
        torch.manual_seed(0)
        model = getattr(transformers, AUTO[task]).from_config(
            transformers.AutoConfig.for_model(kind, **given)
        )
        if like is not None and not fresh:
            model.load_state_dict(like.model.state_dict(), strict=True)
        elif not fresh:
            with torch.no_grad():
                for each in model.parameters():
                    each.add_(0.1 * torch.randn_like(each))
        return model.eval()

    def tokens(self, seed: int = 0, width: int = 15, rows: int = 4) -> Tensor:
        """Ids that are never a padding's of the library (0 and 1)."""
        draws = torch.Generator().manual_seed(seed)
        return torch.randint(2, self.vocabulary, (rows, width), generator=draws)

    def padded(self, tokens: Tensor, pad: int, lengths: Sequence[int] = lengths) -> Tensor:
        """The same with another id behind each length."""
        behind = torch.arange(tokens.shape[1]) >= torch.tensor(lengths)[:, None]
        return tokens.masked_fill(behind, pad)

    def mask(self, width: int = 15) -> Tensor:
        """The library's mask of what is no padding."""
        return (torch.arange(width) < torch.tensor(self.lengths)[:, None]).long()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that a test makes by itself."""
    return Run(name="test", folder=tmp_path, cache=tmp_path / "cache", train=Train())


@pytest.fixture
def lab(run: Run) -> Lab:
    return Lab(run)
