"""Classes of tokens, and pairs of texts: each against the same written plainly."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.hookspecs.data import DataInfo
from nlpkernel.hookspecs.everywhere import Facts

TINY = {"layers": 2, "heads": 4, "width": 32, "vocabulary": 17, "window": 12, "init_std": 0.3}
PAIRS = {**TINY, "purpose": "pairs"}
TOWERS = pytest.mark.parametrize("towers", ["shared", "separate"])


def _tokens(rows: int, positions: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 17, (rows, positions), generator=torch.Generator().manual_seed(seed))


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# -- classes of tokens


def test_each_token_has_the_scores_that_a_linear_layer_gives_its_state(make: Any) -> None:
    module = make("encoder", purpose="tokens", labels=5, **TINY).module.eval()
    tokens, lengths = _tokens(3, 10), torch.tensor([10, 4, 7])
    logits = module(tokens, lengths).logits
    assert logits.shape == (3, 10, 5)
    states = module.states(tokens, lengths)
    expected = torch.einsum("rpw,cw->rpc", states, module.head.weight) + module.head.bias
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    for row, length in enumerate(lengths.tolist()):
        alone = module(tokens[row : row + 1, :length]).logits[0]
        torch.testing.assert_close(logits[row, :length], alone, atol=1e-5, rtol=1e-5)


def test_classes_of_tokens_are_those_of_bert_in_transformers(make: Any) -> None:
    bert = pytest.importorskip("transformers.models.bert.modeling_bert")
    config = bert.BertConfig(
        vocab_size=17, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_labels=5
    )
    other = bert.BertForTokenClassification(config).eval()
    module = make("encoder", purpose="tokens", labels=5, **TINY).module
    module.head.load_state_dict(other.classifier.state_dict())
    states = torch.randn(2, 6, 32)
    torch.testing.assert_close(module.head(states), other.classifier(other.dropout(states)))


def test_dropout_is_before_the_classes_of_tokens(make: Any) -> None:
    module = make("encoder", purpose="tokens", dropout=0.5, **TINY).module
    seen: list[torch.Tensor] = []
    module.head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    module(_tokens(2, 8))
    assert 0.3 < float((seen[0] == 0).float().mean()) < 0.7


# -- pairs


@TOWERS
@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=4),
    pool=st.sampled_from(["mean", "first", "max"]),
    order=st.sampled_from(["pre", "post"]),
    positions=st.sampled_from(["learned", "rotary", "sinusoidal"]),
)
def test_each_text_has_the_vector_that_it_has_alone(
    make: Any, towers: str, lengths: list[tuple[int, int]], **changes: Any
) -> None:
    """And so padding changes nothing."""
    module = make("encoder", towers=towers, **PAIRS, **changes).module.eval()
    reference = make("encoder", **TINY, **changes).module.eval()
    texts = _tokens(len(lengths), 9), _tokens(len(lengths), 12, 1)
    first, second = torch.tensor(lengths).unbind(1)
    outputs = module(texts[0], first, target=texts[1], target_lengths=second)
    assert outputs.hidden.shape == (len(lengths), 2, 32)
    assert outputs.head is None
    for which, start in enumerate(("", "target_" if towers == "separate" else "")):
        own = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in reference.named_parameters():
                if start + name in own:
                    value.copy_(own[start + name])
        for row, length in enumerate(each[which] for each in lengths):
            states = reference.states(texts[which][row : row + 1, :length])[0]
            pool = {"mean": states.mean(0), "first": states[0], "max": states.amax(0)}[changes["pool"]]
            torch.testing.assert_close(outputs.hidden[row, which], pool, atol=1e-5, rtol=1e-5)


def test_without_lengths_all_of_both_texts_counts(make: Any) -> None:
    module = make("encoder", **PAIRS).module.eval()
    texts = _tokens(2, 5), _tokens(2, 9, 1)
    full = module(texts[0], torch.tensor([5, 5]), target=texts[1], target_lengths=torch.tensor([9, 9]))
    assert torch.equal(module(texts[0], target=texts[1]).hidden, full.hidden)
    with pytest.raises(ValueError, match="13 positions"):
        module(texts[0], target=_tokens(2, 13))


@TOWERS
@pytest.mark.parametrize("order", ["pre", "post"])
def test_towers_are_described_in_the_order_of_the_forward_pass(
    structure: Any, towers: str, order: str
) -> None:
    model = structure("encoder", towers=towers, order=order, scale=True, **PAIRS)
    names = [key for key, _ in model.module.named_parameters()]
    assert set(model.anatomy.parameters) == set(names)
    assert model.anatomy.head is None
    assert not model.anatomy.ties
    entry = ["embedding", "positions", *(["embedding_norm"] if order == "post" else [])]
    behind = ["norm"] if order == "pre" else []
    second = [[f"target_{name}" for name in each] for each in (entry, ["blocks", *behind])]
    if towers == "shared":
        second = [[], []]
    tops = [name.partition(".")[0] for name in names]
    assert list(dict.fromkeys(tops)) == [*entry, *second[0], "blocks", *behind, *second[1], "scale"]
    blocks = [model.module.get_submodule(path) for path in model.anatomy.blocks]
    assert blocks == [*model.module.blocks, *getattr(model.module, "target_blocks", ())]
    for key, parameter in model.module.named_parameters():
        facts = model.anatomy.parameters[key]
        assert facts.decay == (parameter.dim() >= 2), key
        assert ("bias" in facts.tags) == key.endswith("bias")
        other = model.anatomy.parameters.get(key.removeprefix("target_"), facts)
        assert facts == other


def test_blocks_of_separate_towers_hand_on_both_texts(make: Any) -> None:
    """What the anatomy promises, and a pipeline goes by."""
    model = make("encoder", towers="separate", **PAIRS)
    called: list[str] = []
    for path in model.anatomy.blocks:

        def hook(block: Any, args: Any, path: str = path) -> None:
            called.append(path)
            assert args[0].shape == (4, 9, 32)
            assert not any(each.requires_grad for each in args[1:] if isinstance(each, torch.Tensor))

        model.module.get_submodule(path).register_forward_pre_hook(hook)
    model.module(_tokens(2, 9), target=_tokens(2, 5))
    assert tuple(called) == model.anatomy.blocks


def test_the_scale_begins_where_clips_does_is_learnt_and_has_an_end(make: Any) -> None:
    module = make("encoder", scale=True, **PAIRS).module
    scale = module(_tokens(2, 5), target=_tokens(2, 5)).head
    assert scale.shape == ()
    assert scale.item() == pytest.approx(1 / 0.07)
    scale.backward()
    assert float(module.scale.weight.grad) == pytest.approx(1 / 0.07)
    with torch.no_grad():
        module.scale.weight.fill_(math.log(1000))
    assert module(_tokens(2, 5), target=_tokens(2, 5)).head.item() == 100


@pytest.mark.parametrize("recompute", ["none", "full"])
@TOWERS
def test_recomputation_changes_no_gradient(make: Any, towers: str, recompute: str) -> None:
    def gradients(checkpointing: str) -> list[torch.Tensor]:
        module = make("encoder", dropout=0.5, checkpointing=checkpointing, towers=towers, **PAIRS).module
        torch.manual_seed(3)
        module(_tokens(2, 12), target=_tokens(2, 8, 1)).hidden.square().sum().backward()
        return [parameter.grad for parameter in module.parameters()]

    for one, other in zip(gradients(recompute), gradients("none"), strict=True):
        torch.testing.assert_close(one, other)


@settings(max_examples=30, deadline=None)
@given(
    heads=st.integers(1, 3),
    half=st.integers(1, 4),
    purpose=st.sampled_from(["tokens", "pairs"]),
    towers=st.sampled_from(["shared", "separate"]),
    order=st.sampled_from(["pre", "post"]),
    positions=st.sampled_from(["learned", "rotary", "sinusoidal"]),
    norm=st.sampled_from(["layer", "rms"]),
    bias=st.booleans(),
    scale=st.booleans(),
)
def test_the_number_of_parameters_follows_from_any_settings(
    component: Any, structure: Any, heads: int, half: int, purpose: Any, **rest: Any
) -> None:
    rest.update(layers=2, heads=heads, width=heads * 2 * half)
    shape = component("encoder", **rest).shape(11, 6, purpose, 3)
    assert (
        _count(structure("encoder", vocabulary=11, window=7, purpose=purpose, **rest).module)
        == shape.parameters()
    )


@pytest.mark.parametrize("changes", [{"purpose": "tokens"}, {"towers": "shared"}, {"towers": "separate"}])
@pytest.mark.parametrize("order", ["pre", "post"])
def test_the_estimate_of_activations_is_within_15_percent_of_what_autograd_keeps(
    component: Any, make: Any, changes: dict[str, Any], order: str
) -> None:
    rows, window = 3, 48
    purpose = changes.get("purpose", "pairs")
    given = {name: value for name, value in changes.items() if name != "purpose"}
    facts = Facts(vocabulary=65, window=window - 1, micro=rows, task=purpose)
    estimate = component("encoder", order=order, **given).estimate(facts)
    module = make("encoder", vocabulary=65, window=window, order=order, purpose=purpose, **given).module
    assert estimate.blocks == 2 * (1 + (changes.get("towers") == "separate"))
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens, lengths = _tokens(rows, window), torch.tensor([window, 20, 31])
    more = {} if purpose == "tokens" else {"target": _tokens(rows, window, 1), "target_lengths": lengths}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = module(tokens, lengths, **more)
        (outputs.hidden if outputs.logits is None else outputs.logits).logsumexp(-1).sum()
    real = sum(storage.nbytes() for storage in kept.values())
    assert real / 1.15 <= estimate.activation_bytes <= real * 1.15


def test_the_head_is_what_the_task_needs(component: Any) -> None:
    def made(task: str) -> Any:
        info = DataInfo(
            task=task, vocabulary=50, window=24, fingerprint="", splits={}, labels=("a", "b", "c")
        )
        with torch.device("meta"):
            return component("encoder").create_model(info).module

    assert made("tokens").head.out_features == 3
    assert not hasattr(made("pairs"), "head")
    assert made("pairs").context == 25
