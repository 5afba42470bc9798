"""The network against torch's own layers, padding, documents, the state of generation, anatomy and sizes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nlpkernel.engine.materialise import generator_for
from nlpkernel.hookspecs.everywhere import Facts

TINY = {"layers": 2, "width": 16, "init_std": 0.5}
CELLS = pytest.mark.parametrize("cell", ["lstm", "gru"])
PURPOSES = pytest.mark.parametrize("purpose", ["lm", "classification", "tokens"])


def _tokens(rows: int, positions: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 17, (rows, positions), generator=torch.Generator().manual_seed(seed))


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _reference(module: Any, cell: str, both: bool) -> nn.Module:
    """torch's own layers with the same weights."""
    kind = nn.LSTM if cell == "lstm" else nn.GRU
    made = kind(16, 8 if both else 16, len(module.layers), batch_first=True, bidirectional=both)
    with torch.no_grad():
        for index, layer in enumerate(module.layers):
            for suffix, direction in (("", layer.ahead), ("_reverse", layer.back)):
                for name, value in direction.named_parameters() if direction is not None else ():
                    getattr(made, f"{name}_l{index}{suffix}").copy_(value)
    return made


@CELLS
def test_a_language_model_has_the_states_of_torchs_layers(make: Any, cell: str) -> None:
    module = make(cell=cell, **TINY).module
    tokens = _tokens(3, 9)
    states, _ = _reference(module, cell, False)(module.embedding(tokens))
    torch.testing.assert_close(module(tokens).logits, module.head(states), atol=1e-6, rtol=1e-5)


@CELLS
@pytest.mark.parametrize("both", [True, False])
def test_tokens_have_the_states_of_torchs_layers_over_packed_rows(make: Any, cell: str, both: bool) -> None:
    module = make("tokens", cell=cell, bidirectional=both, **TINY).module
    tokens, lengths = _tokens(3, 9), torch.tensor([4, 9, 1])
    packed = nn.utils.rnn.pack_padded_sequence(
        module.embedding(tokens), lengths, batch_first=True, enforce_sorted=False
    )
    states, _ = nn.utils.rnn.pad_packed_sequence(_reference(module, cell, both)(packed)[0], batch_first=True)
    real = torch.arange(9) < lengths[:, None]
    logits = module(tokens, lengths).logits
    torch.testing.assert_close(logits[real], module.head(states)[real], atol=1e-6, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    purpose=st.sampled_from(["classification", "tokens"]),
    cell=st.sampled_from(["lstm", "gru"]),
    bidirectional=st.booleans(),
    pool=st.sampled_from(["mean", "max", "last"]),
)
def test_padding_is_told_by_length_and_changes_nothing(
    make: Any, lengths: list[int], purpose: str, **changes: Any
) -> None:
    module = make(purpose, **changes, **TINY).module
    tokens = _tokens(len(lengths), 12)
    together = module(tokens, torch.tensor(lengths)).logits
    for row, length in enumerate(lengths):
        alone = module(tokens[row : row + 1, :length]).logits[0]
        found = together[row] if purpose == "classification" else together[row, :length]
        torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "max", "last"])
def test_a_row_of_padding_gives_numbers(make: Any, pool: str) -> None:
    module = make("classification", pool=pool, **TINY).module
    logits = module(_tokens(2, 5), torch.tensor([5, 0])).logits
    assert torch.isfinite(logits).all()
    logits.sum().backward()
    assert all(torch.isfinite(each.grad).all() for each in module.parameters())


def test_with_two_directions_every_token_changes_the_states_of_all(make: Any) -> None:
    module = make("tokens", **TINY).module
    tokens = _tokens(1, 7)
    changed = tokens.clone()
    changed[0, 3] = (changed[0, 3] + 1) % 17
    assert ((module(tokens).logits - module(changed).logits).abs().amax(-1) > 0).all()
    forward = make("lm", **TINY).module
    differs = ((forward(tokens).logits - forward(changed).logits).abs().amax(-1) > 0)[0]
    assert differs.tolist() == [False] * 3 + [True] * 4


@CELLS
@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=3))
def test_case_d4_documents_that_share_a_row_begin_from_nothing(
    make: Any, cell: str, cuts: list[list[int]]
) -> None:
    module = make(cell=cell, **TINY).module
    width = max(map(sum, cuts))
    cuts = [[*row, width - sum(row)] if sum(row) < width else row for row in cuts]
    documents = torch.tensor(
        [[number for number, size in enumerate(row) for _ in range(size)] for row in cuts]
    )
    tokens = _tokens(len(cuts), width)
    logits = module(tokens, documents=documents).logits
    for row, sizes in enumerate(cuts):
        for end, size in zip(itertools.accumulate(sizes), sizes, strict=True):
            alone = module(tokens[row : row + 1, end - size : end]).logits[0]
            torch.testing.assert_close(logits[row, end - size : end], alone, atol=1e-5, rtol=1e-5)


@CELLS
@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 6), min_size=1, max_size=6), rows=st.integers(1, 3))
def test_prefill_and_decode_give_the_logits_of_the_full_forward(
    make: Any, cell: str, cuts: list[int], rows: int
) -> None:
    module = make(cell=cell, **TINY).module.eval()
    ends = list(itertools.accumulate(cuts))
    tokens = _tokens(rows, ends[-1])
    full = module(tokens).logits.detach()
    logits, cache = module.prefill(tokens[:, : ends[0]], 40)
    torch.testing.assert_close(logits, full[:, ends[0] - 1], atol=1e-5, rtol=1e-5)
    for start, end in itertools.pairwise(ends):
        logits, cache = module.decode(tokens[:, start:end], cache)
        torch.testing.assert_close(logits, full[:, end - 1], atol=1e-5, rtol=1e-5)
    assert cache.length == ends[-1]


@CELLS
def test_selected_rows_go_on_as_those_they_come_from_and_leave_them_alone(make: Any, cell: str) -> None:
    module, rows = make(cell=cell, **TINY).module.eval(), [2, 0, 2, 1]
    tokens = _tokens(3, 6)
    _, cache = module.prefill(tokens[:, :5])
    picked, _ = module.decode(tokens[rows, 5:], module.select(cache, torch.tensor(rows)))
    full = module(tokens).logits[:, -1]
    torch.testing.assert_close(picked, full[rows], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(module.decode(tokens[:, 5:], cache)[0], full, atol=1e-5, rtol=1e-5)


@PURPOSES
def test_dropout_is_in_training_alone(make: Any, purpose: str) -> None:
    module = make(purpose, dropout=0.5, **TINY).module
    assert not torch.equal(module(_tokens(2, 6)).logits, module(_tokens(2, 6)).logits)
    module.eval()
    assert torch.equal(module(_tokens(2, 6)).logits, module(_tokens(2, 6)).logits)


# -- anatomy and sizes


@CELLS
@PURPOSES
def test_every_parameter_is_described_in_the_order_of_the_forward_pass(
    structure: Any, cell: str, purpose: str
) -> None:
    model = structure(purpose, cell=cell, **TINY)
    names = [name for name, _ in model.module.named_parameters()]
    assert set(model.anatomy.parameters) == set(names)
    assert list(dict.fromkeys(name.partition(".")[0] for name in names)) == ["embedding", "layers", "head"]
    assert [model.module.get_submodule(path) for path in model.anatomy.blocks] == list(model.module.layers)
    assert model.anatomy.ties == ((("embedding.weight", "head.weight"),) if purpose == "lm" else ())
    for name, parameter in model.module.named_parameters():
        facts = model.anatomy.parameters[name]
        assert parameter.is_meta
        assert facts.decay == (parameter.dim() == 2) == ("bias" not in facts.tags)
        assert facts.role == "replicate" or name.partition(".")[0] in ("embedding", "head")


@CELLS
@PURPOSES
def test_first_values_follow_from_seed_and_name(make: Any, structure: Any, cell: str, purpose: str) -> None:
    expected = dict(make(purpose, seed=7, cell=cell, **TINY).module.named_parameters())
    model = structure(purpose, cell=cell, **TINY)
    for name in sorted(expected, reverse=True):
        tensor = torch.full(expected[name].shape, torch.nan)
        model.initialise(name, tensor, generator_for(7, name))
        assert torch.equal(tensor, expected[name])
    with pytest.raises(KeyError):
        model.initialise("layers.0.adapter", torch.empty(2), torch.Generator())


def test_first_values_are_what_they_are_said_to_be(make: Any) -> None:
    module = make(layers=1, width=128, init_std=0.05, vocabulary=400).module
    ahead = module.layers[0].ahead
    assert float(ahead.weight_hh.detach().abs().max()) == pytest.approx(128**-0.5, rel=0.01)
    assert float(module.embedding.weight.detach().std()) == pytest.approx(0.05, rel=0.05)
    bias = ahead.bias_ih.detach()
    # The gates are input, forget, cell, output.
    assert torch.equal(bias.view(4, 128).unique(dim=1).flatten(), torch.tensor([0.0, 1.0, 0.0, 0.0]))
    assert not ahead.bias_hh.any()
    assert not module.head.bias.any()
    assert not make(layers=1, width=128, cell="gru").module.layers[0].ahead.bias_ih.any()


@settings(max_examples=30, deadline=None)
@given(
    layers=st.integers(1, 3),
    half=st.integers(1, 8),
    purpose=st.sampled_from(["lm", "classification", "tokens"]),
    cell=st.sampled_from(["lstm", "gru"]),
    bidirectional=st.booleans(),
    tie=st.booleans(),
)
def test_the_number_of_parameters_follows_from_any_settings(
    component: Any, structure: Any, half: int, purpose: str, **rest: Any
) -> None:
    rest["width"] = 2 * half
    assert (
        _count(structure(purpose, **rest).module) == component(**rest).shape(17, 12, purpose, 3).parameters()
    )


@CELLS
@PURPOSES
def test_the_estimate_of_activations_is_within_a_quarter_of_what_autograd_keeps(
    component: Any, make: Any, cell: str, purpose: str
) -> None:
    rows, window = 4, 40
    guess = component(cell=cell).estimate(Facts(vocabulary=65, window=window, micro=rows, task=purpose))
    module = make(purpose, vocabulary=65, window=window, cell=cell).module
    assert guess.parameters == _count(module) - (0 if purpose == "lm" else 3 * 129)
    assert (guess.blocks, guess.cuts) == (2, 1)
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
    assert real / 1.25 <= guess.activation_bytes <= real * 1.25, real / guess.activation_bytes
