"""A version taken up for use."""

from __future__ import annotations

import pytest
import torch

from nlpkernel import open_model
from nlpkernel.errors import CheckpointError, TrainingError, UsageError
from nlpkernel.events import Evaluated


@pytest.fixture
def trained(bench):
    return bench.run(
        model={"hidden": 4, "dropout": 0.5},
        train={"steps": 4, "evaluate": {"every": 2}},
        checkpoint=bench.use("Shelf", every=2),
    )


def test_the_newest_version_gives_the_weights_at_the_end(trained):
    opened = open_model(trained.folder)
    assert opened.model.state_dict().keys() == trained.weights.keys()
    assert all(torch.equal(value, trained.weights[name]) for name, value in opened.model.state_dict().items())
    assert (opened.version, opened.step) == ("step-0004", 4)
    assert opened.device == torch.device("cpu")
    assert not opened.model.training
    assert opened.task.name == "regression"
    assert opened.info.window == 4
    assert opened.codec.decode(opened.codec.encode("ab")) == "ab"
    assert opened.plan.name == "tiny"


def test_it_computes_what_the_evaluation_of_the_run_computed(bench, trained):
    from nlpkernel.context import Run
    from nlpkernel.plan.train import Train
    from nlpkernel_sdk.regression import RegressionData
    from nlpkernel_sdk.tiny import TinyData

    run = Run(name="x", folder=bench.folder, cache=bench.folder, train=Train(batch=8))
    data = RegressionData(TinyData(), run)
    for version, event in zip(("step-0002", "step-0004"), trained.of(Evaluated), strict=True):
        opened = open_model(trained.folder, version=version, device="cpu")
        with torch.no_grad():
            counts = [opened.task.evaluate(opened.model, batch) for batch in data.evaluation("validation")]
        merged = {name: float(sum(each[name] for each in counts)) for name in counts[0]}
        assert opened.task.value(merged) == event.metrics
        assert opened.version == version


def test_a_version_keeps_the_weights_of_evaluations_beside_those_of_the_training(bench):
    sections = {"train": {"steps": 4, "evaluate": {"every": 2}}, "checkpoint": bench.use("Shelf", every=2)}
    ran = bench.run(bench.use("Other", value=0.5), **sections)
    opened = open_model(ran.folder)
    assert all((value == 0.5).all() for value in opened.model.state_dict().values())
    tree = bench.shelf(ran.folder).load().tree
    own = {
        path.removeprefix("model/"): leaf.value for path, leaf in tree.items() if path.startswith("model/")
    }
    assert all(torch.equal(value, ran.weights[name]) for name, value in own.items())
    resumed = bench.run(bench.use("Other", value=0.5), resume="step-0002", **sections)
    assert all(torch.equal(value, ran.weights[name]) for name, value in resumed.weights.items())


def test_latest_names_the_newest_run(bench, trained):
    assert open_model(bench.folder / "latest").version == "step-0004"


def test_buffers_that_no_version_holds_are_made_again(bench):
    ran = bench.run(model=bench.use("Tabled"), checkpoint=bench.use("Shelf"))
    version = bench.shelf(ran.folder).load()
    assert "model/table" not in version.tree
    assert open_model(ran.folder).model.table.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_opening_moves_no_generator(trained):
    before = torch.get_rng_state()
    open_model(trained.folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_not_there_is_refused(bench, trained):
    with pytest.raises(UsageError, match="NK303"):
        open_model(bench.folder / "other")
    with pytest.raises(TrainingError, match="NK401"):
        open_model(trained.folder, device="cuda:7")
    bench.run(name="bare")
    with pytest.raises(UsageError, match="NK304"):
        open_model(bench.folder / "bare")
    bench.run(name="empty", checkpoint=bench.use("Shelf", full=4))
    with pytest.raises(CheckpointError, match="NK501"):
        open_model(bench.folder / "empty")
