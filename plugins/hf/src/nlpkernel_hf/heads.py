"""Which class of the library does which task."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

from nlpkernel.errors import PlanError, fail
from nlpkernel_hf.codes import OWNER
from nlpkernel_hf.component import Attention
from nlpkernel_hf.configuration import REFUSALS, refused
from nlpkernel_hf.images import TASK, has_towers, works_as_clip

#: The library's classes, by our names of tasks.
AUTO: Mapping[str, str] = {
    "lm": "AutoModelForCausalLM",
    "mlm": "AutoModelForMaskedLM",
    "classification": "AutoModelForSequenceClassification",
    "tokens": "AutoModelForTokenClassification",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "pairs": "AutoModel",
    TASK: "AutoModel",
}


def structure(config: Any, task: str, attention: Attention) -> Any:
    """The library's model for a task, on the device that torch makes tensors on, without values. Raise PlanError for a
    task that this type does not do (HFM006), and where the library refuses (HFM003, HFM010)."""
    auto = _class_for(config, task)
    options: dict[str, Any] = {"dtype": torch.float32}
    if attention != "auto":
        options["attn_implementation"] = attention
    kind = auto._model_mapping[type(config)]
    kind = kind[0] if isinstance(kind, (list, tuple)) else kind
    if task == "pairs" and "add_pooling_layer" in inspect.signature(kind.__init__).parameters:
        # A pooler that nobody asks would have no gradient.
        options["add_pooling_layer"] = False
    try:
        model = auto.from_config(config, **options)
    except REFUSALS as error:
        if attention != "auto" and "attention" in str(error):
            raise fail(
                PlanError,
                "HFM010",
                f"a {config.model_type!r} does not compute its attention by {attention!r}: {error}",
                owner=OWNER,
                hint='write `attention = "auto"`',
            ) from error
        raise refused(config.model_type, error) from error
    if task == TASK and not works_as_clip(model):
        raise _without(config, task, "take one that works as CLIP does (clip)")
    return model


def _class_for(config: Any, task: str) -> Any:
    if task not in AUTO:
        raise _without(config, task, f"this component does {', '.join(AUTO)}")
    if has_towers(config) != (task == TASK):
        hint = "take a model of images and texts (clip)" if task == TASK else f"it is for the task {TASK!r}"
        raise _without(config, task, hint)
    auto = getattr(transformers, AUTO[task])
    encodes_only = bool(getattr(config, "is_encoder_decoder", False)) and task != "seq2seq"
    if encodes_only and task == "pairs":
        auto = transformers.AutoModelForTextEncoding
    elif encodes_only and task in ("classification", "tokens"):
        # They go by where a mark stands in the text, which the data does not promise.
        raise _without(config, task, "take an encoder or a decoder")
    if type(config) not in auto._model_mapping:
        raise _without(config, task, "choose another model, or the task that goes with it")
    if task == "lm" and config.model_type in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        # An encoder sees what it is to predict, unless it is told to be a decoder.
        if not hasattr(config, "is_decoder"):
            raise _without(config, task, "choose a decoder (gpt2, llama)")
        config.is_decoder = True
    return auto


def _without(config: Any, task: str, hint: str) -> Exception:
    return fail(
        PlanError,
        "HFM006",
        f"a model of the type {config.model_type!r} has no head for the task {task!r}",
        owner=OWNER,
        hint=hint,
    )
