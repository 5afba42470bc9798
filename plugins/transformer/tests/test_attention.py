"""The fused attention against the formula."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nlpkernel_transformer.attention import eager, sdpa

Case = tuple[Tensor, Tensor, Tensor, Tensor | None]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Queries, keys, values of random shapes, some grouped, some with documents."""
    rows, positions = draw(st.integers(1, 3)), draw(st.integers(1, 17))
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    width = draw(st.sampled_from([1, 2, 5, 8, 16, 32]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def values(heads: int) -> Tensor:
        return torch.randn(rows, heads, positions, width, generator=generator)

    mask = None
    if draw(st.booleans()):
        documents = torch.randint(0, 3, (rows, positions), generator=generator)
        mask = (documents[:, :, None] == documents[:, None, :]).tril().unsqueeze(1)
    return values(kv_heads * group), values(kv_heads), values(kv_heads), mask


@settings(max_examples=60, deadline=None)
@given(cases())
def test_sdpa_gives_what_the_formula_gives_and_the_same_gradients(case: Case) -> None:
    *inputs, mask = case
    given_ones, again = (
        [tensor.clone().requires_grad_() for tensor in inputs],
        [tensor.clone().requires_grad_() for tensor in inputs],
    )
    fused, plain = sdpa(*given_ones, mask, 0.0), eager(*again, mask, 0.0)
    torch.testing.assert_close(fused, plain, atol=1e-5, rtol=1e-5)
    weight = torch.randn_like(plain)
    (fused * weight).sum().backward()
    (plain * weight).sum().backward()
    for one, other in zip(given_ones, again, strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)


def test_the_formula_is_the_definition_written_with_loops() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 5, 3), torch.randn(1, 2, 5, 3), torch.randn(1, 2, 5, 3)
    got = eager(q, k, v, None, 0.0)
    for head in range(4):
        for here in range(5):
            scores = [
                float(q[0, head, here] @ k[0, head // 2, there]) / math.sqrt(3) for there in range(here + 1)
            ]
            total = sum(map(math.exp, scores))
            mixed = sum(math.exp(score) / total * v[0, head // 2, at] for at, score in enumerate(scores))
            torch.testing.assert_close(got[0, head, here], mixed, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("attend", [sdpa, eager])
def test_a_single_query_sees_all_keys(attend: object) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    everything = torch.ones(1, 6, dtype=torch.bool)
    torch.testing.assert_close(attend(q, k, v, None, 0.0), attend(q, k, v, everything, 0.0))  # type: ignore[operator]


def test_bfloat16_on_the_cpu_is_trained_through_float32_also_under_autocast() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, heads, 9, 8).bfloat16() for heads in (4, 2, 2)]
    exact = sdpa(*(tensor.float() for tensor in inputs), None, 0.0)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        got = sdpa(*leaves, None, 0.0)
    assert got.dtype is torch.bfloat16
    assert torch.equal(got, exact.bfloat16())
    got.sum().backward()
    assert all(leaf.grad is not None and leaf.grad.dtype is torch.bfloat16 for leaf in leaves)


@pytest.mark.parametrize("attend", [sdpa, eager])
def test_dropout_drops_and_keeps_the_mean(attend: object) -> None:
    torch.manual_seed(0)
    q = k = torch.zeros(1, 1, 64, 4)
    v = torch.ones(1, 1, 64, 4)
    outs = torch.stack([attend(q, k, v, None, 0.5)[0, 0, -1, 0] for _ in range(300)])  # type: ignore[operator]
    assert outs.std() > 0.05
    assert abs(float(outs.mean()) - 1.0) < 0.05
