"""The same logits and losses as the library's own models, with the same weights."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from nlpkernel_hf.component import Hf

DECODERS = ("gpt2", "llama", "mixtral")
ENCODERS = ("bert", "roberta")
ALL = (*DECODERS, *ENCODERS, "t5")
CLASSES = ("no", "perhaps", "yes")
#: What the library calls padding.
PAD = {"roberta": 1}


def asked(lab: Any, kind: str) -> tuple[dict[str, Any], dict[str, Any], torch.Tensor]:
    """What our model is given, what the library's is, and labels of what we give logits for (-100: none)."""
    tokens, mask = lab.tokens(), lab.mask()
    if kind in DECODERS:
        # Ours is told nothing of the padding, and theirs everything.
        return {"tokens": tokens}, {"input_ids": tokens, "attention_mask": mask}, lab.padded(tokens, -100)
    theirs = {"input_ids": lab.padded(tokens, PAD.get(kind, 0)), "attention_mask": mask}
    # Behind the length anything may stand.
    ours = {"tokens": lab.padded(tokens, 7), "lengths": torch.tensor(lab.lengths)}
    if kind == "t5":
        target = lab.tokens(1, 6)
        target[:, 0] = 0
        ours["target"], theirs["decoder_input_ids"] = target, target
        return ours, theirs, lab.padded(lab.tokens(2, 6), -100, (6, 3, 1, 5))
    return ours, theirs, lab.padded(tokens, -100)


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return float(functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100))


def agree(lab: Any, kind: str, ours: Any, theirs: Any) -> None:
    mine, their, labels = asked(lab, kind)
    real = labels != -100
    with torch.no_grad():
        logits, reference = ours(**mine).logits, theirs(**their).logits
        # The library shifts a decoder's labels itself; ours are shifted by the task.
        loss = loss_of(reference, labels) if kind in DECODERS else float(theirs(**their, labels=labels).loss)
    assert logits[real].std() > 1e-3
    assert (logits - reference)[real].abs().max() < 1e-6
    assert loss_of(logits, labels) == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("kind", ALL)
def test_a_model_from_a_configuration_gives_what_the_library_gives(lab: Any, kind: str) -> None:
    ours = lab.of(kind)
    agree(lab, kind, ours, lab.library(kind, lab.task(kind), ours))


@pytest.mark.parametrize("kind", ALL)
def test_a_model_from_a_folder_gives_what_the_library_gives(lab: Any, kind: str, tmp_path: Path) -> None:
    theirs = lab.library(kind, lab.task(kind))
    theirs.save_pretrained(tmp_path / "saved")
    window = 15 if kind in DECODERS else 14
    ours = lab.model(Hf(folder=tmp_path / "saved"), lab.info(lab.task(kind), window=window)).module
    for name, weight in theirs.named_parameters():
        assert torch.equal(ours.model.get_parameter(name), weight), name
    agree(lab, kind, ours, theirs)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "mixtral"])
def test_shards_are_read_like_one_file(lab: Any, kind: str, tmp_path: Path) -> None:
    theirs = lab.library(kind, lab.task(kind))
    theirs.save_pretrained(tmp_path / "saved", max_shard_size="20KB")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 2
    ours = lab.model(Hf(folder=tmp_path / "saved"), lab.info(lab.task(kind), window=14)).module
    for name, weight in theirs.named_parameters():
        assert torch.equal(ours.model.get_parameter(name), weight), name


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ALL)
def test_both_ways_to_compute_attention_agree(lab: Any, kind: str, attention: str) -> None:
    mine, _, labels = asked(lab, kind)
    one, other = lab.of(kind), lab.of(kind, attention=attention)
    assert other.model.config._attn_implementation == attention
    with torch.no_grad():
        gap = (one(**mine).logits - other(**mine).logits)[labels != -100]
    assert gap.abs().max() < 1e-5


@pytest.mark.parametrize("kind", ENCODERS)
def test_masked_positions_alone_go_through_the_head(lab: Any, kind: str) -> None:
    ours = lab.of(kind)
    mine, _, _ = asked(lab, kind)
    at = torch.tensor([[0, 3, 14], [8, 1, 0], [0, 0, 0], [2, 11, 5]])
    with torch.no_grad():
        everything, chosen = ours(**mine).logits, ours(**mine, at=at).logits
    assert chosen.shape == (4, 3, 50)
    assert (chosen - everything.gather(1, at.unsqueeze(-1).expand(-1, -1, 50))).abs().max() < 1e-6


@pytest.mark.parametrize("task", ["classification", "tokens"])
@pytest.mark.parametrize("kind", [*ENCODERS, *DECODERS])
def test_classes_of_rows_and_of_tokens_are_those_of_the_library(lab: Any, kind: str, task: str) -> None:
    ours = lab.model(lab.settings(kind), lab.info(task, CLASSES)).module
    pad = PAD.get(kind, 0)
    theirs = lab.library(kind, task, ours, num_labels=3, pad_token_id=pad)
    tokens = lab.tokens()
    with torch.no_grad():
        logits = ours(tokens=lab.padded(tokens, 7), lengths=torch.tensor(lab.lengths)).logits
        reference = theirs(lab.padded(tokens, pad), attention_mask=lab.mask()).logits
    if task == "tokens":
        real = lab.mask().bool()
        logits, reference = logits[real], reference[real]
    assert logits.shape == (4 if task == "classification" else sum(lab.lengths), 3)
    assert (logits - reference).abs().max() < 1e-6
    assert ours.model.config.id2label == {0: "no", 1: "perhaps", 2: "yes"}


@pytest.mark.parametrize("pool", ["mean", "first", "last"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2", "t5"])
def test_a_pair_is_two_texts_each_read_as_if_alone(lab: Any, kind: str, pool: str) -> None:
    ours = lab.of(kind, "pairs", pool=pool)
    first, second = lab.tokens(0, 9), lab.tokens(1, 13)
    one, other = torch.tensor([9, 4, 1, 7]), torch.tensor([2, 13, 5, 1])
    with torch.no_grad():
        hidden = ours(tokens=first, lengths=one, target=second, target_lengths=other).hidden
        assert hidden.shape == (4, 2, 32)
        for row in range(4):
            for side, (tokens, lengths) in enumerate(((first, one), (second, other))):
                length = int(lengths[row])
                states = ours.model(input_ids=tokens[row : row + 1, :length])[0][0]
                wanted = {"mean": states.mean(0), "first": states[0], "last": states[-1]}[pool]
                assert (hidden[row, side] - wanted).abs().max() < 1e-6


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", [*DECODERS, *ENCODERS])
def test_isolated_documents_are_read_as_if_alone(lab: Any, kind: str, attention: str) -> None:
    ours = lab.of(kind, attention=attention)
    tokens = lab.tokens(rows=2)
    cuts = ([0, 6, 10, 15], [0, 1, 9, 15])
    documents, positions = torch.zeros_like(tokens), torch.zeros_like(tokens)
    spans = [(row, start, stop) for row, ends in enumerate(cuts) for start, stop in pairwise(ends)]
    for number, (row, start, stop) in enumerate(spans):
        documents[row, start:stop] = number
        positions[row, start:stop] = torch.arange(stop - start)
    with torch.no_grad():
        logits = ours(tokens=tokens, positions=positions, documents=documents).logits
        for row, start, stop in spans:
            alone = ours(tokens=tokens[row : row + 1, start:stop]).logits[0]
            assert (logits[row, start:stop] - alone).abs().max() < 1e-6


def test_an_encoder_that_models_language_does_not_see_what_it_predicts(lab: Any) -> None:
    ours, tokens = lab.of("bert", "lm"), lab.tokens()
    changed = tokens.clone()
    changed[:, 8:] = 3
    with torch.no_grad():
        before, after = ours(tokens).logits, ours(changed).logits
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])
