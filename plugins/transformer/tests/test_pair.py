"""The encoder-decoder: the cache against the full forward, padding, rows of a search, sizes, and other libraries."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.components import PRESETS, fields_of
from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.data import DataInfo
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_transformer.component import EncoderDecoder

NAME = "encoder-decoder"
TINY = {"layers": 2, "heads": 4, "width": 32, "vocabulary": 17, "window": 12, "init_std": 0.3, "dropout": 0.0}
OPTIONS = {
    "order": st.sampled_from(["pre", "post"]),
    "attention": st.sampled_from(["sdpa", "eager"]),
    "positions": st.sampled_from(["learned", "rotary", "sinusoidal"]),
    "kv_heads": st.sampled_from([None, 2]),
    "decoder_layers": st.sampled_from([None, 1, 3]),
}


def _tokens(rows: int, positions: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 17, (rows, positions), generator=torch.Generator().manual_seed(seed))


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    cuts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    **OPTIONS,
)
def test_decoding_with_the_cache_gives_the_logits_of_the_full_forward(
    make: Any, lengths: list[int], cuts: list[int], **changes: Any
) -> None:
    cuts = cuts if sum(cuts) <= 12 else [12]
    module = make(NAME, **TINY, **changes).module.eval()
    tokens, target = _tokens(len(lengths), 9), _tokens(len(lengths), sum(cuts), 1)
    full = module(tokens, torch.tensor(lengths), target=target).logits.detach()
    cache = module.encode(tokens, torch.tensor(lengths), sum(cuts))
    end = 0
    for cut in cuts:
        logits, cache = module.decode(target[:, end : end + cut], cache)
        end += cut
        torch.testing.assert_close(logits, full[:, end - 1], atol=1e-5, rtol=1e-5)
    assert cache.length == end
    with pytest.raises(ValueError, match=f"holds {end} of {end} positions; 1 more"):
        module.decode(target[:, :1], cache)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), behind=st.integers(0, 3), **OPTIONS)
def test_padding_of_either_text_changes_nothing(
    make: Any, lengths: list[int], behind: int, **changes: Any
) -> None:
    module = make(NAME, **TINY, **changes).module.eval()
    tokens, target = _tokens(len(lengths), 12), _tokens(len(lengths), 6 + behind, 1)
    together = module(tokens, torch.tensor(lengths), target=target).logits
    for row, length in enumerate(lengths):
        alone = module(tokens[row : row + 1, :length], target=target[row : row + 1, :6]).logits[0]
        torch.testing.assert_close(together[row, :6], alone, atol=1e-5, rtol=1e-5)


def test_every_token_of_the_source_and_every_earlier_one_of_the_target_is_seen(make: Any) -> None:
    module = make(NAME, **TINY).module
    tokens, target = _tokens(1, 5), _tokens(1, 6, 1)
    before = module(tokens, target=target).logits
    for place in range(5):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % 17
        assert ((module(changed, target=target).logits - before).abs().amax(-1) > 0).all()
    changed = target.clone()
    changed[0, 3] = (changed[0, 3] + 1) % 17
    differs = (module(tokens, target=changed).logits - before).abs().amax(-1)[0] > 0
    assert differs.tolist() == [False] * 3 + [True] * 3


def test_a_source_of_padding_alone_gives_numbers(make: Any) -> None:
    module = make(NAME, **TINY).module
    logits = module(_tokens(2, 5), torch.tensor([5, 0]), target=_tokens(2, 3)).logits
    logits[0].sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(each.grad).all() for each in module.parameters() if each.grad is not None)


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.integers(0, 2), min_size=1, max_size=6), read=st.integers(0, 3))
def test_selected_rows_go_on_as_those_they_come_from_and_leave_them_alone(
    make: Any, rows: list[int], read: int
) -> None:
    module = make(NAME, **TINY).module.eval()
    tokens, target, lengths = _tokens(3, 7), _tokens(3, 5, 1), torch.tensor([7, 2, 4])
    more = _tokens(len(rows), 2, 2)
    cache = module.encode(tokens, lengths, 5)
    for place in range(read):
        _, cache = module.decode(target[:, place : place + 1], cache)
    picked = module.select(cache, torch.tensor(rows))
    for place in range(2):
        logits, picked = module.decode(more[:, place : place + 1], picked)
    whole = torch.cat((target[rows, :read], more), 1)
    expected = module(tokens[rows], lengths[rows], target=whole).logits[:, -1]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    logits, cache = module.decode(target[:, read : read + 1], cache)
    expected = module(tokens, lengths, target=target[:, : read + 1]).logits[:, -1]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_a_decoder_alone_selects_rows_too(make: Any) -> None:
    module = make("gpt", **{**TINY, "layers": 2}).module.eval()
    tokens, rows = _tokens(3, 5), [2, 0, 2, 1]
    _, cache = module.prefill(tokens[:, :4])
    picked = module.select(cache, torch.tensor(rows))
    logits, _ = module.decode(tokens[rows, 4:], picked)
    torch.testing.assert_close(logits, module(tokens[rows]).logits[:, -1], atol=1e-5, rtol=1e-5)
    assert (cache.length, picked.length) == (4, 5)


def test_keys_and_values_of_the_source_are_computed_once(make: Any) -> None:
    module = make(NAME, **TINY).module.eval()
    calls: list[int] = []
    for block in (*module.encoder, *(each.cross.kv for each in module.decoder)):
        block.register_forward_hook(lambda *_: calls.append(1))
    cache = module.encode(_tokens(2, 5), None, 4)
    assert len(calls) == 4
    for _ in range(3):
        _, cache = module.decode(_tokens(2, 1), cache)
    assert len(calls) == 4


def test_texts_longer_than_the_context_are_refused(make: Any) -> None:
    module = make(NAME, **TINY).module
    for source, target in ((13, 2), (2, 13)):
        with pytest.raises(ValueError, match="13 positions"):
            module(_tokens(1, source), target=_tokens(1, target))
    with pytest.raises(ValueError, match="13 positions"):
        module.encode(_tokens(1, 2), None, 13)


def test_chunked_logits_are_those_of_the_hidden_states(make: Any) -> None:
    tokens, target = _tokens(2, 5), _tokens(2, 4, 1)
    full = make(NAME, **TINY).module(tokens, target=target)
    parts = make(NAME, **TINY, logits="chunked").module(tokens, target=target)
    assert parts.logits is None
    torch.testing.assert_close(parts.hidden @ parts.head.t(), full.logits)


@pytest.mark.parametrize("mode", ["full", 2])
def test_recomputation_changes_no_gradient(make: Any, mode: Any) -> None:
    def gradients(checkpointing: Any) -> list[torch.Tensor]:
        module = make(NAME, **{**TINY, "dropout": 0.5}, checkpointing=checkpointing).module
        torch.manual_seed(3)
        logits = module(_tokens(2, 6), torch.tensor([6, 4]), target=_tokens(2, 5, 1)).logits
        logits.square().sum().backward()
        return [parameter.grad for parameter in module.parameters()]

    for one, other in zip(gradients(mode), gradients("none"), strict=True):
        torch.testing.assert_close(one, other)


# -- anatomy and sizes


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_every_parameter_is_described_in_the_order_of_the_forward_pass(
    structure: Any, order: str, bias: bool, positions: str
) -> None:
    model = structure(NAME, **TINY, order=order, bias=bias, positions=positions, decoder_layers=3)
    names = [key for key, _ in model.module.named_parameters()]
    assert set(model.anatomy.parameters) == set(names)
    for key, parameter in model.module.named_parameters():
        facts = model.anatomy.parameters[key]
        assert facts.decay == (parameter.dim() >= 2), key
        assert ("bias" in facts.tags) == key.endswith("bias")
    places = ["positions", "target_positions"] if positions == "learned" else []
    norms = [["source_norm"], ["norm"]] if order == "pre" else [[], []]
    tops = list(dict.fromkeys(name.partition(".")[0] for name in names))
    assert tops == ["embedding", *places, "encoder", *norms[0], "decoder", *norms[1]]
    assert model.anatomy.ties == (("embedding.weight", "head.weight"),)
    blocks = [model.module.get_submodule(path) for path in model.anatomy.blocks]
    assert blocks == [*model.module.encoder, *model.module.decoder]


def test_the_hidden_state_of_a_block_is_all_that_the_next_one_needs(make: Any) -> None:
    """What the anatomy promises, and a pipeline goes by: each block once, in order, and nothing else that depends on a
    parameter."""
    model = make(NAME, **TINY, order="pre")
    called: list[str] = []
    for path in model.anatomy.blocks:

        def hook(block: Any, args: Any, kwargs: Any, path: str = path) -> None:
            called.append(path)
            others = [each for each in (*args[1:], *kwargs.values()) if isinstance(each, torch.Tensor)]
            assert args[0].shape == (2, 11, 32)
            assert not any(each.requires_grad for each in others)

        model.module.get_submodule(path).register_forward_pre_hook(hook, with_kwargs=True)
    model.module(_tokens(2, 6), torch.tensor([6, 3]), target=_tokens(2, 5))
    assert tuple(called) == model.anatomy.blocks


@pytest.mark.parametrize("workers", [2, 4])
def test_attention_to_the_source_cut_by_role_and_parts_adds_up_to_the_whole(make: Any, workers: int) -> None:
    model = make(NAME, **TINY, kv_heads=workers)
    whole, facts = model.module.decoder[1].cross, model.anatomy.parameters
    states, x = torch.randn(2, 6, 32), torch.randn(2, 5, 32)
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(parameter.numel()))

    def share(worker: int) -> torch.Tensor:
        part = copy.deepcopy(whole)
        for key, parameter in part.named_parameters():
            fact, value = facts[f"decoder.1.cross.{key}"], parameter.data
            if fact.role == "column":
                pieces = value.split(fact.parts or (len(value),))
                value = torch.cat([piece.chunk(workers)[worker] for piece in pieces])
            elif fact.role == "row":
                value = value.chunk(workers, dim=1)[worker]
            elif worker:
                value = torch.zeros_like(value)
            parameter.data = value
        return part(x, part.memory(states))

    mixed = sum(share(worker) for worker in range(workers))
    torch.testing.assert_close(mixed, whole(x, whole.memory(states)), atol=1e-4, rtol=1e-4)


def test_first_values_are_narrower_by_how_many_add_up(make: Any) -> None:
    changes = {**TINY, "width": 128, "layers": 2, "init_std": 0.05}
    for order, wanted in (("pre", (0.05 / 4**0.5, 0.05 / 18**0.5)), ("post", (0.05, 0.05))):
        module = make(NAME, **changes, decoder_layers=6, order=order).module
        found = module.encoder[0].mlp.down, module.decoder[0].mlp.down
        for layer, std in zip(found, wanted, strict=True):
            assert float(layer.weight.detach().std()) == pytest.approx(std, rel=0.05)
        assert float(module.decoder[0].cross.out.weight.detach().std()) == pytest.approx(wanted[1], rel=0.05)
        assert float(module.decoder[0].cross.kv.weight.detach().std()) == pytest.approx(0.05, rel=0.05)


@settings(max_examples=30, deadline=None)
@given(
    heads=st.integers(1, 3),
    half=st.integers(1, 4),
    hidden=st.none() | st.integers(1, 40),
    decoder_layers=st.none() | st.integers(1, 3),
    order=st.sampled_from(["pre", "post"]),
    positions=st.sampled_from(["learned", "rotary", "sinusoidal"]),
    norm=st.sampled_from(["layer", "rms"]),
    activation=st.sampled_from(["gelu", "swiglu", "relu"]),
    bias=st.booleans(),
    tie=st.booleans(),
)
def test_the_number_of_parameters_follows_from_any_settings(
    component: Any, structure: Any, heads: int, half: int, **rest: Any
) -> None:
    rest.update(layers=2, heads=heads, width=heads * 2 * half)
    shape = component(NAME, **rest).shape(11, 6)
    assert _count(structure(NAME, vocabulary=11, window=7, **rest).module) == shape.parameters()


def test_presets_go_together_and_the_base_and_big_have_the_papers_numbers(
    component: Any, structure: Any
) -> None:
    names = {field.name for field in fields_of(EncoderDecoder)}
    assert all(field.facts.help for field in fields_of(EncoderDecoder))
    for preset, values in getattr(EncoderDecoder, PRESETS).items():
        assert set(values) < names
        assert not list(component(NAME, preset).check_settings())
    # Table 3 says 65 and 213 million, with about 37000 entries.
    for preset, millions in (("base", 63.1), ("big", 214.2)):
        model = structure(NAME, preset, vocabulary=37000, window=256, order="post")
        assert _count(model.module) == pytest.approx(millions * 1e6, rel=0.005)


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize(
    "changes", [{}, {"dropout": 0.0}, {"attention": "eager"}, {"activation": "gelu", "decoder_layers": 1}]
)
def test_the_estimate_of_activations_is_within_15_percent_of_what_autograd_keeps(
    component: Any, make: Any, order: str, changes: dict[str, Any]
) -> None:
    rows, window = 3, 48
    facts = Facts(vocabulary=65, window=window - 1, micro=rows, task="seq2seq")
    estimate = component(NAME, order=order, **changes).estimate(facts)
    module = make(NAME, vocabulary=65, window=window, order=order, **changes).module
    assert estimate.parameters == _count(module)
    assert estimate.blocks == len(module.encoder) + len(module.decoder)
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens, target = _tokens(rows, window), _tokens(rows, window, 1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = module(tokens, torch.tensor([window, 20, 31]), target=target).logits
        F.cross_entropy(logits.flatten(0, 1), target.flatten())
    real = sum(storage.nbytes() for storage in kept.values())
    assert real / 1.15 <= estimate.activation_bytes <= real * 1.15


# -- which task


def _info(task: str) -> DataInfo:
    return DataInfo(task=task, vocabulary=50, window=24, fingerprint="", splits={}, labels=("a", "b"))


def test_it_is_for_seq2seq_alone_and_the_others_are_not(component: Any) -> None:
    with torch.device("meta"):
        assert component(NAME).create_model(_info("seq2seq")).module.context == 25
    for task, use in (("lm", "gpt"), ("classification", "encoder")):
        with pytest.raises(
            PlanError, match=rf"TRF006 an encoder-decoder has no head .*'{task}'.*use = .{use}"
        ):
            component(NAME).create_model(_info(task))
        assert "will stop" in component(NAME).estimate(Facts(task=task)).notes[0]
    for name in ("gpt", "encoder"):
        with pytest.raises(PlanError, match=r"TRF006 .* no head for the task 'seq2seq'.*encoder-decoder"):
            component(name).create_model(_info("seq2seq"))
    assert not component(NAME).estimate(Facts(task="seq2seq")).notes
    with pytest.raises(PlanError, match="TRF001 context is 24"):
        component(NAME, context=24).create_model(_info("seq2seq"))
    said = list(component(NAME, width=3, heads=1).check_settings())
    assert said == [("width", "sinusoidal positions need an even width, and it is 3")]


# -- equality with other implementations

SAME = {
    "layers": 2,
    "decoder_layers": 3,
    "heads": 4,
    "width": 32,
    "hidden": 48,
    "vocabulary": 65,
    "window": 20,
}
LENGTHS = torch.tensor([11, 4, 7])


def _texts() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 65, (3, 11), generator=generator), torch.randint(
        0, 65, (3, 9), generator=generator
    )


def _filled(model: Any) -> Any:
    """With values that are no constants anywhere."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


def _fill(module: Any, values: dict[str, torch.Tensor]) -> None:
    parameters = dict(module.named_parameters())
    assert parameters.keys() == values.keys()
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(value)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_logits_are_those_of_marian_in_transformers(make: Any, attention: str) -> None:
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    from transformers.models.marian.configuration_marian import MarianConfig

    config = MarianConfig(
        vocab_size=65,
        d_model=32,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        activation_function="relu",
        max_position_embeddings=20,
        scale_embedding=True,
        pad_token_id=64,
        attn_implementation="eager",
    )
    other = _filled(marian.MarianMTModel(config))
    module = make(NAME, attention=attention, order="post", **SAME).module.eval()
    theirs = other.model.state_dict()
    values = {"embedding.weight": theirs["shared.weight"]}
    for side, count in (("encoder", 2), ("decoder", 3)):
        for number in range(count):
            ours, layer = f"{side}.{number}", f"{side}.layers.{number}"
            pairs = {
                "attention.out": "self_attn.out_proj",
                "attention_norm": "self_attn_layer_norm",
                "mlp.up": "fc1",
                "mlp.down": "fc2",
                "mlp_norm": "final_layer_norm",
            }
            if side == "decoder":
                pairs |= {
                    "cross.query": "encoder_attn.q_proj",
                    "cross.out": "encoder_attn.out_proj",
                    "cross_norm": "encoder_attn_layer_norm",
                }
            for part in ("weight", "bias"):
                for mine, its in pairs.items():
                    values[f"{ours}.{mine}.{part}"] = theirs[f"{layer}.{its}.{part}"]
                values[f"{ours}.attention.qkv.{part}"] = torch.cat(
                    [theirs[f"{layer}.self_attn.{kind}_proj.{part}"] for kind in "qkv"]
                )
                if side == "decoder":
                    values[f"{ours}.cross.kv.{part}"] = torch.cat(
                        [theirs[f"{layer}.encoder_attn.{kind}_proj.{part}"] for kind in "kv"]
                    )
    _fill(module, values)
    tokens, target = _texts()
    real = torch.arange(11) < LENGTHS[:, None]
    with torch.no_grad():
        expected = other(input_ids=tokens, attention_mask=real.long(), decoder_input_ids=target).logits
        found = module(tokens, LENGTHS, target=target).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("order", ["pre", "post"])
def test_states_are_those_of_torchs_transformer(make: Any, order: str) -> None:
    other = torch.nn.Transformer(
        32, 4, 2, 3, 48, 0.0, batch_first=True, norm_first=order == "pre", activation="relu"
    )
    other.encoder.use_nested_tensor = False
    if order == "post":
        other.encoder.norm = other.decoder.norm = None
    _filled(other)
    module = make(NAME, order=order, positions="learned", tie=False, **SAME).module.eval()
    values = {
        name: value.detach()
        for name, value in module.named_parameters()
        if name.partition(".")[0] in ("embedding", "positions", "target_positions", "head")
    }
    theirs = other.state_dict()
    for side, count in (("encoder", 2), ("decoder", 3)):
        for number in range(count):
            ours, layer = f"{side}.{number}", f"{side}.layers.{number}"
            pairs = {"attention.out": "self_attn.out_proj", "mlp.up": "linear1", "mlp.down": "linear2"}
            pairs |= {"attention_norm": "norm1", "mlp_norm": "norm2"}
            if side == "decoder":
                pairs |= {"cross.out": "multihead_attn.out_proj", "cross_norm": "norm2", "mlp_norm": "norm3"}
            for part in ("weight", "bias"):
                for mine, its in pairs.items():
                    values[f"{ours}.{mine}.{part}"] = theirs[f"{layer}.{its}.{part}"]
                values[f"{ours}.attention.qkv.{part}"] = theirs[f"{layer}.self_attn.in_proj_{part}"]
                if side == "decoder":
                    query, kv = theirs[f"{layer}.multihead_attn.in_proj_{part}"].split((32, 64))
                    values[f"{ours}.cross.query.{part}"] = query
                    values[f"{ours}.cross.kv.{part}"] = kv
    if order == "pre":
        for mine, its in (("source_norm", "encoder.norm"), ("norm", "decoder.norm")):
            for part in ("weight", "bias"):
                values[f"{mine}.{part}"] = theirs[f"{its}.{part}"]
    _fill(module, values)
    tokens, target = _texts()
    padding = torch.arange(11) >= LENGTHS[:, None]
    with torch.no_grad():
        states = other(
            module.embedding(tokens) + module.positions.weight[:11],
            module.embedding(target) + module.target_positions.weight[:9],
            tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(9),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        found = module(tokens, LENGTHS, target=target).logits
        torch.testing.assert_close(found, module.head(states), atol=1e-5, rtol=1e-5)
