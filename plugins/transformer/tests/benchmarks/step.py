"""Time of one training step (forward, loss, backward) of `gpt` against a plain module with the same arithmetic.

    python plugins/transformer/tests/benchmarks/step.py [--bf16] [--threads N] [--rounds N]

Layers 4, heads 4, width 128, 64 positions, 12 rows, 65 characters. Steps of all variants take turns; shown are the
median and the fastest of each, and the median of the ratios to the plain module's step of the same round. CPU time of
the process, which others' load disturbs least; with more than one thread, wall time.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nlpkernel.components import PRESETS
from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel_transformer.build import build
from nlpkernel_transformer.component import Decoder, Gpt, Llama

LAYERS, HEADS, WIDTH, WINDOW, ROWS, VOCABULARY = 4, 4, 128, 64, 12, 65


class PlainBlock(nn.Module):
    """A block as a tutorial would write it, with dropout modules at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH, bias=False),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH, bias=False),
            nn.Dropout(0.0),
        )
        self.dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        """x [rows, positions, width]."""
        rows, positions, width = x.shape
        q, k, v = (
            piece.view(rows, positions, HEADS, width // HEADS).transpose(1, 2)
            for piece in self.qkv(self.norms[0](x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous().view(rows, positions, width)
        x = x + self.dropout(self.out(mixed))
        x = x + self.mlp(self.norms[1](x))
        return x


class Plain(nn.Module):
    """The plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.dropout = nn.Dropout(0.0)
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of tokens [rows, positions]."""
        x = self.dropout(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1])))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def ours(cls: type[Decoder]) -> nn.Module:
    """The preset "nano" of a component, filled."""
    component = cls(**getattr(cls, PRESETS)["nano"])
    with torch.device("meta"):
        model = build(component.shape(VOCABULARY, WINDOW))
    allocate(model.module, torch.device("cpu"), torch.float32)
    fill(model, whole(model.module), 0)
    return model.module


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bf16", action="store_true", help="under autocast to bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.threads == 1 else time.perf_counter
    tokens, labels = torch.randint(0, VOCABULARY, (2, ROWS, WINDOW))
    half = torch.autocast("cpu", torch.bfloat16)
    plain, gpt, llama = Plain(), ours(Gpt), ours(Llama)

    def step(module: nn.Module, forward: Callable[[Tensor], Tensor], bf16: bool) -> Callable[[], None]:
        def run() -> None:
            with half if bf16 else contextlib.nullcontext():
                logits = forward(tokens)
            F.cross_entropy(logits.float().flatten(0, 1), labels.flatten()).backward()  # type: ignore[no-untyped-call]
            for parameter in module.parameters():
                parameter.grad = None

        return run

    variants = {
        "plain": step(plain, plain, args.bf16),
        "gpt": step(gpt, lambda ids: gpt(ids).logits, args.bf16),
        "llama": step(llama, lambda ids: llama(ids).logits, args.bf16),
    }
    if args.bf16:
        variants = {"plain": variants["plain"], "plain fp32": step(plain, plain, False), **variants}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(args.rounds + 5):
        for name, run in variants.items():
            start = clock()
            run()
            if number >= 5:
                times[name].append(clock() - start)
    print(
        f"python {' '.join(sys.argv)}  # torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    )
    print(f"{'':12}{'median ms':>12}{'fastest ms':>12}{'ratio':>8}")
    for name, spent in times.items():
        ratio = statistics.median(one / base for one, base in zip(spent, times["plain"], strict=True))
        print(f"{name:12}{statistics.median(spent) * 1e3:12.2f}{min(spent) * 1e3:12.2f}{ratio:8.3f}")


if __name__ == "__main__":
    main()
