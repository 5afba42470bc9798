"""What `check` says of a layout: sizes of one worker, and settings that do not go with the rest of the plan."""

from __future__ import annotations

import pytest

from nlpkernel import Plan
from nlpkernel.errors import PlanError
from nlpkernel.plan.fit import check_fit, estimate


def plan(communicator, tmp_path, *, model=None, optimizer=None, train=None):
    return Plan.of(
        {
            "name": "fit",
            "train": {"steps": 1, "batch": 8, "micro": 2, **(train or {})},
            "data": {"use": "text", "paths": [str(tmp_path / "*.txt")], "window": 16, "tokenizer": "bytes"},
            "model": {"use": "gpt", "layers": 4, "heads": 4, "width": 32, **(model or {})},
            "optimizer": optimizer or {"use": "adamw", "lr": 1e-3},
            "communicator": {"use": "torchdist", **communicator},
        }
    )


def problems(communicator, tmp_path, **changes):
    with pytest.raises(PlanError) as caught:
        check_fit(plan(communicator, tmp_path, **changes))
    return [problem.message for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"workers": 4}, (1, 1, 1)),
        ({"workers": 4, "shard": 1}, (1, 1, 4)),
        ({"workers": 4, "shard": 2}, (1, 4, 4)),
        ({"workers": 4, "shard": 3}, (4, 4, 4)),
        ({"workers": 4, "tensor": 2, "shard": 3}, (4, 4, 4)),
        ({"workers": 4, "tensor": 2}, (2, 2, 2)),
        ({"workers": 8, "tensor": 2, "pipeline": 2, "shard": 1}, (4, 4, 8)),
    ],
)
def test_sizes_are_those_of_one_worker(settings, parts, tmp_path):
    alone, facts = estimate(plan({"workers": 1}, tmp_path)), estimate(plan(settings, tmp_path))
    assert alone.parameter_bytes is not None
    for name, part in zip(("parameter", "gradient", "optimizer"), parts, strict=True):
        whole, own = getattr(alone, f"{name}_bytes"), getattr(facts, f"{name}_bytes")
        assert own == -(-whole // part), name
    assert facts.parameter_parts == parts[0]


def test_a_version_is_as_large_as_without_shards(tmp_path):
    sizes = []
    for shard in (0, 3):
        content = plan({"workers": 4, "shard": shard}, tmp_path).filled.plain()
        facts = estimate(Plan.of({**content, "checkpoint": {"use": "store"}}))
        sizes.append(next(note for note in facts.notes if note.startswith("a version takes")))
    assert sizes[0] == sizes[1]


def test_layouts_that_the_model_does_not_allow_are_told_all_at_once(tmp_path):
    settings = {"workers": 8, "tensor": 2, "pipeline": 2, "schedule": "interleaved"}
    changes = {"model": {"layers": 2, "heads": 3, "width": 33}, "optimizer": {"use": "muon", "lr": 0.01}}
    found = problems(settings, tmp_path, **changes)
    assert len(found) == 3
    assert "4 stages, and the model only 2 blocks" in found[0]
    assert "3 equal parts with whole heads, which do not divide among 2 workers" in found[1]
    assert "the optimizer needs whole tensors, and tensor = 2" in found[2]


@pytest.mark.parametrize("shard", [2, 3])
def test_an_optimizer_of_whole_tensors_does_not_go_with_pieces(shard, tmp_path):
    muon = {"use": "muon", "lr": 0.01}
    assert "shard = " in problems({"shard": shard}, tmp_path, optimizer=muon)[0]
    check_fit(plan({"shard": 1}, tmp_path, optimizer=muon))


def test_key_value_heads_count(tmp_path):
    llama = {"use": "llama", "heads": 4, "kv_heads": 1, "hidden": 64, "layers": 2}
    assert "1 equal parts" in problems({"tensor": 2}, tmp_path, model=llama)[0]


def test_truncate_that_leaves_nothing_is_refused(tmp_path):
    found = problems({"workers": 8, "uneven": "truncate"}, tmp_path)
    assert found == ["communicator: " + _NOTHING]
    check_fit(plan({"workers": 4, "uneven": "truncate"}, tmp_path))


_NOTHING = "a window has 4 micro-batches, and 8 data workers: with truncate nothing would ever be trained on"


def test_what_is_wasted_is_said(tmp_path):
    notes = " ".join(estimate(plan({"workers": 3}, tmp_path)).notes)
    assert "2 of 6 forwards count nothing" in notes
    notes = " ".join(estimate(plan({"workers": 2, "pipeline": 2}, tmp_path)).notes)
    assert "4 micro-batches go through 2 stages, which wait 20% of the time" in notes


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"workers": 3, "tensor": 2}, "workers"),
        ({"workers": 4, "tensor": 2, "data": 4}, "data"),
        ({"offload": True}, "offload"),
        ({"reduce": "microbatch"}, "reduce"),
        ({"schedule": "interleaved"}, "schedule"),
        ({"workers": 4, "pipeline": 2, "shard": 3}, "shard"),
    ],
)
def test_settings_that_do_not_go_together(settings, name, tmp_path):
    with pytest.raises(PlanError) as caught:
        plan(settings, tmp_path)
    assert [problem.code for problem in caught.value.problems] == ["NK108"]
    assert name in caught.value.problems[0].message


def test_a_network_that_has_to_be_trusted_is_told_of_with_the_reason(tmp_path):
    notes = [
        estimate(plan({"workers": 2, "trusted_network": trust}, tmp_path)).notes for trust in (False, True)
    ]
    assert not any("trusted_network" in note for note in notes[0])
    (told,) = [note for note in notes[1] if "trusted_network" in note]
    assert "neither encrypted nor authenticated" in told
