"""The predictions in docs/cost-model.md are those that the formulae give."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpkernel_torchdist.cost import Machine, Shard, Step, bytes_sent, memory, seconds
from nlpkernel_torchdist.layout import Layout

PAGE = Path(__file__).parent.parent / "docs" / "cost-model.md"
#: As the page says: parameters in float32, activations in bfloat16, AdamW.
MODELS = {
    "1.3B": {"blocks": 24, "width": 2048, "vocabulary": 50257, "block": 12 * 2048**2},
    "8B": {"blocks": 32, "width": 4096, "vocabulary": 128256, "block": 218_112_000},
    "70B": {"blocks": 80, "width": 8192, "vocabulary": 128256, "block": 855_654_400},
}
#: Tables of embedding and head: GPT-2 ties them.
TABLES = {"1.3B": 1, "8B": 2, "70B": 2}
MACHINE = Machine(flops=400e12, inner=300e9, outer=40e9, inside=8)
#: Model, layout, what is sharded, tokens of a micro-batch, micro-batches of a data worker.
ROWS: list[tuple[str, Layout, Shard, int, int]] = [
    ("1.3B", Layout(data=8), 0, 16384, 4),
    ("1.3B", Layout(data=8), 1, 16384, 4),
    ("1.3B", Layout(data=8), 3, 16384, 4),
    ("8B", Layout(data=64), 3, 8192, 8),
    ("8B", Layout(data=8, tensor=8), 1, 8192, 64),
    ("8B", Layout(data=16, pipe=4), 1, 8192, 32),
    ("70B", Layout(data=1024), 3, 4096, 1),
    ("70B", Layout(data=128, tensor=8), 3, 8192, 4),
    ("70B", Layout(data=16, tensor=8, pipe=8), 1, 8192, 32),
]


def row(model: str, layout: Layout, shard: Shard, positions: int, rounds: int) -> str:
    """As the page has it: bytes in GB, times in milliseconds."""
    shape = MODELS[model]
    step = Step(
        parameters=shape["blocks"] * shape["block"] + TABLES[model] * shape["vocabulary"] * shape["width"],
        **shape,
        positions=positions,
        rounds=rounds,
        value=2.0,
        tied=shape["vocabulary"] * shape["width"] if TABLES[model] == 1 else 0,
    )
    sent, held = bytes_sent(layout, shard, step), memory(layout, shard, step)
    time = seconds(layout, shard, step, MACHINE)
    cells = [
        f"{layout.workers:,}",
        model,
        str(layout).replace("pipeline", "pipe") + (f", shard {shard}" if shard else ""),
        f"{rounds} x {positions // 1024}k",
        *(
            f"{size / 1e9:,.1f}"
            for size in (
                sent.gradients + sent.parameters,
                sent.activations + sent.stages,
                held.whole + held.gradients + held.optimizer,
            )
        ),
        *(f"{1e3 * part:,.0f}" for part in (time.compute, time.waiting, time.tensor, time.exposed)),
        f"{time.compute / time.total:.0%}",
    ]
    return "| " + " | ".join(cells) + " |"


@pytest.mark.parametrize("given", ROWS, ids=lambda given: f"{given[0]} on {given[1]}, shard {given[2]}")
def test_a_prediction_is_what_the_formulae_give(given):
    assert row(*given) in PAGE.read_text(encoding="utf-8").splitlines()


def test_the_page_predicts_nothing_else():
    table = PAGE.read_text(encoding="utf-8").partition("## Predictions")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + len(ROWS)
