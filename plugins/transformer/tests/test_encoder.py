"""The encoder: what a position sees, padding, heads, sizes, and equality with transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.components import PRESETS
from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.data import DataInfo
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_transformer.component import Encoder, Gpt

TINY = {"layers": 2, "heads": 4, "width": 32, "vocabulary": 17, "window": 12}
PURPOSES = pytest.mark.parametrize("purpose", ["classification", "mlm"])
ORDERS = pytest.mark.parametrize("order", ["pre", "post"])


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _tokens(rows: int = 2, positions: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 17, (rows, positions), generator=torch.Generator().manual_seed(seed))


@ORDERS
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_every_token_changes_the_states_of_all(make: Any, order: str, attention: str) -> None:
    module = make("encoder", order=order, attention=attention, **TINY).module
    tokens = _tokens()
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 17
    assert ((module.states(tokens) - module.states(changed)).abs().amax(dim=-1) > 0).all()


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    purpose=st.sampled_from(["classification", "mlm"]),
    order=st.sampled_from(["pre", "post"]),
    pool=st.sampled_from(["mean", "first", "max"]),
    attention=st.sampled_from(["sdpa", "eager"]),
    positions=st.sampled_from(["learned", "rotary"]),
)
def test_padding_is_told_by_length_and_changes_nothing(make: Any, lengths: list[int], **changes: Any) -> None:
    module = make("encoder", **changes, **TINY).module.eval()
    tokens = _tokens(len(lengths))
    together = module(tokens, torch.tensor(lengths)).logits
    for row, length in enumerate(lengths):
        alone = module(tokens[row : row + 1, :length]).logits[0]
        found = together[row] if changes["purpose"] == "classification" else together[row, :length]
        torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-5)


@PURPOSES
@pytest.mark.parametrize("pool", ["mean", "first", "max"])
def test_a_row_of_padding_gives_numbers_and_no_gradient_that_is_none(
    make: Any, purpose: str, pool: str
) -> None:
    module = make("encoder", purpose=purpose, pool=pool, **TINY).module
    logits = module(_tokens(), torch.tensor([5, 0])).logits
    assert torch.isfinite(logits).all()
    logits[0].sum().backward()
    assert all(torch.isfinite(each.grad).all() for each in module.parameters() if each.grad is not None)


def test_only_the_positions_that_are_asked_for_get_scores(make: Any) -> None:
    module = make("encoder", purpose="mlm", **TINY).module
    tokens, at = _tokens(), torch.tensor([[3, 0], [11, 5]])
    whole, asked = module(tokens).logits, module(tokens, at=at).logits
    assert whole.shape == (2, 12, 17)
    torch.testing.assert_close(asked, torch.stack([whole[0, [3, 0]], whole[1, [11, 5]]]))


def test_case_d4_packed_documents_do_not_see_each_other(make: Any) -> None:
    module = make("encoder", purpose="mlm", **TINY).module
    documents, positions = torch.tensor([[0, 0, 0, 1, 1]]), torch.tensor([[0, 1, 2, 0, 1]])
    packed = module(torch.tensor([[5, 6, 7, 8, 9]]), positions=positions, documents=documents).logits
    alone = [module(torch.tensor([each])).logits for each in ([5, 6, 7], [8, 9])]
    torch.testing.assert_close(packed, torch.cat(alone, 1), atol=1e-6, rtol=1e-5)


def test_rows_longer_than_the_context_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="13 positions"):
        make("encoder", **TINY).module(_tokens(1, 13))


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_dropout_is_before_the_classes_too_and_recomputation_changes_no_gradient(
    make: Any, recompute: str
) -> None:
    def gradients(checkpointing: str) -> list[torch.Tensor]:
        module = make("encoder", dropout=0.5, checkpointing=checkpointing, **TINY).module
        torch.manual_seed(3)
        module(_tokens(), torch.tensor([12, 4])).logits.square().sum().backward()
        return [parameter.grad for parameter in module.parameters()]

    for one, other in zip(gradients(recompute), gradients("none"), strict=True):
        torch.testing.assert_close(one, other)
    module = make("encoder", dropout=0.5, **TINY).module
    assert not torch.equal(module(_tokens()).logits, module(_tokens()).logits)
    module.eval()
    assert torch.equal(module(_tokens()).logits, module(_tokens()).logits)


# -- anatomy and sizes


@PURPOSES
@ORDERS
@pytest.mark.parametrize("bias", [True, False])
def test_every_parameter_is_described_and_nothing_else(
    structure: Any, purpose: str, order: str, bias: bool
) -> None:
    model = structure("encoder", purpose=purpose, order=order, bias=bias, **TINY)
    assert set(model.anatomy.parameters) == {key for key, _ in model.module.named_parameters()}
    for key, parameter in model.module.named_parameters():
        facts = model.anatomy.parameters[key]
        assert facts.decay == (parameter.dim() >= 2), key
        assert ("bias" in facts.tags) == key.endswith("bias")
    tied = purpose == "mlm"
    assert model.anatomy.ties == ((("embedding.weight", "head.weight"),) if tied else ())
    assert (model.module.head.weight is model.module.embedding.weight) == tied


@ORDERS
def test_what_is_used_first_is_registered_first(structure: Any, order: str) -> None:
    names = [
        name.partition(".")[0]
        for name, _ in structure("encoder", order=order, **TINY).module.named_parameters()
    ]
    behind = ["norm"] if order == "pre" else []
    before = ["embedding_norm"] if order == "post" else []
    assert list(dict.fromkeys(names)) == [
        "embedding",
        "positions",
        *before,
        "blocks",
        *behind,
        "dense",
        "head",
    ]


@ORDERS
def test_first_values_are_narrower_only_with_norms_first(make: Any, order: str) -> None:
    model = make("encoder", order=order, layers=8, heads=4, width=128, vocabulary=50, window=8, init_std=0.05)
    std = float(model.module.blocks[0].mlp.down.weight.detach().std())
    assert std == pytest.approx(0.05 / 4 if order == "pre" else 0.05, rel=0.05)
    assert float(model.module.head.weight.detach().std()) == pytest.approx(0.05, rel=0.1)


def test_bert_base_has_its_published_number_of_parameters(structure: Any) -> None:
    model = structure("encoder", "base", order="post", vocabulary=30522, window=512, labels=2)
    # 109,482,240 with two rows of token types, which this has not; and the classes.
    assert _count(model.module) == 109_482_240 - 2 * 768 + 2 * 769


@pytest.mark.parametrize("preset", ["nano", "mini", "small", "base"])
@PURPOSES
def test_the_estimate_names_the_parameters_of_the_real_model(
    component: Any, structure: Any, preset: str, purpose: str
) -> None:
    made = component("encoder", preset)
    assert preset in getattr(Encoder, PRESETS)
    facts = made.estimate(Facts(vocabulary=1000, window=95, micro=4, task=purpose))
    real = _count(structure("encoder", preset, vocabulary=1000, window=96, purpose=purpose, labels=5).module)
    classes = 5 * (made.width + 1) if purpose == "classification" else 0
    assert facts.parameters == real - classes


@settings(max_examples=40, deadline=None)
@given(
    heads=st.integers(1, 3),
    half=st.integers(1, 4),
    hidden=st.none() | st.integers(1, 40),
    labels=st.integers(2, 5),
    purpose=st.sampled_from(["classification", "mlm"]),
    order=st.sampled_from(["pre", "post"]),
    positions=st.sampled_from(["learned", "rotary"]),
    norm=st.sampled_from(["layer", "rms"]),
    activation=st.sampled_from(["gelu", "swiglu"]),
    bias=st.booleans(),
    tie=st.booleans(),
)
def test_the_number_of_parameters_follows_from_any_settings(
    component: Any, structure: Any, heads: int, half: int, labels: int, purpose: Any, **rest: Any
) -> None:
    rest.update(layers=2, heads=heads, width=heads * 2 * half)
    shape = component("encoder", **rest).shape(11, 6, purpose, labels)
    real = structure("encoder", vocabulary=11, window=7, purpose=purpose, labels=labels, **rest).module
    assert _count(real) == shape.parameters()


@PURPOSES
@ORDERS
@pytest.mark.parametrize("changes", [{}, {"dropout": 0.1}, {"attention": "eager"}])
def test_the_estimate_of_activations_is_within_15_percent_of_what_autograd_keeps(
    component: Any, make: Any, purpose: str, order: str, changes: dict[str, Any]
) -> None:
    rows, window = 3, 48
    facts = Facts(vocabulary=65, window=window - 1, micro=rows, task=purpose)
    guess = component("encoder", order=order, **changes).estimate(facts).activation_bytes
    module = make("encoder", vocabulary=65, window=window, purpose=purpose, order=order, **changes).module
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens, lengths = _tokens(rows, window), torch.tensor([window, 20, 31])
    at = None if purpose == "classification" else _tokens(rows, 8)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = module(tokens, lengths, at).logits.flatten(0, -2)
        F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64))
    real = sum(storage.nbytes() for storage in kept.values())
    assert real / 1.15 <= guess <= real * 1.15


# -- which task


def _info(task: str) -> DataInfo:
    return DataInfo(task=task, vocabulary=50, window=24, fingerprint="", splits={}, labels=("a", "b"))


def test_the_head_is_what_the_task_needs(component: Any) -> None:
    with torch.device("meta"):
        classes = component("encoder").create_model(_info("classification")).module
        masked = component("encoder").create_model(_info("mlm")).module
    assert (classes.head.out_features, masked.head.out_features) == (2, 50)
    # An encoder reads the token, too, that a decoder only predicts.
    assert classes.context == masked.context == 25


def test_a_task_without_a_head_is_refused_with_what_to_use(component: Any) -> None:
    with pytest.raises(PlanError, match=r"TRF006 an encoder has no head for the task 'lm'.*use = .gpt"):
        component("encoder").create_model(_info("lm"))
    for task in ("classification", "mlm"):
        with pytest.raises(PlanError, match=f"TRF006 a decoder has no head for the task '{task}'.*encoder"):
            component("gpt").create_model(_info(task))
    assert "will stop" in component("encoder").estimate(Facts(task="lm")).notes[0]
    assert not Gpt(**getattr(Gpt, PRESETS)["nano"]).estimate(Facts(task="lm")).notes
    with pytest.raises(PlanError, match="TRF001 context is 24, and the data has rows of 25 tokens"):
        component("encoder", context=24).create_model(_info("mlm"))


# -- equality with another implementation


@pytest.fixture(scope="module")
def bert() -> Any:
    return pytest.importorskip("transformers.models.bert.modeling_bert")


def _config(**changes: Any) -> Any:
    from transformers.models.bert.configuration_bert import BertConfig

    return BertConfig(
        vocab_size=65,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=20,
        type_vocab_size=2,
        layer_norm_eps=1e-5,
        **changes,
    )


SAME = {"layers": 3, "heads": 4, "width": 32, "hidden": 48, "vocabulary": 65, "window": 20, "order": "post"}


def _copy(theirs: dict[str, torch.Tensor], module: Any) -> None:
    """Put the weights of a BertModel where ours are. A row of theirs always has token type 0, which is added to the
    places."""
    mine = {
        "embedding.weight": theirs["embeddings.word_embeddings.weight"],
        "positions.weight": theirs["embeddings.position_embeddings.weight"]
        + theirs["embeddings.token_type_embeddings.weight"][0],
    }
    pairs = {"embedding_norm": "embeddings.LayerNorm"}
    for number in range(3):
        block, layer = f"blocks.{number}", f"encoder.layer.{number}"
        for part in ("weight", "bias"):
            mine[f"{block}.attention.qkv.{part}"] = torch.cat(
                [theirs[f"{layer}.attention.self.{kind}.{part}"] for kind in ("query", "key", "value")]
            )
        pairs |= {
            f"{block}.attention.out": f"{layer}.attention.output.dense",
            f"{block}.attention_norm": f"{layer}.attention.output.LayerNorm",
            f"{block}.mlp.up": f"{layer}.intermediate.dense",
            f"{block}.mlp.down": f"{layer}.output.dense",
            f"{block}.mlp_norm": f"{layer}.output.LayerNorm",
        }
    for ours, other in pairs.items():
        for part in ("weight", "bias"):
            mine[f"{ours}.{part}"] = theirs[f"{other}.{part}"]
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, value in mine.items():
            parameters.pop(name).copy_(value)
    assert {name.partition(".")[0] for name in parameters} <= {"dense", "dense_norm", "head"}


def _filled(model: Any) -> Any:
    """With values that are no constants anywhere."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


LENGTHS = torch.tensor([20, 7, 13])


def _theirs(model: Any, tokens: torch.Tensor) -> Any:
    return model(input_ids=tokens, attention_mask=(torch.arange(20) < LENGTHS[:, None]).long())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_states_and_classes_are_those_of_bert_in_transformers(bert: Any, make: Any, attention: str) -> None:
    other = _filled(bert.BertForSequenceClassification(_config(num_labels=3, attn_implementation="eager")))
    module = make("encoder", pool="first", attention=attention, **SAME).module.eval()
    _copy(other.bert.state_dict(), module)
    module.dense.load_state_dict(other.bert.pooler.dense.state_dict())
    module.head.load_state_dict(other.classifier.state_dict())
    tokens = torch.randint(0, 65, (3, 20), generator=torch.Generator().manual_seed(2))
    real = torch.arange(20) < LENGTHS[:, None]
    states = _theirs(other.bert, tokens).last_hidden_state
    torch.testing.assert_close(module.states(tokens, LENGTHS)[real], states[real], atol=1e-5, rtol=1e-5)
    logits = _theirs(other, tokens).logits
    torch.testing.assert_close(module(tokens, LENGTHS).logits, logits, atol=1e-5, rtol=1e-5)


def test_restored_tokens_are_those_of_bert_in_transformers(bert: Any, make: Any) -> None:
    other = _filled(bert.BertForMaskedLM(_config(attn_implementation="eager")))
    module = make("encoder", purpose="mlm", **SAME).module.eval()
    _copy(other.bert.state_dict(), module)
    head = other.cls.predictions
    module.dense.load_state_dict(head.transform.dense.state_dict())
    module.dense_norm.load_state_dict(head.transform.LayerNorm.state_dict())
    with torch.no_grad():
        module.head.bias.copy_(head.decoder.bias)
    assert torch.equal(module.head.weight, head.decoder.weight)
    tokens = torch.randint(0, 65, (3, 20), generator=torch.Generator().manual_seed(2))
    at = torch.tensor([[4, 19], [0, 6], [12, 3]])
    expected = _theirs(other, tokens).logits.gather(1, at[..., None].expand(-1, -1, 65))
    torch.testing.assert_close(module(tokens, LENGTHS, at).logits, expected, atol=1e-5, rtol=1e-5)
