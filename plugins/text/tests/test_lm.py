"""The task lm: loss, counts, metrics."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from nlpkernel.hookspecs.model import Outputs
from nlpkernel_text import linear_loss
from nlpkernel_text.lm import LanguageModelling

LM = LanguageModelling()
VOCABULARY, WIDTH = 11, 6


def parts(rows: int = 3, length: int = 7, masked: float = 0.3) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(rows, length, WIDTH, generator=generator).requires_grad_()
    head = torch.randn(VOCABULARY, WIDTH, generator=generator).requires_grad_()
    labels = torch.randint(0, VOCABULARY, (rows, length), generator=generator)
    labels[torch.rand(rows, length, generator=generator) < masked] = -100
    return hidden, head, {"tokens": labels.clamp(min=0), "labels": labels}


def outputs(kind: str, hidden: Tensor, head: Tensor) -> Outputs:
    return Outputs(logits=hidden @ head.t()) if kind == "logits" else Outputs(hidden=hidden, head=head)


def exact(hidden: Tensor, head: Tensor, labels: Tensor) -> tuple[float, int, int]:
    """Loss, counted labels and right answers, in float64 and one token at a time."""
    logits = (hidden.double() @ head.double().t()).reshape(-1, VOCABULARY)
    loss, tokens, correct = 0.0, 0, 0
    for scores, label in zip(logits.tolist(), labels.flatten().tolist(), strict=True):
        if label >= 0:
            loss += math.log(sum(map(math.exp, scores))) - scores[label]
            tokens += 1
            correct += scores.index(max(scores)) == label
    return loss, tokens, correct


@pytest.mark.parametrize("kind", ["logits", "hidden"])
@pytest.mark.parametrize("chunk", [1, 40, 1 << 22])
def test_the_loss_is_the_summed_cross_entropy_of_the_counted_labels(
    monkeypatch: pytest.MonkeyPatch, kind: str, chunk: int
) -> None:
    monkeypatch.setattr(linear_loss, "CHUNK", chunk)
    hidden, head, batch = parts()
    (term,) = LM.loss(outputs(kind, hidden, head), batch)
    expected, tokens, correct = exact(hidden.detach(), head.detach(), batch["labels"])
    assert term.name == "loss"
    assert term.sum.dtype == torch.float32
    assert term.sum.item() == pytest.approx(expected, rel=1e-6)
    counts = LM.evaluate(lambda tokens: outputs(kind, hidden, head), batch)
    assert {name: value.dtype for name, value in counts.items()} == dict.fromkeys(
        ("loss_sum", "tokens", "correct"), torch.float64
    )
    assert counts["loss_sum"].item() == pytest.approx(expected, rel=1e-6)
    assert (counts["tokens"].item(), counts["correct"].item()) == (tokens, correct)


@pytest.mark.parametrize("chunk", [1, 40, 1 << 22])
def test_gradients_through_the_head_in_chunks_are_those_of_all_logits_at_once(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(linear_loss, "CHUNK", chunk)
    gradients = []
    for kind in ("logits", "hidden"):
        hidden, head, batch = parts()
        (term,) = LM.loss(outputs(kind, hidden, head), batch)
        (term.sum / 7).backward()
        gradients.append((hidden.grad, head.grad))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_only_what_needs_a_gradient_gets_one() -> None:
    hidden, head, batch = parts()
    linear_loss.linear_cross_entropy(
        hidden.flatten(0, 1), head.detach(), batch["labels"].flatten()
    ).backward()
    assert hidden.grad is not None
    hidden, head, batch = parts()
    linear_loss.linear_cross_entropy(
        hidden.detach().flatten(0, 1), head, batch["labels"].flatten()
    ).backward()
    assert head.grad is not None


@pytest.mark.parametrize("kind", ["logits", "hidden"])
def test_sums_are_float32_under_bfloat16(kind: str) -> None:
    hidden, head, batch = parts(rows=64, length=64, masked=0.0)
    expected = exact(hidden.detach(), head.detach(), batch["labels"])[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (term,) = LM.loss(outputs(kind, hidden, head), batch)
    assert term.sum.dtype == torch.float32
    assert term.sum.item() == pytest.approx(expected, rel=2e-3)
    term.sum.backward()
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.float32
    # A value that bfloat16 cannot hold: the sum was not rounded.
    assert term.sum.item() != term.sum.to(torch.bfloat16).item()


@pytest.mark.parametrize("kind", ["logits", "hidden"])
def test_case_l4_without_any_label_the_sum_is_zero_with_zero_gradient(kind: str) -> None:
    hidden, head, batch = parts(masked=2.0)
    (term,) = LM.loss(outputs(kind, hidden, head), batch)
    assert term.sum.item() == 0.0
    term.sum.backward()
    for gradient in (hidden.grad, head.grad):
        assert gradient is not None
        assert not gradient.any()
    counts = {
        name: value.item()
        for name, value in LM.evaluate(lambda tokens: outputs(kind, hidden, head), batch).items()
    }
    assert counts == {"loss_sum": 0.0, "tokens": 0.0, "correct": 0.0}
    assert LM.value(counts) == {"loss": None, "perplexity": None, "accuracy": None}
    assert LM.weights([{"tokens": [3]}, {"tokens": []}]) == {"loss": 0.0}


def test_case_l1_the_gradient_does_not_depend_on_how_a_batch_is_cut() -> None:
    def gradient(cuts: list[slice]) -> Tensor:
        hidden, head, batch = parts(rows=8)
        total = (batch["labels"] >= 0).sum()
        for cut in cuts:
            (term,) = LM.loss(Outputs(logits=hidden[cut] @ head.t()), {"labels": batch["labels"][cut]})
            (term.sum / total).backward()
        assert head.grad is not None
        return head.grad

    whole = gradient([slice(0, 8)])
    torch.testing.assert_close(gradient([slice(0, 1), slice(1, 8)]), whole, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient([slice(0, 4), slice(4, 8)]), whole, rtol=1e-6, atol=1e-6)


def merged(*counts: dict[str, float]) -> dict[str, float]:
    return {name: sum(each[name] for each in counts) for name in counts[0]}


def test_case_e2_metrics_are_of_tokens_and_not_of_batches() -> None:
    counts = merged(
        {"loss_sum": 0.0, "tokens": 256, "correct": 0.7 * 256},
        {"loss_sum": 0.0, "tokens": 256, "correct": 0.8 * 256},
        {"loss_sum": 0.0, "tokens": 10, "correct": 9},
    )
    assert LM.value(counts)["accuracy"] == pytest.approx(0.752874, abs=1e-6)
    counts = merged(
        {"loss_sum": 2.0, "tokens": 1, "correct": 0},
        {"loss_sum": 90.0, "tokens": 9, "correct": 0},
    )
    assert LM.value(counts)["loss"] == pytest.approx(9.2)


@pytest.mark.parametrize("kind", ["logits", "hidden"])
def test_case_e2_counts_are_the_same_for_every_batch_size(kind: str) -> None:
    hidden, head, batch = parts(rows=12)
    results = []
    for size in (1, 5, 12):
        counts: dict[str, float] = {}
        for at in range(0, 12, size):
            cut = slice(at, at + size)
            part = {name: tensor[cut] for name, tensor in batch.items()}
            found = LM.evaluate(lambda tokens, cut=cut: outputs(kind, hidden[cut], head), part)
            counts = {name: counts.get(name, 0.0) + value.item() for name, value in found.items()}
        results.append(LM.value(counts))
    for result in results[1:]:
        assert result == pytest.approx(results[0], rel=1e-7)


def test_metrics_of_a_very_bad_model_and_of_known_bytes() -> None:
    assert LM.value({"loss_sum": 1e6, "tokens": 1.0, "correct": 0.0})["perplexity"] == math.inf
    values = LM.value({"loss_sum": math.log(2) * 12, "tokens": 4.0, "correct": 1.0, "bytes": 6.0})
    assert values["bits_per_byte"] == pytest.approx(2.0)
    assert LM.value({"loss_sum": 0.0, "tokens": 4.0, "correct": 1.0, "bytes": 0.0})["bits_per_byte"] is None


def test_the_model_gets_documents_only_where_there_are_some() -> None:
    batch: Any = {"tokens": 1, "labels": 2, "bytes": 3}
    assert LM.inputs(batch) == {"tokens": 1}
    assert LM.inputs({**batch, "positions": 4, "documents": 5}) == {
        "tokens": 1,
        "positions": 4,
        "documents": 5,
    }


def test_outputs_without_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="neither logits nor hidden"):
        LM.loss(Outputs(hidden=torch.zeros(1, 1, 2)), {"labels": torch.zeros(1, 1, dtype=torch.int64)})


MEASURE = """
import sys
import torch
from nlpkernel.hookspecs.model import Outputs
from nlpkernel_text import linear_loss
from nlpkernel_text.lm import LanguageModelling

torch.set_num_threads(1)
task, (what, keep) = LanguageModelling(), sys.argv[1:]
head = torch.randn(8000, 16)
kept = []

def peak():
    # Not ru_maxrss: a process inherits that from its parent, so one of a large test run would seem not to grow.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

def forward(tokens):
    hidden = torch.randn(*tokens.shape, 16)
    outputs = Outputs(hidden=hidden, head=head) if what == "hidden" else Outputs(logits=hidden @ head.t())
    if keep == "keep":
        kept.append(outputs)
    return outputs

labels = torch.randint(0, 8000, (8, 128))
batch = {"tokens": labels, "labels": labels}
before = peak()
if what == "loss":
    # 8,192 tokens: all logits would be 262 MB, and their gradient as much again.
    linear_loss.CHUNK = 1 << (30 if keep == "keep" else 20)
    hidden = torch.randn(8192, 16).requires_grad_()
    linear_loss.linear_cross_entropy(hidden, head.requires_grad_(), labels.repeat(8, 1).flatten()).backward()
else:
    # A fifth of the case: 400 rows of 128 tokens, of which all logits are 1.6 GB.
    with torch.no_grad():
        for _ in range(50):
            task.evaluate(forward, batch)
print(peak() - before)
"""


def measured(*arguments: str) -> int:
    """Bytes by which a process of its own grows."""
    done = subprocess.run([sys.executable, "-c", MEASURE, *arguments], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("kind", ["logits", "hidden"])
def test_case_e3_evaluation_keeps_no_logits(kind: str) -> None:
    assert measured(kind, "drop") < 300_000_000


def test_the_loss_of_hidden_states_never_holds_all_logits() -> None:
    assert measured("loss", "drop") < 80_000_000
    # In one chunk it does: the measure can tell.
    assert measured("loss", "keep") > 250_000_000
