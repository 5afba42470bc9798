"""All processes of a run stop after the same step, wherever they are when they are asked."""

from __future__ import annotations

import queue
import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.supervise.control import PATIENCE, Control, Stopping


class Worker:
    """A loop of empty steps, and a thread that hands it what the supervisor says, some time later."""

    def __init__(
        self, name: str, answers: queue.Queue, seed: int, barrier: threading.Barrier | None, last: int
    ):
        self.name, self.random, self.barrier, self.last = name, random.Random(seed), barrier, last
        self.step = 0
        self.inbox: queue.Queue = queue.Queue()
        self.control = Control(lambda body: answers.put((name, body)))
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self.loop, self.listen)]

    def loop(self) -> None:
        while self.step < self.last:
            if self.control.may_begin(self.step + 1) is not None:
                return
            if self.barrier is not None:
                # A collective: nobody ends the step before all have begun it.
                self.barrier.wait(10)
            time.sleep(self.random.random() * 0.0005)
            self.step += 1

    def listen(self) -> None:
        while (message := self.inbox.get()) is not None:
            time.sleep(self.random.random() * 0.003)
            kind, body = message
            if kind == "propose":
                self.control.propose(body["round"], body["step"])
            else:
                self.control.end(body["step"], body["signal"])


def stopped(seed: int, *, together: bool, last: int = 100_000, ask_after: float = 0.02) -> list[int]:
    """Steps after which three workers ended that were asked to at some moment."""
    answers: queue.Queue = queue.Queue()
    barrier = threading.Barrier(3) if together else None
    workers = {name: Worker(name, answers, seed + index, barrier, last) for index, name in enumerate("abc")}
    for worker in workers.values():
        for thread in worker.threads:
            thread.start()
    time.sleep(ask_after)
    stopping = Stopping(
        15, set(workers), lambda name, kind, body: workers[name].inbox.put((kind, body)), time.monotonic()
    )
    # The supervisor knows of old beats only.
    stopping.begin([0])
    deadline = time.monotonic() + 20
    while any(worker.threads[0].is_alive() for worker in workers.values()):
        assert time.monotonic() < deadline, [worker.step for worker in workers.values()]
        for name, worker in workers.items():
            if not worker.threads[0].is_alive():
                stopping.gone(name)
        try:
            stopping.answer(*answers.get(timeout=0.02), time.monotonic())
        except queue.Empty:
            stopping.tick(time.monotonic())
    for worker in workers.values():
        worker.inbox.put(None)
    return [worker.step for worker in workers.values()]


@pytest.mark.parametrize("together", [False, True], ids=["each-for-itself", "in-lockstep"])
def test_all_stop_after_the_same_step_wherever_they_are(together):
    for seed in range(8):
        ends = stopped(seed, together=together)
        assert len(set(ends)) == 1
        assert ends[0] < 2000, "and before long"


def test_a_run_that_ends_by_itself_first_has_ended():
    assert stopped(1, together=True, last=25, ask_after=0.0)[0] <= 25


def test_a_worker_waits_between_two_steps_and_never_inside_one():
    answers: list[dict[str, object]] = []
    control, waits = Control(answers.append), []
    assert control.may_begin(1) is None
    control.propose(1, 1)
    assert answers == [{"round": 1, "step": 1, "late": False}]
    result: list[int | None] = []
    thread = threading.Thread(target=lambda: result.append(control.may_begin(2, waits.append)))
    thread.start()
    while not waits:
        time.sleep(0.001)
    # Held before step 2, it can still promise to end after step 1, and take a later step as well.
    control.propose(2, 1)
    control.propose(3, 2)
    thread.join(5)
    assert (result, waits) == ([None], [True, False])
    assert [each["late"] for each in answers] == [False, False, False]
    control.propose(4, 1)
    assert answers[-1] == {"round": 4, "step": 2, "late": True}
    control.end(2, 15)
    assert control.may_begin(3) == 15


def test_now_is_after_the_step_that_is_run():
    control = Control(lambda body: None)
    assert control.may_begin(7) is None
    control.end(0, 10)
    assert control.may_begin(8) == 10


class Told:
    """What a supervisor sends."""

    def __init__(self, *members: str) -> None:
        self.sent: list[tuple[str, str, int]] = []
        self.stopping = Stopping(15, set(members), self.send, 0.0)

    def send(self, name, kind, body) -> None:
        self.sent.append((name, kind, body["step"]))
        self.round = body.get("round")

    def answer(self, name, step=0, late=False, round=None, now=0.0) -> None:
        self.stopping.answer(name, {"round": round or self.round, "step": step, "late": late}, now)

    def take(self) -> list[tuple[str, str, int]]:
        sent, self.sent = self.sent, []
        return sent


def test_one_process_alone_is_asked_nothing():
    told = Told("a")
    told.stopping.begin([7])
    assert told.take() == [("a", "stop", 0)]


def test_a_late_answer_makes_a_later_proposal_with_a_wider_margin():
    told = Told("a", "b")
    told.stopping.begin([5, 3])
    assert told.take() == [("a", "propose", 7), ("b", "propose", 7)]
    first = told.round
    told.answer("a", 6)
    told.answer("b", 9, late=True)
    assert told.take() == [("a", "propose", 13), ("b", "propose", 13)]
    told.answer("a", 6, round=first)
    told.answer("b", 10)
    assert told.take() == [], "an answer to the first proposal says nothing of the second"
    told.answer("a", 8)
    assert told.take() == [("a", "stop", 13), ("b", "stop", 13)]


def test_who_is_gone_is_not_waited_for():
    told = Told("a", "b")
    told.stopping.begin([5, 5])
    told.take()
    told.answer("a", 5)
    told.stopping.gone("b")
    assert told.take() == [("a", "stop", 7)]


def test_an_answer_that_does_not_come_is_asked_for_again():
    told = Told("a", "b")
    told.stopping.begin([5, 5])
    told.take()
    told.stopping.tick(PATIENCE / 2)
    assert told.take() == []
    told.stopping.tick(PATIENCE * 2)
    assert told.take() == [("a", "propose", 7), ("b", "propose", 7)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.booleans()), max_size=40))
def test_the_step_that_is_named_is_one_that_all_promised(answers):
    told = Told("a", "b", "c")
    told.stopping.begin([1])
    promised: dict[str, int] = {}
    for name, step, late in answers:
        proposed = told.stopping.step
        late = late and step > proposed
        told.answer(name, step, late=late)
        if not late:
            promised[name] = proposed
        if told.stopping.settled:
            break
    if told.stopping.settled:
        assert promised == dict.fromkeys("abc", told.stopping.step)
