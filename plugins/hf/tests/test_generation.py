"""Writing with the library's caches, token by token, against the library's own `generate`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nlpkernel_hf.component import Hf


def sharp(lab: Any, kind: str) -> Any:
    """A model whose likeliest tokens are far ahead."""
    ours = lab.of(kind)
    with torch.no_grad():
        for name, each in ours.named_parameters():
            if each.dim() > 1:
                each.normal_(0.0, 0.4, generator=torch.Generator().manual_seed(len(name)))
    return ours


def generated(lab: Any, kind: str, ours: Any, new: int, **given: Any) -> Tensor:
    """What the library writes, always the likeliest."""
    theirs = lab.library(kind, lab.task(kind), ours)
    theirs.generation_config.eos_token_id = None
    theirs.generation_config.pad_token_id = 0
    return theirs.generate(
        **given, max_new_tokens=new, min_new_tokens=new, do_sample=False, suppress_tokens=None
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mixtral"])
def test_a_decoder_writes_what_the_library_writes(lab: Any, kind: str) -> None:
    ours, prompt = sharp(lab, kind), lab.tokens(width=5)
    theirs = generated(lab, kind, ours, 9, input_ids=prompt, attention_mask=torch.ones_like(prompt))
    logits, cache = ours.prefill(prompt, 14)
    found = [logits.argmax(-1)]
    for _ in range(8):
        logits, cache = ours.decode(found[-1][:, None], cache)
        found.append(logits.argmax(-1))
    assert torch.equal(torch.stack(found, 1), theirs[:, 5:])
    assert len(theirs[:, 5:].unique()) > 4
    assert cache.length == 13


def written(ours: Any, cache: Any, first: Tensor, count: int) -> Tensor:
    found = [first]
    for _ in range(count):
        logits, cache = ours.decode(found[-1][:, None], cache)
        found.append(logits.argmax(-1))
    return torch.stack(found[1:], 1)


def test_an_encoder_decoder_writes_what_the_library_writes(lab: Any) -> None:
    ours, source = sharp(lab, "t5"), lab.tokens()
    theirs = generated(
        lab,
        "t5",
        ours,
        8,
        input_ids=lab.padded(source, 0),
        attention_mask=lab.mask(),
        decoder_start_token_id=0,
    )
    cache = ours.encode(lab.padded(source, 7), torch.tensor(lab.lengths), 9)
    found = written(ours, cache, torch.zeros(4, dtype=torch.long), 8)
    assert torch.equal(found, theirs[:, 1:])
    assert len(found.unique()) > 4


def test_beams_that_are_kept_by_select_are_those_of_the_library(lab: Any) -> None:
    ours, source = sharp(lab, "t5"), lab.tokens()
    beams, steps, rows = 3, 6, 4
    theirs = lab.library("t5", "seq2seq", ours)
    theirs.generation_config.eos_token_id = None
    reference = theirs.generate(
        input_ids=lab.padded(source, 0),
        attention_mask=lab.mask(),
        decoder_start_token_id=0,
        num_beams=beams,
        max_new_tokens=steps,
        do_sample=False,
        length_penalty=0.0,
    )
    cache = ours.encode(source, torch.tensor(lab.lengths), steps + 1)
    cache = ours.select(cache, torch.arange(rows).repeat_interleave(beams))
    texts = torch.zeros(rows * beams, 1, dtype=torch.long)
    scores = torch.tensor([0.0] + [-1e9] * (beams - 1)).repeat(rows)
    for _ in range(steps):
        logits, cache = ours.decode(texts[:, -1:], cache)
        sums = (scores[:, None] + logits.log_softmax(-1)).view(rows, -1)
        best, at = sums.topk(beams)
        parents = (at // lab.vocabulary + torch.arange(rows)[:, None] * beams).flatten()
        texts = torch.cat([texts[parents], (at % lab.vocabulary).flatten()[:, None]], 1)
        scores, cache = best.flatten(), ours.select(cache, parents)
    assert torch.equal(texts.view(rows, beams, -1)[:, 0], reference)


def test_a_model_with_a_running_state_writes_and_is_selected(lab: Any) -> None:
    config = {"model_type": "mamba", "hidden_size": 32, "num_hidden_layers": 2}
    ours, tokens = lab.model(Hf(config=config), lab.info("lm")).module, lab.tokens(width=8)
    with torch.no_grad():
        whole = ours(tokens).logits
    logits, cache = ours.prefill(tokens[:, :6], 8)
    assert (logits - whole[:, 5]).abs().max() < 1e-5
    rows = torch.tensor([3, 1])
    chosen, _ = ours.decode(tokens[rows, 6:7], ours.select(cache, rows))
    logits, cache = ours.decode(tokens[:, 6:7], cache)
    assert (logits - whole[:, 6]).abs().max() < 1e-5
    assert (chosen - logits[rows]).abs().max() < 1e-6


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5"])
def test_select_repeats_and_leaves_what_there_was(lab: Any, kind: str) -> None:
    ours, tokens = sharp(lab, kind), lab.tokens(width=6)
    if kind == "t5":
        cache = ours.encode(tokens, torch.tensor([6, 4, 1, 3]), 10)
        first, cache = ours.decode(torch.zeros(4, 1, dtype=torch.long), cache)
    else:
        first, cache = ours.prefill(tokens, 10)
    last = first.argmax(-1)
    rows = torch.tensor([2, 2, 0])
    chosen = written(ours, ours.select(cache, rows), last[rows], 3)
    whole = written(ours, cache, last, 3)
    assert torch.equal(chosen, whole[rows])


def test_what_is_selected_before_anything_is_written_leaves_what_there_was(lab: Any) -> None:
    ours, start = sharp(lab, "t5"), torch.zeros(4, dtype=torch.long)
    lengths, rows = torch.tensor([6, 4, 1, 3]), torch.tensor([3, 0, 3])
    cache = ours.encode(lab.tokens(width=6), lengths, 10)
    chosen = written(ours, ours.select(cache, rows), start[:3], 4)
    assert torch.equal(chosen, written(ours, cache, start, 4)[rows])


@pytest.mark.parametrize("kind", ["gpt2", "roberta"])
def test_many_tokens_at_once_are_as_good_as_one_by_one(lab: Any, kind: str) -> None:
    ours, tokens = lab.of(kind, "lm"), lab.tokens(width=8)
    with torch.no_grad():
        whole = ours(tokens).logits[:, -1]
    _, cache = ours.prefill(tokens[:, :3], 8)
    logits, cache = ours.decode(tokens[:, 3:7], cache)
    logits, cache = ours.decode(tokens[:, 7:], cache)
    assert (logits - whole).abs().max() < 1e-6


def test_more_positions_than_there_are_is_an_error(lab: Any) -> None:
    ours, tokens = lab.of("gpt2"), lab.tokens(width=6)
    assert ours.context == 15
    with pytest.raises(ValueError, match="16 positions are more than this model's context of 15"):
        ours.prefill(tokens, 16)
    _, cache = ours.prefill(tokens, 7)
    ours.decode(tokens[:, :1], cache)
    with pytest.raises(ValueError, match="holds 7 of 7"):
        ours.decode(tokens[:, :1], cache)
    with pytest.raises(ValueError, match="18 positions"):
        ours(lab.tokens(width=18))
