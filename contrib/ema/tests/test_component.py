import pytest
import torch
from torch import nn

from nlpkernel import open_model
from nlpkernel.engine.api import Loop
from nlpkernel.errors import PlanError
from nlpkernel.events import Evaluated
from nlpkernel_ema.averages import Averages
from nlpkernel_sdk import record, tiny_plan


def plan(transform, steps=6, **sections):
    return tiny_plan(
        data={"use": "tiny-text"},
        model={"use": "tiny-text", "transform": transform},
        train={"steps": steps, "evaluate": {"every": 3}},
        **sections,
    )


def losses(events):
    return [event.metrics["loss"] for event in events if isinstance(event, Evaluated)]


def test_the_average_is_the_formula_and_weights_come_back_bit_for_bit():
    module = nn.Linear(3, 2, bias=False)
    averages = Averages(module, 0.9, warmup=False)
    seen = [torch.full((2, 3), float(value)) for value in (1, 2, 5)]
    for weight in seen:
        module.weight.data.copy_(weight)
        averages.update()
    wanted = 0.9 * (0.9 * seen[0] + 0.1 * seen[1]) + 0.1 * seen[2]
    with averages.held():
        assert torch.allclose(module.weight, wanted)
    assert torch.equal(module.weight, seen[2])
    slow = Averages(module, 0.999, warmup=True)
    slow.update()
    module.weight.data.copy_(seen[0])
    slow.update()
    # At the second update a quarter of the average is kept: 3 / 12.
    with slow.held():
        assert torch.allclose(module.weight, 0.25 * seen[2] + 0.75 * seen[0])


def test_evaluations_see_the_average_and_training_does_not(tmp_path):
    without = record(plan([]), tmp_path / "without")
    with_it = record(plan([{"use": "ema", "decay": 0.5}]), tmp_path / "with")
    assert losses(with_it) != losses(without)
    nearly = record(plan([{"use": "ema", "decay": 1e-12}]), tmp_path / "nearly")
    assert losses(nearly) == pytest.approx(losses(without))


def test_the_state_goes_on_with_the_same_average():
    module = nn.Linear(3, 2)
    first = Averages(module, 0.9, warmup=True)
    first.update()
    second = Averages(module, 0.9, warmup=True)
    second.load_state(first.state())
    module.weight.data.add_(1)
    first.update()
    second.update()
    assert second.state()["updates"] == 2
    assert torch.equal(first.state()["mean/weight"], second.state()["mean/weight"])
    assert not torch.equal(first.state()["mean/weight"], module.weight)


def test_other_parameters_are_refused():
    averages = Averages(nn.Linear(3, 2), 0.9, warmup=False)
    averages.update()
    with pytest.raises(ValueError, match="other parameters"):
        Averages(nn.Linear(2, 2), 0.9, warmup=False).load_state(averages.state())


def test_a_decay_of_one_is_a_mistake_in_the_plan():
    with pytest.raises(PlanError, match="decay"):
        plan([{"use": "ema", "decay": 1.0}]).compose()


def test_what_opens_a_version_gets_the_average(tmp_path):
    transform = [{"use": "ema", "decay": 0.5, "warmup": False}]
    whole = plan(transform, steps=1, checkpoint={"use": "memory"})
    record(whole, tmp_path)
    first = open_model(tmp_path / whole.name, device="cpu").model.state_dict()
    longer = plan(transform, steps=2, checkpoint={"use": "memory"})
    weights = {}

    def watch(session):
        weights.update({name: each.detach().clone() for name, each in session.work.model.named_parameters()})

    loop = Loop(longer, tmp_path / "longer")
    for session in loop.steps():
        watch(session)
    opened = open_model(tmp_path / "longer", device="cpu").model
    for name, value in opened.named_parameters():
        assert torch.allclose(value, 0.5 * first[name] + 0.5 * weights[name])
