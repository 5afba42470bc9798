"""The cost model against what workers send and hold: bytes on a network of their own, and bytes of their tensors."""

from __future__ import annotations

import json
import math
import os
import secrets
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from nlpkernel.plan import Plan
from nlpkernel_torchdist.cost import Step, bubble, bytes_sent, gather, memory
from nlpkernel_torchdist.layout import Layout
from nlpkernel_torchdist.pieces import share

CREW = Path(__file__).parent / "parts" / "cost_crew.py"
LAYERS, WIDTH, VOCABULARY, WINDOW, MICRO, BATCH = 4, 64, 257, 128, 2, 8
#: As in cost_crew.py.
BEFORE, AFTER = 2, 4
#: Of each block a norm, queries with keys and values, the projection after them, a norm, the feed-forward layer.
SHAPES = [
    *[
        (WIDTH,),
        (3 * WIDTH, WIDTH),
        (WIDTH, WIDTH),
        (WIDTH,),
        (4 * WIDTH, WIDTH),
        (WIDTH, 4 * WIDTH),
    ]
    * LAYERS,
    (VOCABULARY, WIDTH),
    (WINDOW, WIDTH),
    (WIDTH,),
]
BLOCK = 2 * WIDTH + 12 * WIDTH * WIDTH
TABLE = VOCABULARY * WIDTH
PARAMETERS = sum(map(math.prod, SHAPES))
#: Name to workers, layout and settings.
CASES: dict[str, tuple[int, Layout, dict[str, Any]]] = {
    "data 2": (2, Layout(data=2), {}),
    "zero 1, 2 workers": (2, Layout(data=2), {"shard": 1}),
    "zero 2, 2 workers": (2, Layout(data=2), {"shard": 2}),
    "zero 3, 2 workers": (2, Layout(data=2), {"shard": 3}),
    "zero 3, each micro-batch": (2, Layout(data=2), {"shard": 3, "reduce": "microbatch"}),
    "tensor 2": (2, Layout(tensor=2), {"tensor": 2}),
    "pipeline 2": (2, Layout(pipe=2), {"pipeline": 2}),
    "data 4": (4, Layout(data=4), {}),
    "zero 1, 4 workers": (4, Layout(data=4), {"shard": 1}),
    "zero 2, 4 workers": (4, Layout(data=4), {"shard": 2}),
    "zero 3, 4 workers": (4, Layout(data=4), {"shard": 3}),
    "data 2 x pipeline 2": (4, Layout(data=2, pipe=2), {"pipeline": 2}),
}
SHARDED = [name for name, (_, layout, _) in CASES.items() if layout.data == layout.workers]
Found = dict[str, list[dict[str, int]]]


def plan(name: str, workers: int, settings: dict[str, Any], corpus: Path) -> dict[str, Any]:
    return {
        "name": name,
        "train": {
            "steps": 99,
            "batch": BATCH,
            "micro": MICRO,
            "clip": 1.0,
            "threads": 1,
            "log": {"every": 99},
        },
        "data": {"use": "text", "paths": [str(corpus)], "window": WINDOW, "validation": 0},
        "model": {"use": "gpt", "layers": LAYERS, "heads": 4, "width": WIDTH},
        "optimizer": {"use": "adamw", "lr": 1e-3},
        "communicator": {"use": "torchdist", "workers": workers, **settings},
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each worker of each case found, by rank. Of several processes of pytest the first to ask lets them run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cost"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        if not (folder / "apart.json").exists():
            let_run(folder)
    measured = json.loads((folder / "apart.json").read_text())
    whole: Found = {}
    for name, (workers, _, _) in CASES.items():
        each = [json.loads((folder / f"found-{workers}-{rank}.json").read_text()) for rank in range(workers)]
        whole[name] = [{**one[name], "sent": one[name]["sent"] if measured else 0} for one in each]
    return whole


def let_run(folder: Path) -> None:
    corpus = folder / "corpus.txt"
    corpus.write_text("what is sent and held\n" * 500)
    cases: dict[int, dict[str, dict[str, str]]] = {4: {}, 2: {}}
    for number, (name, (workers, _, settings)) in enumerate(CASES.items()):
        path, run = folder / f"{number}.json", folder / f"run-{number}"
        path.write_text(json.dumps(plan(run.name, workers, settings, corpus)))
        run.mkdir()
        (run / "plan.toml").write_text(Plan.load(path).text())
        cases[workers][name] = {"plan": str(path), "run": str(run), "launch": secrets.token_hex(4)}
    (folder / "cases.json").write_text(json.dumps(cases))
    own = {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "NLPKERNEL_CACHE": str(folder / "cache"),
    }
    with (folder / "log").open("w") as log:
        done = subprocess.run(
            [sys.executable, str(CREW), str(folder)], stdout=log, stderr=log, env=os.environ | own
        )
    assert not done.returncode, (folder / "log").read_text()[-4000:]


def step_of(layout: Layout) -> Step:
    return Step(
        parameters=PARAMETERS,
        blocks=LAYERS,
        block=BLOCK,
        width=WIDTH,
        vocabulary=VOCABULARY,
        rounds=BATCH // MICRO // layout.data,
        positions=MICRO * WINDOW,
        tied=TABLE,
    )


def shard_of(name: str) -> Any:
    return CASES[name][2].get("shard", 0)


def rounding() -> int:
    """Bytes of one row of each tensor."""
    return sum(4 * math.prod(shape[1:]) for shape in SHAPES)


@pytest.mark.parametrize("name", CASES)
def test_workers_send_as_many_bytes_as_the_formula_says(found, name):
    """All that went over a network of their own, with what TCP adds. Never less: nothing else sends."""
    workers, layout, settings = CASES[name]
    if not found[name][0]["sent"]:
        pytest.skip("this machine allows no network of one's own, so nothing was measured")
    reduce = settings.get("reduce", "window")
    expected = bytes_sent(layout, shard_of(name), step_of(layout), reduce=reduce, backend="gloo").total
    sent = statistics.mean(one["sent"] for one in found[name]) / (AFTER - BEFORE) / workers
    assert 1.0 <= sent / expected <= 1.03, f"{sent:,.0f} bytes a step and worker, and not {expected:,.0f}"


@pytest.mark.parametrize("name", SHARDED)
def test_workers_hold_as_many_bytes_as_the_formula_says(found, name):
    """Up to a row of each tensor, which are cut between rows, in stage 1 up to the one row at each end of a part; and
    all workers together hold no byte twice of what is divided."""
    workers, layout, _ = CASES[name]
    shard, expected = shard_of(name), memory(layout, shard_of(name), step_of(layout))
    for what, kept, factor, divided in (
        ("parameters", expected.parameters, 1, shard > 1),
        ("gradients", expected.gradients, 1, shard > 1),
        ("optimizer", expected.optimizer, 2, shard > 0),
    ):
        each = [one[what] for one in found[name]]
        row = 0 if not divided else rounding() if shard > 1 else 4 * max(math.prod(s[1:]) for s in SHAPES)
        assert all(abs(held - kept) <= factor * row for held in each), (what, each, kept)
        assert sum(each) == 4 * PARAMETERS * factor * (1 if divided else workers), what


@pytest.mark.parametrize("name", [name for name in SHARDED if CASES[name][2].get("shard", 0) > 1])
def test_shards_are_cut_as_torch_chunks_rows(found, name):
    workers = CASES[name][0]
    for rank, one in enumerate(found[name]):
        rows = [share(shape[0], rank, workers) for shape in SHAPES]
        exact = sum(
            4 * (stop - start) * math.prod(shape[1:])
            for shape, (start, stop) in zip(SHAPES, rows, strict=True)
        )
        assert one["parameters"] == one["gradients"] == exact
        assert one["optimizer"] == 2 * exact


@pytest.mark.parametrize("name", SHARDED)
def test_tensors_have_no_more_memory_than_they_show(found, name):
    """Memory behind the tensors, each piece of it once: nothing is a view of something larger, but for what makes
    shards of equal size."""
    padded = sum(4 * math.prod(shape[1:]) * -(-shape[0] // CASES[name][0]) for shape in SHAPES)
    for one in found[name]:
        for what, behind in (("parameters", "parameter_memory"), ("gradients", "gradient_memory")):
            assert one[what] <= one[behind] <= (padded if shard_of(name) > 1 else one[what])
        assert one["optimizer_memory"] == one["optimizer"]


@pytest.mark.parametrize("name", SHARDED)
def test_parameters_are_whole_when_the_formula_says(found, name):
    layout, shard = CASES[name][1], shard_of(name)
    step = step_of(layout)
    expected = memory(layout, shard, step)
    for one in found[name]:
        if shard < 3:
            assert one["whole"] == expected.whole
        else:
            # On a CPU the next block is not gathered ahead.
            fewer = expected.whole - gather(4 * BLOCK, layout.data)
            assert abs(one["whole"] - fewer) <= rounding()


def test_the_bubble_is_the_time_that_a_schedule_leaves():
    """1F1B and GPipe: of m + p - 1 slots of forward and backward each stage uses m."""
    assert bubble(1, 7) == 0.0
    assert bubble(4, 4) == pytest.approx(3 / 7)
    assert bubble(4, 8, virtual=2) == pytest.approx(3 / 19)


def test_stage_3_sends_half_as_much_again_as_replicas():
    """ZeRO: Rajbhandari et al., 2020."""
    step, layout = Step(parameters=1000), Layout(data=8)
    sent = {shard: bytes_sent(layout, shard, step).total for shard in (0, 1, 2, 3)}
    assert sent[2] == sent[0]
    assert sent[1] == sent[3] == pytest.approx(1.5 * sent[0])
