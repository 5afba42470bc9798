"""What a run sees of the optimizers."""

import pytest
import torch

import nlpkernel
from nlpkernel.errors import PlanError, TrainingError
from nlpkernel.events import Evaluated, Logged
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel.hookspecs.model import ParameterGroup
from nlpkernel_schedule_free.codes import CODES
from nlpkernel_schedule_free.component import ScheduleFreeAdamW, ScheduleFreeSgd
from nlpkernel_sdk import record, tiny_plan
from nlpkernel_sdk.light import brought, faults_of_codes, without_help
from nlpkernel_sdk.regression import RegressionData
from nlpkernel_sdk.testing import make_run
from nlpkernel_sdk.tiny import TinyData

USES = ["schedule-free-adamw", "schedule-free-sgd"]


def plan(use, steps=12, lr=0.05, **sections):
    return tiny_plan(
        train={"steps": steps, "batch": 64, "evaluate": {"every": 3}},
        optimizer={"use": use, "lr": lr, "warmup": 4},
        **sections,
    )


def losses(events):
    return [event.metrics["loss"] for event in events if isinstance(event, Evaluated)]


def until(events, step):
    """What is logged until a step; then the run is closed as an interrupted one is."""
    heard = []
    for event in events:
        if isinstance(event, (Logged, Evaluated)):
            heard.append(event)
        if isinstance(event, Evaluated) and event.progress.step == step:
            break
    events.close()
    return heard


@pytest.mark.parametrize("use", USES)
def test_a_tiny_model_learns_as_well_as_with_a_schedule(tmp_path, use):
    heard = losses(record(plan(use, steps=200, lr=0.2), tmp_path / "free"))
    known = losses(
        record(
            tiny_plan(
                train={"steps": 200, "batch": 64, "evaluate": {"every": 3}},
                optimizer={"use": "tiny", "lr": 0.2, "decay": "linear"},
            ),
            tmp_path / "linear",
        )
    )
    assert heard[-1] < 1.5 * known[-1] < 0.1 * heard[0]


def test_an_evaluation_sees_the_average_and_the_training_does_not(tmp_path):
    heard = losses(record(plan("schedule-free-sgd"), tmp_path))[-1]
    data = RegressionData(TinyData(), make_run(tmp_path / "own", batch=64, steps=1))
    rows = data.microbatch(0, 0)
    inputs = torch.cat([rows["x"].double(), torch.ones(64, 1)], 1)
    (held,) = data.evaluation("validation")
    seen = torch.cat([held["x"].double(), torch.ones(10, 1)], 1)

    session = nlpkernel.train(plan("schedule-free-sgd", steps=1, lr=1e-9), runs_folder=tmp_path / "start")
    start = losses(list(session))[-1]

    def loss(w):
        return float((seen @ w - held["y"].double()).square().mean())

    first = _start(tmp_path)
    assert loss(first) == pytest.approx(start, rel=1e-5)
    z, x, squares = first, first, 0.0
    for t in range(1, 13):
        y = 0.1 * z + 0.9 * x
        rate = 0.05 * min(1, t / 4)
        z = z - rate * 2 / 64 * inputs.T @ (inputs @ y - rows["y"].double())
        squares += rate**2
        x = x + rate**2 / squares * (z - x)
    assert heard == pytest.approx(loss(x), rel=1e-4)
    assert abs(loss(0.1 * z + 0.9 * x) / heard - 1) > 1e-3


def _start(tmp_path):
    """The weights of the tiny model at the beginning, the bias last."""
    kept = {}
    made = plan("schedule-free-sgd", steps=1, lr=1e-9, checkpoint={"use": "memory", "every": 1})
    folder = tmp_path / "kept"
    nlpkernel.run(made, runs_folder=folder)
    from nlpkernel_sdk.keeping import KEPT

    for path, leaf in KEPT[folder / "tiny"][-1].tree.items():
        if path.startswith("model/"):
            kept[path] = leaf.value.double()
    return torch.cat([kept["model/head.weight"][0], kept["model/head.bias"]])


@pytest.mark.parametrize("use", USES)
def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(tmp_path, use):
    made = plan(use, checkpoint={"use": "memory", "every": 6})
    whole = until(nlpkernel.train(made, runs_folder=tmp_path / "whole"), 12)
    broken = until(nlpkernel.train(made, runs_folder=tmp_path / "broken"), 6)
    broken += until(nlpkernel.train(made, runs_folder=tmp_path / "broken", resume="newest"), 12)
    # A run that is closed in between reads the device once less or more; the numbers are the same.
    assert [each.metrics for each in broken] == [each.metrics for each in whole]
    assert len({each.metrics["loss"] for each in whole}) == 16


@pytest.mark.parametrize("use", USES)
def test_evaluations_change_nothing_of_the_training(tmp_path, use):
    def logged(every, folder):
        made = tiny_plan(train={"steps": 9, "evaluate": {"every": every}}, optimizer={"use": use, "lr": 0.05})
        return [e.metrics for e in record(made, tmp_path / folder) if isinstance(e, Logged)]

    assert logged(1, "often") == logged(9, "once")


def test_the_rate_rises_and_stays(tmp_path):
    rates = [
        event.metrics["rate"]
        for event in record(plan("schedule-free-adamw", steps=6), tmp_path)
        if isinstance(event, Logged)
    ]
    assert rates == pytest.approx([0.0125, 0.025, 0.0375, 0.05, 0.05, 0.05])


def test_decay_is_for_the_groups_that_have_it(tmp_path):
    groups = [
        ParameterGroup(
            names=["w"], tensors=[torch.nn.Parameter(torch.ones(2, 2))], decay=True, tags=frozenset()
        ),
        ParameterGroup(
            names=["b"], tensors=[torch.nn.Parameter(torch.ones(2))], decay=False, tags=frozenset()
        ),
    ]
    made = make_run(tmp_path).ask(
        ScheduleFreeSgd(lr=0.5, weight_decay=0.1), "create_optimizer", groups=groups
    )
    for group in groups:
        group.tensors[0].grad = torch.zeros_like(group.tensors[0])
    made.step()
    assert torch.allclose(groups[0].tensors[0], torch.full((2, 2), 0.95))
    assert torch.equal(groups[1].tensors[0], torch.ones(2))


def test_short_parameters_are_refused_by_name(tmp_path):
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    group = ParameterGroup(names=["blocks.0.w"], tensors=[weight], decay=True, tags=frozenset())
    with pytest.raises(TrainingError, match=r"blocks\.0\.w") as caught:
        make_run(tmp_path).ask(ScheduleFreeAdamW(lr=0.1), "create_optimizer", groups=[group])
    assert caught.value.problems[0].code == "SFR002"


def test_nothing_to_train_is_an_error(tmp_path):
    with pytest.raises(TrainingError) as caught:
        make_run(tmp_path).ask(ScheduleFreeSgd(lr=0.1), "create_optimizer", groups=[])
    assert caught.value.problems[0].code == "SFR001"


def test_a_worker_without_the_state_does_not_evaluate_other_weights_in_silence(tmp_path):
    run, component = make_run(tmp_path), ScheduleFreeSgd(lr=0.1)
    weight = torch.nn.Parameter(torch.ones(2))
    group = ParameterGroup(names=["w"], tensors=[weight], decay=True, tags=frozenset())
    run.ask(component, "create_optimizer", groups=[group])
    with run.ask(component, "weights_for"):
        assert torch.equal(weight, torch.ones(2))
    run.progress = run.progress._replace(step=3, updates=3)
    with pytest.raises(TrainingError) as caught:
        run.ask(component, "weights_for")
    assert caught.value.problems[0].code == "SFR003"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts(parameter_parts=1, optimizer_parts=2, trainable=10, optimizer_bytes=40), ["shard 0 and 3"]),
        (Facts(parameter_parts=4, optimizer_parts=4, trainable=10, optimizer_bytes=40), []),
        (Facts(trainable=10, optimizer_bytes=0), ["not on the workers"]),
        (Facts(), []),
    ],
)
def test_layouts_that_divide_weights_and_state_otherwise_do_not_fit(facts, words):
    found = list(ScheduleFreeAdamW(lr=0.1).misfits(facts))
    assert [name for name, _ in found] == ["beta"] * len(words)
    assert all(word in reason for word, (_, reason) in zip(words, found, strict=True))


def test_the_state_is_as_large_as_it_says():
    facts = Facts(parameters=100, trainable=50, parameter_bytes=400)
    assert ScheduleFreeAdamW(lr=0.1).estimate(facts).optimizer_bytes == 400
    assert ScheduleFreeSgd(lr=0.1).estimate(facts).optimizer_bytes == 200


@pytest.mark.parametrize("name", ["beta", "lr", "warmup"])
def test_a_setting_out_of_range_is_a_mistake_in_the_plan(name):
    value = {"beta": 1.0, "lr": 0.0, "warmup": -1}[name]
    with pytest.raises(PlanError, match=name):
        tiny_plan(optimizer={"use": "schedule-free-sgd", "lr": 0.1, name: value}).compose()


def test_it_is_light_and_says_what_its_settings_and_codes_are():
    import nlpkernel_schedule_free

    assert not brought(["nlpkernel_schedule_free.component"], ["torch", "numpy"])
    assert without_help(ScheduleFreeAdamW) == without_help(ScheduleFreeSgd) == []
    assert faults_of_codes(nlpkernel_schedule_free, CODES) == []
