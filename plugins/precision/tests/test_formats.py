from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nlpkernel.context import Run
from nlpkernel.errors import ComponentFailure, TrainingError
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_precision.component import Auto, Bf16, Fp16, Fp32, Tf32
from nlpkernel_precision.formats import Float32Products
from nlpkernel_precision.hardware import Hardware, choose, cpu, probe

SHORT = pytest.mark.parametrize(
    ("kind", "settings", "dtype"),
    [
        (Bf16, {}, torch.bfloat16),
        (Bf16, {"parameters": "bf16"}, torch.bfloat16),
        (Fp16, {}, torch.float16),
    ],
    ids=["bf16", "bf16 pure", "fp16"],
)


@pytest.fixture
def states() -> Any:
    """How this process multiplies float32 matrices; put back at the end."""

    def now() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = now()
    yield now
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def test_fp32_changes_nothing_and_shares_one_context_that_does_nothing(make) -> None:
    precision = make(Fp32)
    assert (precision.name, precision.scaled, precision.state()) == ("fp32", False, {})
    assert precision.parameter == precision.reduce == precision.output == torch.float32
    assert precision.autocast() is make(Fp32).autocast()
    assert isinstance(precision.autocast(), nullcontext)
    loss = torch.ones(())
    assert precision.scale(loss) is loss


@SHORT
def test_a_short_format_is_entered_again_and_again_and_left_in_any_case(make, kind, settings, dtype) -> None:
    precision = make(kind, **settings)
    left, right = torch.ones(2, 2), torch.ones(2, 2)
    context = precision.autocast()
    for _ in range(2):
        with precision.autocast():
            assert (left @ right).dtype == precision.output == dtype
        assert (left @ right).dtype == torch.float32
        assert precision.autocast() is context
    with pytest.raises(KeyError), precision.autocast():
        raise KeyError
    assert (left @ right).dtype == torch.float32


@SHORT
def test_what_stays_float32_is_as_the_readme_says(make, kind, settings, dtype) -> None:
    x = torch.randn(2, 8, requires_grad=True)
    weight = torch.randn(8, 8, requires_grad=True)
    labels = torch.zeros(2, dtype=torch.long)
    with make(kind, **settings).autocast():
        short = F.linear(x, weight)
        assert short.dtype == F.gelu(short).dtype == dtype
        assert F.scaled_dot_product_attention(x[None], x[None], short[None]).dtype == dtype
        residual = x + short
        assert residual.dtype == torch.float32
        assert F.layer_norm(residual, (8,)).dtype == torch.float32
        assert F.rms_norm(residual, (8,)).dtype == torch.float32
        loss = F.cross_entropy(short, labels)
        assert loss.dtype == torch.float32
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32


def test_mixed_keeps_float32_parameters_and_pure_does_not(make) -> None:
    assert make(Bf16).parameter == torch.float32
    assert make(Bf16, parameters="bf16").parameter == torch.bfloat16
    assert make(Fp16).parameter == torch.float32
    assert {make(kind).reduce for kind in (Bf16, Fp16)} == {torch.float32}
    assert make(Fp16).scaled
    assert not make(Bf16).scaled


def test_a_device_that_cannot_is_refused_by_name(make, run: Run) -> None:
    with pytest.raises(TrainingError, match=r"PRC001 .*\(cpu\) cannot compute in tf32.*8\.0"):
        make(Tf32)
    run.device = torch.device("meta")
    for kind, name in ((Tf32, "tf32"), (Bf16, "bf16"), (Fp16, "fp16")):
        with pytest.raises(TrainingError, match=f"PRC001 .*meta.* cannot compute in {name}"):
            make(kind)
    with pytest.raises(TrainingError, match=r"PRC002 .*meta"):
        make(Auto)
    assert make(Fp32).name == "fp32"


def test_a_state_of_another_precision_is_refused(make) -> None:
    make(Bf16).load_state({})
    with pytest.raises(ValueError, match="scale"):
        make(Bf16).load_state({"scale": 1.0})


def device(kind: str, *formats: str) -> Hardware:
    names = frozenset({"fp32", *formats})
    return Hardware(kind=kind, name="one", formats=names, fast=names)


@pytest.mark.parametrize(
    ("hardware", "picked"),
    [
        (device("cuda", "fp16", "bf16", "tf32"), "bf16"),
        (device("cuda", "fp16"), "fp16"),
        (device("mps", "fp16", "bf16"), "fp32"),
        (device("xpu", "fp16", "bf16"), "bf16"),
        (device("xpu", "fp16"), "fp32"),
        (cpu({"amx_bf16": True, "avx512_bf16": True}), "bf16"),
        (cpu({"amx_bf16": False, "avx512_bf16": True}), "fp32"),
        (cpu({}), "fp32"),
    ],
)
def test_auto_picks_by_hardware(hardware: Hardware, picked: str) -> None:
    assert choose(hardware)[0] == picked
    assert picked in hardware.fast


def test_auto_says_what_it_picked_and_why(make, notices) -> None:
    name, reason = choose(probe(torch.device("cpu")))
    precision = make(Auto)
    assert precision.name == name
    assert precision.output == (torch.bfloat16 if name == "bf16" else torch.float32)
    assert [notice.message for notice in notices] == [f"picked {name}: {reason}"]


def test_a_format_that_is_not_known_to_be_faster_is_said(make, notices) -> None:
    make(Fp16)
    (notice,) = notices
    assert notice.level == "warning"
    assert "fp16 is not known to be faster" in notice.message


def test_a_precision_without_a_device_fails(make, run: Run) -> None:
    run.device = None
    with pytest.raises(ComponentFailure, match="no device"):
        make(Auto)


@pytest.mark.parametrize("kind", [Fp32, Bf16, Fp16, Auto])
def test_float32_products_are_exact_during_a_run_and_as_before_after_it(run: Run, states, kind) -> None:
    torch.set_float32_matmul_precision("high")
    before = states()
    component = kind()
    component.create_precision(run)
    assert states() == ("highest", False)
    component.close()
    assert states() == before
    component.close()
    assert states() == before


def test_tf32_lets_products_be_rounded_until_it_is_put_back(states) -> None:
    before = states()
    products = Float32Products("high")
    assert states() == ("high", True)
    products.restore()
    assert states() == before


FACTS = Facts(
    parameters=1000, parameter_bytes=4000, gradient_bytes=4000, optimizer_bytes=8000, activation_bytes=10_000
)


def test_estimate_of_the_mixed_formats_has_shorter_activations_and_copies_of_weights() -> None:
    for component in (Bf16(), Fp16()):
        facts = component.estimate(FACTS)
        assert facts.activation_bytes == 6000 + 2000
        assert (facts.parameter_bytes, facts.gradient_bytes, facts.optimizer_bytes) == (4000, 4000, 8000)


def test_estimate_of_the_pure_format_halves_everything() -> None:
    facts = Bf16(parameters="bf16").estimate(FACTS)
    assert (facts.parameter_bytes, facts.gradient_bytes, facts.optimizer_bytes) == (2000, 2000, 4000)
    assert facts.activation_bytes == 5500


def test_estimate_knows_nothing_of_an_unknown_model() -> None:
    for component in (Bf16(), Bf16(parameters="bf16"), Fp16(), Auto()):
        facts = component.estimate(Facts())
        assert facts.activation_bytes is facts.parameter_bytes is None


def test_estimate_says_that_a_loss_scale_reads_the_device() -> None:
    (note,) = Fp16().estimate(FACTS).notes
    assert "reads the device once a step" in note
    assert Bf16().estimate(FACTS).notes == ()


@pytest.mark.parametrize("pure", [False, True])
def test_the_estimated_activations_are_near_what_a_block_keeps(make, pure) -> None:
    def kept(module: torch.nn.Module, context: Any) -> int:
        own = {parameter.data_ptr() for parameter in module.parameters()}
        sizes: dict[int, tuple[int, torch.Tensor]] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                sizes[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), context:
            module(torch.ones(2, 256, 64, dtype=next(module.parameters()).dtype))
        return sum(size for size, _ in sizes.values())

    def block() -> torch.nn.Module:
        torch.manual_seed(0)
        return Block()

    plain = kept(block(), nullcontext())
    component = Bf16(parameters="bf16" if pure else "fp32")
    module = block().bfloat16() if pure else block()
    short = kept(module, make(Bf16).autocast())
    matrices = sum(parameter.numel() for parameter in module.parameters())
    estimated = component.estimate(Facts(parameters=matrices, activation_bytes=plain)).activation_bytes
    assert short == pytest.approx(estimated, rel=0.15)


class Block(torch.nn.Module):
    """A block of a transformer without its attention's split in heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(64) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(64, 192, bias=False), torch.nn.Linear(64, 64, bias=False)
        self.up, self.down = torch.nn.Linear(64, 256, bias=False), torch.nn.Linear(256, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 1, 64)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))
