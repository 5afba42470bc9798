"""Attention to a part of the row: equal to a masked reference, and linear in memory."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nlpkernel_transformer.attention import eager, sdpa
from nlpkernel_transformer.patterns import Blocks, Pattern, Span
from nlpkernel_transformer.shape import Sparse

TINY = {"layers": 2, "heads": 4, "width": 32, "vocabulary": 17, "window": 40, "init_std": 0.3}
#: Of models; rows have at most 40 positions.
PATTERNS: dict[str, dict[str, Any]] = {
    "span": {"span": 5},
    "sparse": {"sparse": Sparse(block=4, local=2, first=1)},
    "sparse, none first": {"sparse": Sparse(block=3, local=3, first=0)},
}
EACH = pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)


def _tokens(rows: int, positions: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 17, (rows, positions), generator=torch.Generator().manual_seed(seed))


def _written(pattern: dict[str, Any], causal: bool, query: int, key: int) -> bool:
    """What the documentation says that a query sees, one by one."""
    if causal and key > query:
        return False
    if "span" in pattern:
        span = pattern["span"]
        return query - key < span if causal else abs(query - key) <= span // 2
    sparse = pattern["sparse"]
    own, other = query // sparse.block, key // sparse.block
    if other < sparse.first or (own < sparse.first and not causal):
        return True
    return own - other < sparse.local if causal else abs(own - other) <= sparse.local // 2


@st.composite
def patterns(draw: st.DrawFn) -> tuple[Pattern, dict[str, Any], bool]:
    causal = draw(st.booleans())
    if draw(st.booleans()):
        span = draw(st.integers(1, 40))
        return Span(span, causal), {"span": span}, causal
    sparse = Sparse(
        block=draw(st.integers(1, 9)), local=draw(st.integers(1, 5)), first=draw(st.integers(0, 3))
    )
    return Blocks(sparse, causal), {"sparse": sparse}, causal


@settings(max_examples=80, deadline=None)
@given(
    drawn=patterns(),
    length=st.integers(1, 70),
    rows=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    documents=st.booleans(),
    seed=st.integers(0, 99),
)
def test_chunks_give_what_a_mask_of_the_whole_row_gives_and_the_same_gradients(
    drawn: Any, length: int, rows: int, kv_heads: int, group: int, documents: bool, seed: int
) -> None:
    pattern, written, causal = drawn
    generator = torch.Generator().manual_seed(seed)
    groups = (
        torch.randint(0, 3, (rows, length), generator=generator).sort(dim=1).values if documents else None
    )
    mask = torch.tensor(
        [[_written(written, causal, query, key) for key in range(length)] for query in range(length)]
    )
    seen = mask[None, None]
    if groups is not None:
        seen = seen & (groups[:, None, :, None] == groups[:, None, None, :])

    def values(heads: int) -> Tensor:
        return torch.randn(rows, heads, length, 8, generator=generator)

    inputs = values(kv_heads * group), values(kv_heads), values(kv_heads)
    ones, others = ([each.clone().requires_grad_() for each in inputs] for _ in range(2))
    found = pattern.attend(sdpa, *ones, groups, 0.0)
    expected = eager(*others, seen, 0.0)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    weight = torch.randn(expected.shape, generator=generator)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    for one, other in zip(ones, others, strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)
    assert torch.equal(
        pattern.whole(length, groups, torch.device("cpu")).expand(rows, -1, -1, -1),
        seen.expand(rows, -1, -1, -1),
    )


class Largest(TorchDispatchMode):
    """Records how many elements the largest tensor has that any operation gives."""

    number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(each, Tensor):
                self.number = max(self.number, each.untyped_storage().nbytes() // each.element_size())
        return made


def _largest(pattern: Pattern | None, length: int, documents: bool) -> int:
    groups = torch.arange(length)[None] // 100 if documents else None
    leaves = [torch.randn(1, 2, length, 8, requires_grad=True) for _ in range(3)]
    with Largest() as recorded:
        if pattern is None:
            mixed = eager(*leaves, None, 0.0)
        else:
            mixed = pattern.attend(sdpa, *leaves, groups, 0.0)
        mixed.sum().backward()
    return recorded.number


@pytest.mark.parametrize("documents", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["span", "sparse"])
def test_no_tensor_grows_with_the_square_of_the_row(kind: str, causal: bool, documents: bool) -> None:
    pattern = Span(32, causal) if kind == "span" else Blocks(Sparse(block=16, local=2, first=1), causal)
    short, long = (_largest(pattern, length, documents) for length in (1024, 2048))
    assert long < 2048 * 2048 / 8
    assert long < 2.1 * short
    assert _largest(None, 1024, False) >= 1024 * 1024


# -- in models


@EACH
@pytest.mark.parametrize("name", ["gpt", "llama"])
@pytest.mark.parametrize("length", [1, 3, 17, 23, 40])
def test_a_decoder_sees_what_the_masked_reference_sees(
    make: Any, name: str, pattern: dict[str, Any], length: int
) -> None:
    fused, reference = (
        make(name, attention=kind, **TINY, **pattern).module.eval() for kind in ("sdpa", "eager")
    )
    tokens = _tokens(2, length)
    documents = torch.arange(length).expand(2, -1) // 11
    positions = torch.arange(length).expand(2, -1) % 11
    for inputs in ({}, {"documents": documents, "positions": positions}):
        found, expected = (module(tokens, **inputs).logits for module in (fused, reference))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@EACH
@pytest.mark.parametrize("length", [3, 17, 40])
def test_an_encoder_sees_what_the_masked_reference_sees_and_no_padding(
    make: Any, pattern: dict[str, Any], length: int
) -> None:
    settings = {**TINY, **pattern, "purpose": "tokens"}
    fused, reference = (
        make("encoder", attention=kind, **settings).module.eval() for kind in ("sdpa", "eager")
    )
    tokens, lengths = _tokens(3, length), torch.tensor([length, 1, (length + 1) // 2])
    found, expected = (module(tokens, lengths).logits for module in (fused, reference))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for row, own in enumerate(lengths.tolist()):
        alone = fused(tokens[row : row + 1, :own]).logits[0]
        torch.testing.assert_close(found[row, :own], alone, atol=1e-5, rtol=1e-5)
    documents = torch.arange(length).expand(3, -1) // 11
    found, expected = (module(tokens, documents=documents).logits for module in (fused, reference))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@EACH
@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(1, 9), min_size=2, max_size=8))
def test_the_cache_gives_the_logits_of_the_full_forward(
    make: Any, pattern: dict[str, Any], cuts: list[int]
) -> None:
    module = make("llama", **TINY, **pattern).module.eval()
    ends = [end for end in itertools.accumulate(cuts) if end <= 40]
    tokens = _tokens(2, ends[-1])
    full = module(tokens).logits.detach()
    logits, cache = module.prefill(tokens[:, : ends[0]])
    for start, end in itertools.pairwise(ends):
        logits, cache = module.decode(tokens[:, start:end], cache)
    torch.testing.assert_close(logits, full[:, ends[-1] - 1], atol=1e-5, rtol=1e-5)


@EACH
def test_both_sides_of_an_encoder_decoder_have_it(make: Any, pattern: dict[str, Any]) -> None:
    fused, reference = (
        make("encoder-decoder", attention=kind, **TINY, **pattern).module.eval() for kind in ("sdpa", "eager")
    )
    tokens, lengths, target = _tokens(3, 30), torch.tensor([30, 7, 19]), _tokens(3, 25, 1)
    found, expected = (module(tokens, lengths, target=target).logits for module in (fused, reference))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    cache = fused.encode(tokens, lengths, 25)
    for place in range(25):
        logits, cache = fused.decode(target[:, place : place + 1], cache)
    torch.testing.assert_close(logits, expected[:, -1], atol=1e-5, rtol=1e-5)
    whole = make("encoder-decoder", **TINY).module.eval()(tokens, lengths, target=target).logits
    assert not torch.allclose(whole, expected, atol=1e-3)


def test_a_token_beyond_the_span_of_all_blocks_is_not_seen(make: Any) -> None:
    module = make("gpt", span=4, **TINY).module
    tokens = _tokens(1, 20)
    changed = tokens.clone()
    changed[0, 2] = (changed[0, 2] + 1) % 17
    differs = ((module(tokens).logits - module(changed).logits).abs().amax(-1)[0] > 0).tolist()
    # Two blocks of three positions each.
    assert differs == [False] * 2 + [True] * 7 + [False] * 11


def test_pairs_have_it_too(make: Any) -> None:
    for towers in ("shared", "separate"):
        made = (
            make("encoder", purpose="pairs", towers=towers, span=6, attention=kind, **TINY).module.eval()
            for kind in ("sdpa", "eager")
        )
        inputs = {"target": _tokens(2, 40, 1), "target_lengths": torch.tensor([40, 12])}
        found, expected = (module(_tokens(2, 21), torch.tensor([3, 21]), **inputs).hidden for module in made)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_span_and_sparse_do_not_go_together(component: Any) -> None:
    ((setting, message),) = component("gpt", span=8, sparse=Sparse()).check_settings()
    assert setting == "sparse"
    assert "write one of them" in message


@pytest.mark.parametrize("name", ["gpt", "encoder"])
@pytest.mark.parametrize("pattern", [{"span": 33}, {"sparse": Sparse(block=16, local=2, first=1)}])
def test_the_estimate_of_activations_is_within_15_percent_of_what_autograd_keeps(
    component: Any, make: Any, name: str, pattern: dict[str, Any]
) -> None:
    rows, window = 2, 192
    shape = component(name, **pattern)
    made = shape.shape(65, window) if name == "gpt" else shape.shape(65, window - 1, "classification", 3)
    guess = made.activation_bytes(rows, window)
    module = make(name, vocabulary=65, window=window, **pattern).module
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(_tokens(rows, window)).logits.log_softmax(-1).sum()
    real = sum(storage.nbytes() for storage in kept.values())
    assert real / 1.15 <= guess <= real * 1.15, real / guess
