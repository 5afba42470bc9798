"""What a worker does in windows and rounds that are not its own: left out, over long ago, or of another version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nlpkernel.engine.memory import Memory
from nlpkernel.engine.session import Session
from nlpkernel.errors import TrainingError
from nlpkernel.hookspecs.everywhere import Action, Decision
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.worker import exchange as exchanging
from nlpkernel_zmq.worker.exchange import Exchange
from nlpkernel_zmq.worker.free import FreeGroup
from nlpkernel_zmq.worker.link import Link, Server

LEFT_OUT = 3


class Pushes:
    """In the place of an exchange: which windows were pushed, and whether empty."""

    up = None

    def __init__(self) -> None:
        self.made: list[tuple[int, bool]] = []
        self.gradients = SimpleNamespace(watch=lambda on: None)
        self._window = -1

    def begin(self, share: int, of: int, step: int, *, window: int) -> None:
        self._window = window

    def end(self, *, empty: bool, **named: Any) -> None:
        self.made.append((self._window, empty))

    def take_up(self, window: int) -> None:
        pass


def work() -> Any:
    """Windows of two micro-batches that weigh something."""
    batch = SimpleNamespace(weights={"loss": 1.0})
    return SimpleNamespace(
        data=SimpleNamespace(window=lambda step: [batch, batch]),
        precision=SimpleNamespace(scaled=False),
        gradients_local=None,
        backward=None,
        schedule=SimpleNamespace(factor=lambda updates: 1.0),
        optimizer=SimpleNamespace(param_groups=[]),
        named=[],
        left_out=lambda window: window == LEFT_OUT,
    )


def free(*windows: int) -> Any:
    """A worker without rounds to which these windows are given."""
    group = FreeGroup.__new__(FreeGroup)
    given = iter(windows)
    group.device = torch.device("cpu")
    group._run = SimpleNamespace(end=9, progress=SimpleNamespace(updates=0))  # type: ignore[assignment]
    group._link = SimpleNamespace(claim=lambda end: next(given))  # type: ignore[assignment]
    group._local = SimpleNamespace(total=lambda weights: {"loss": 2.0})  # type: ignore[assignment]
    return group


def test_without_rounds_a_window_that_is_left_out_is_passed_over_empty_at_once():
    pushes = Pushes()
    assert free(LEFT_OUT, 5)._claimed(work(), pushes, 2) == 5
    assert pushes.made == [(LEFT_OUT, True)]


def test_without_rounds_a_window_that_is_left_out_is_not_trained_on_later_either():
    """The engine has passed it by when it is given to this worker."""
    pushes = Pushes()
    assert free(LEFT_OUT, 4)._claimed(work(), pushes, 4) == 4
    assert pushes.made == [(LEFT_OUT, True)]


@pytest.mark.parametrize("own", ["step-2", None])
def test_a_roll_back_goes_to_the_version_of_the_first_worker(own: str | None):
    """One that came into the run later made none of the newer ones."""
    session = Session.__new__(Session)
    loaded: list[str] = []
    session.memory = Memory(("loss", "min"))
    session.versions = SimpleNamespace(current=own, settle=lambda wait: None)  # type: ignore[assignment]
    session.group = SimpleNamespace(share=lambda value: "step-4")  # type: ignore[assignment]
    session.run = SimpleNamespace(counts={("engine", "roll-backs"): 0})  # type: ignore[assignment]
    session.load = loaded.append  # type: ignore[method-assign, assignment]
    session._roll_back(Decision(Action.ROLLBACK, "why", windows=(5,)), {}, "a policy")
    assert loaded == ["step-4"]
    assert session.memory.avoid == {5: "spike"}


# -- a share of a round that is over ------------------------------------------------------------------------------


def behind(*, kept: tuple[int, ...] = (), next: int = 2) -> Exchange:
    """A worker at round 6 that is to do share 1 of round 2, where the second server applies `next`."""
    made = Exchange.__new__(Exchange)
    made.round, made._missed = 6, {}
    made._kept = [SimpleNamespace(round=2, share=share, ended=True) for share in kept]  # type: ignore[misc]
    servers = [Server(0, None, generation=1, began=True, next=6)]  # type: ignore[arg-type]
    servers.append(Server(1, None, generation=2, began=True, next=next))  # type: ignore[arg-type]
    made._link = SimpleNamespace(servers=servers, leased={2: [1]})  # type: ignore[assignment]
    return made


def test_a_share_of_a_round_that_is_over_ends_the_run_where_a_server_has_to_have_it_again(
    monkeypatch: pytest.MonkeyPatch,
):
    now = [0.0]
    monkeypatch.setattr(exchanging.time, "monotonic", lambda: now[0])
    worker = behind()
    worker._look_back()
    now[0] = 9.0
    worker._look_back()
    now[0] = 11.0
    with pytest.raises(
        TrainingError, match=r"server 1 came back at update 3 .* share 1 .* worker is gone"
    ) as caught:
        worker._look_back()
    assert caught.value.problems[0].code == "ZPS003"


@pytest.mark.parametrize(("kept", "next"), [((0, 1), 2), ((), 6), ((), 3)])
def test_a_share_of_a_round_that_is_over_is_no_loss_where_it_is_kept_or_nobody_needs_it(
    kept: tuple[int, ...], next: int, monkeypatch: pytest.MonkeyPatch
):
    now = [0.0]
    monkeypatch.setattr(exchanging.time, "monotonic", lambda: now[0])
    worker = behind(kept=kept, next=next)
    for _ in range(5):
        worker._look_back()
        now[0] += 60.0


# -- who did not come ---------------------------------------------------------------------------------------------


def test_a_worker_that_waited_too_long_names_who_did_not_come():
    link = Link.__new__(Link)
    link._joined, link._rank, link._timeout, link._missing = True, 0, 600.0, ()
    servers = [Server(number, None, generation=1 - number) for number in range(2)]  # type: ignore[arg-type]
    link.servers = servers
    link._from_coordinator(m.Pong(missing=("worker 2", "server 1")), None)
    link._from_shard(servers[0], m.Pong(missing=("worker 0", "worker 3")), None)
    told = str(link._silent("the other workers"))
    assert "waited 600 s for the other workers" in told
    assert "no answer from server 1; worker 2, worker 3 did not come" in told


@pytest.mark.parametrize(("local", "level"), [(2, "warning"), (1, "info")])
def test_that_a_compressor_does_not_pay_here_is_no_warning_where_workers_of_other_machines_join(
    local: int, level: str
) -> None:
    from nlpkernel.engine.breakeven import BreakEven
    from nlpkernel_zmq.component import ZmqPs
    from nlpkernel_zmq.worker.group import ZmqGroup

    slow = BreakEven(name="int8", plain=4000, sent=1000, seconds=1.0, link=1e9, verb="sends")
    said: list[tuple[str, str]] = []
    group: Any = SimpleNamespace(
        _settings=ZmqPs(workers=2, local=local, listen="192.0.2.1", compressor=object()),
        _run=SimpleNamespace(
            ask=lambda component, hook: None,
            notice=lambda source, text, level: said.append((text, level)),
        ),
        world=2,
    )
    exchange: Any = SimpleNamespace(exchanged=lambda world: SimpleNamespace(up=lambda made: slow, down=None))
    ZmqGroup._tell_break_even(group, exchange)
    ((text, told),) = said
    assert told == level
    assert ("workers of other machines have another way" in text) == (local == 1)
