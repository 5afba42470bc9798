"""The network: causality, documents, ties, recomputation, positions, outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

BOTH = pytest.mark.parametrize("name", ["gpt", "llama"])
TINY = {"layers": 2, "heads": 4, "width": 32, "vocabulary": 17, "window": 12}


def _gradients(module: torch.nn.Module, seed: int = 3, **inputs: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    logits = module(**inputs).logits
    F.cross_entropy(logits.flatten(0, 1), inputs["tokens"].flatten()).backward()
    found = {name: parameter.grad.clone() for name, parameter in module.named_parameters()}
    module.zero_grad()
    return found


@BOTH
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@settings(max_examples=15, deadline=None)
@given(at=st.integers(0, 11), seed=st.integers(0, 1000))
def test_a_token_changes_no_logits_before_it(
    make: Any, name: str, attention: str, at: int, seed: int
) -> None:
    module = make(name, attention=attention, **TINY).module
    tokens = torch.randint(0, 17, (2, 12), generator=torch.Generator().manual_seed(seed))
    changed = tokens.clone()
    changed[:, at] = (changed[:, at] + 1) % 17
    before, after = module(tokens).logits, module(changed).logits
    assert torch.equal(before[:, :at], after[:, :at])
    assert not torch.equal(before[:, at:], after[:, at:])


@BOTH
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_case_d4_packed_documents_do_not_see_each_other(make: Any, name: str, attention: str) -> None:
    module = make(name, attention=attention, **TINY).module
    documents, positions = torch.tensor([[0, 0, 0, 1, 1]]), torch.tensor([[0, 1, 2, 0, 1]])

    def logits(*tokens: int) -> torch.Tensor:
        got: torch.Tensor = module(torch.tensor([tokens]), positions=positions, documents=documents).logits
        return got

    packed = logits(5, 6, 7, 8, 9)
    first, second = module(torch.tensor([[5, 6, 7]])).logits, module(torch.tensor([[8, 9]])).logits
    torch.testing.assert_close(packed, torch.cat((first, second), 1), atol=1e-6, rtol=1e-5)
    # The loss of the pack is the weighted loss of the two alone; no label crosses the seam.
    together = F.cross_entropy(packed[0, [0, 1, 3]], torch.tensor([6, 7, 9]), reduction="sum") / 3
    alone = F.cross_entropy(first[0, :2], torch.tensor([6, 7]), reduction="sum")
    alone = (alone + F.cross_entropy(second[0, :1], torch.tensor([9]), reduction="sum")) / 3
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-6)
    assert torch.equal(packed[:, 3:], logits(1, 2, 3, 8, 9)[:, 3:])
    assert torch.equal(packed[:, :3], logits(5, 6, 7, 1, 2)[:, :3])


@BOTH
@settings(max_examples=20, deadline=None)
@given(documents=st.lists(st.integers(0, 3), min_size=12, max_size=12), seed=st.integers(0, 1000))
def test_eager_and_sdpa_give_the_same_logits_for_any_documents(
    make: Any, name: str, documents: list[int], seed: int
) -> None:
    tokens = torch.randint(0, 17, (2, 12), generator=torch.Generator().manual_seed(seed))
    numbers = torch.tensor([documents, sorted(documents)])
    one = make(name, attention="sdpa", **TINY).module(tokens, documents=numbers).logits
    other = make(name, attention="eager", **TINY).module(tokens, documents=numbers).logits
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@BOTH
@pytest.mark.parametrize("checkpointing", [1, 2, "full"])
def test_recomputation_gives_the_same_gradients_bit_for_bit(make: Any, name: str, checkpointing: Any) -> None:
    tokens = torch.randint(0, 17, (2, 12), generator=torch.Generator().manual_seed(1))
    numbers = torch.arange(12).div(5, rounding_mode="floor").expand(2, 12)
    settings_ = {**TINY, "dropout": 0.2}
    plain = _gradients(make(name, **settings_).module, tokens=tokens, documents=numbers)
    again = _gradients(
        make(name, checkpointing=checkpointing, **settings_).module, tokens=tokens, documents=numbers
    )
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[key], again[key]) for key in plain)


def test_every_kth_block_recomputes(make: Any) -> None:
    module = make("gpt", **{**TINY, "layers": 5}, checkpointing=2).module
    assert [block.recompute for block in module.blocks] == [True, False, True, False, True]


def test_dropout_acts_in_training_only(make: Any) -> None:
    module = make("gpt", **TINY, dropout=0.3).module
    tokens = torch.arange(12).unsqueeze(0)
    assert not torch.equal(module(tokens).logits, module(tokens).logits)
    module.eval()
    assert torch.equal(module(tokens).logits, module(tokens).logits)


@pytest.mark.parametrize("tie", [True, False])
def test_a_tied_head_is_one_tensor_with_the_embedding(make: Any, tie: bool) -> None:
    model = make("gpt", **TINY, tie=tie)
    module = model.module
    assert (module.head.weight is module.embedding.weight) is tie
    assert ("head.weight" in dict(module.named_parameters())) is not tie
    assert model.anatomy.ties == ((("embedding.weight", "head.weight"),) if tie else ())
    grads = _gradients(module, tokens=torch.arange(12).unsqueeze(0))
    assert grads["embedding.weight"].abs().sum() > 0


@BOTH
def test_chunked_gives_the_hidden_states_and_the_head_of_the_same_logits(make: Any, name: str) -> None:
    tokens = torch.arange(12).unsqueeze(0)
    full, chunked = make(name, **TINY).module, make(name, **TINY, logits="chunked").module
    outputs = chunked(tokens)
    assert outputs.logits is None
    assert outputs.head is chunked.head.weight
    assert torch.equal(outputs.hidden @ outputs.head.t(), full(tokens).logits)


@BOTH
def test_positions_given_or_counted_are_the_same(make: Any, name: str) -> None:
    module = make(name, **TINY).module
    tokens = torch.randint(0, 17, (3, 12))
    counted = module(tokens).logits
    given_ones = module(tokens, positions=torch.arange(12).expand(3, 12)).logits
    torch.testing.assert_close(counted, given_ones, atol=1e-6, rtol=1e-6)
    elsewhere = module(tokens, positions=torch.arange(12).flip(0).expand(3, 12)).logits
    assert not torch.allclose(counted, elsewhere, atol=1e-4)


def test_rotary_scores_depend_on_distances_only(make: Any) -> None:
    module = make("llama", **{**TINY, "window": 64}).module
    tokens = torch.randint(0, 17, (1, 12))
    here, far = torch.arange(12).unsqueeze(0), torch.arange(40, 52).unsqueeze(0)
    torch.testing.assert_close(
        module(tokens, positions=here).logits, module(tokens, positions=far).logits, atol=1e-5, rtol=1e-4
    )


@BOTH
def test_a_row_longer_than_the_context_is_refused(make: Any, name: str) -> None:
    with pytest.raises(ValueError, match="13 positions are more than this model's context of 12"):
        make(name, **TINY).module(torch.zeros(1, 13, dtype=torch.long))


def test_a_model_first_used_in_inference_mode_can_be_trained_afterwards(make: Any) -> None:
    module = make("llama", **TINY).module
    tokens = torch.arange(12).unsqueeze(0)
    with torch.inference_mode():
        module(tokens)
    assert all(gradient.isfinite().all() for gradient in _gradients(module, tokens=tokens).values())


@BOTH
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_half_precision_trains_with_autocast_and_without(make: Any, name: str, attention: str) -> None:
    tokens = torch.arange(12).unsqueeze(0)
    module = make(name, **TINY, attention=attention).module
    exact = module(tokens).logits
    with torch.autocast("cpu", torch.bfloat16):
        near = module(tokens).logits
    torch.testing.assert_close(near.float(), exact, atol=0.05, rtol=0.1)
    half = module.bfloat16()
    grads = _gradients(half, tokens=tokens)
    assert all(gradient.dtype is torch.bfloat16 and gradient.isfinite().all() for gradient in grads.values())


def _norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    centred = x if bias is None else x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight + (
        0 if bias is None else bias
    )


def _turn(x: torch.Tensor, base: float) -> torch.Tensor:
    """Pairs (i, i + half) of x [positions, head width] as complex numbers, turned by position * base^(-i / half)."""
    half = x.shape[1] // 2
    angles = torch.arange(len(x))[:, None] * base ** (-torch.arange(half) / half)
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), 1)


@BOTH
def test_the_network_is_its_equations(make: Any, name: str) -> None:
    """One row, head by head, from the weights alone: pre-normalised blocks, biases, rotation, gates, grouped heads."""
    gpt = name == "gpt"
    module = make(name, **TINY, bias=gpt, init_std=0.2, **({} if gpt else {"rope_base": 100.0})).module
    w = {key: value.detach() for key, value in module.state_dict().items()}
    for key in w:
        if w[key].dim() == 1:
            w[key].uniform_(-0.5, 1.5)
    tokens = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    heads, kv_heads, width = 4, 4 if gpt else 2, 8

    def linear(x: torch.Tensor, key: str) -> torch.Tensor:
        return x @ w[f"{key}.weight"].T + w.get(f"{key}.bias", torch.zeros(()))

    def norm(x: torch.Tensor, key: str) -> torch.Tensor:
        return _norm(x, w[f"{key}.weight"], w.get(f"{key}.bias"))

    x = w["embedding.weight"][tokens]
    if gpt:
        x = x + w["positions.weight"][:8]
    future = torch.full((8, 8), -torch.inf).triu(1)
    for at in range(2):
        qkv = linear(norm(x, f"blocks.{at}.attention_norm"), f"blocks.{at}.attention.qkv")
        pieces = qkv.split(width, 1)
        mixed = []
        for head in range(heads):
            q, k = pieces[head], pieces[heads + head * kv_heads // heads]
            if not gpt:
                q, k = _turn(q, 100.0), _turn(k, 100.0)
            chances = (q @ k.T / width**0.5 + future).softmax(1)
            mixed.append(chances @ pieces[heads + kv_heads + head * kv_heads // heads])
        x = x + linear(torch.cat(mixed, 1), f"blocks.{at}.attention.out")
        up = linear(norm(x, f"blocks.{at}.mlp_norm"), f"blocks.{at}.mlp.up")
        if gpt:
            hidden = up * (1 + torch.erf(up / 2**0.5)) / 2
        else:
            gate, factor = up.chunk(2, 1)
            hidden = gate * torch.sigmoid(gate) * factor
        x = x + linear(hidden, f"blocks.{at}.mlp.down")
    logits = norm(x, "norm") @ w["head.weight"].T
    torch.testing.assert_close(module(tokens[None]).logits[0], logits, atol=1e-4, rtol=1e-4)
