"""One start of the workers, on a cluster without Ray: how it ends, and what is said of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.errors import UsageError
from nlpkernel_ray.attempt import Attempt, Outcome
from nlpkernel_ray.cluster import Needs

from .fakes import FakeCluster, work

#: A worker that saves and ends when it is asked to.
PATIENT = """
def asked(number, frame):
    print('saved', flush=True)
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, asked)
print('begun', flush=True)
time.sleep(600)
"""


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.lines: list[tuple[int, str, str]] = []
        self.signals: list[int] = []
        self.ends: dict[int, Any] = {}
        self.clusters: list[FakeCluster] = []
        self.on_line: Callable[[int, str], None] = lambda rank, text: None

    def cluster(self, script: str, **options: Any) -> FakeCluster:
        made = FakeCluster(script, **options)
        self.clusters.append(made)
        return made

    def echo(self, rank: int, stream: str, text: str) -> None:
        self.lines.append((rank, stream, text))
        self.on_line(rank, text)

    def attempt(self, script: str, workers: int = 2, *, grace: float = 10.0, **options: Any) -> Outcome:
        cluster = self.cluster(script, **options)
        seats = cluster.seats(workers, Needs(1, 0), 0, lambda: False)
        assert seats is not None
        made = Attempt(
            work=work(self.folder),
            number=0,
            signals=self.signals,
            tell=self.told.append,
            echo=self.echo,
            grace=grace,
            shared=0.0,
        )
        self.ends = made._ends
        return made.run(seats)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    for cluster in made.clusters:
        cluster.close()


def test_the_workers_get_their_work_and_their_lines_are_passed_on(scene: Scene) -> None:
    script = "print(rank, *sys.argv[1:], os.getcwd(), os.environ['WORLD_SIZE']); sys.stderr.write('oh\\n')"
    assert scene.attempt(script, 3) == Outcome(kind="finished", code=0)
    expected = {(n, "out", f"{n} run plan.toml {scene.folder} 3") for n in range(3)}
    assert set(scene.lines) == expected | {(n, "err", "oh") for n in range(3)}
    assert scene.told == ["3 workers on 1 machine"]
    assert (scene.folder / "plan.toml").read_bytes() == b"# a plan\n"
    assert list((scene.folder / "runs").iterdir()) == []


def test_who_failed_first_is_named_and_the_others_may_say_what_they_know(scene: Scene) -> None:
    script = "print('sorry', flush=True)\nwhile rank < 2 and not os.path.exists('go'): time.sleep(0.01)\nsys.exit(1)"

    def go() -> None:
        while 2 not in scene.ends:
            time.sleep(0.01)
        (scene.folder / "go").touch()

    threading.Thread(target=go, daemon=True).start()
    outcome = scene.attempt(script, 3, grace=60.0)
    assert (outcome.kind, outcome.code) == ("lost", 1)
    assert outcome.message.startswith("worker 2 on ")
    assert outcome.message.endswith("ended with exit code 1")
    assert len(scene.lines) == 3


def test_who_was_killed_is_named_before_those_that_ended_for_its_sake(scene: Scene) -> None:
    script = "sys.exit(1) if rank else (time.sleep(0.3), os.kill(os.getpid(), signal.SIGKILL))"
    message = scene.attempt(script, 2).message
    assert message.startswith("worker 0 on ")
    assert "was killed by SIGKILL (by somebody, or by the system for want of memory)" in message


def test_a_worker_that_stays_when_another_has_failed_is_not_waited_for(scene: Scene) -> None:
    begin = time.monotonic()
    outcome = scene.attempt("sys.exit(3) if rank else time.sleep(600)", grace=0.3)
    assert (outcome.kind, outcome.code) == ("lost", 3)
    assert scene.told[-1] == "worker 0: ended, since another one has failed"
    assert time.monotonic() - begin < 15.0


def test_a_mistake_of_the_plan_is_told_as_one(scene: Scene) -> None:
    outcome = scene.attempt("sys.exit(2)")
    assert (outcome.kind, outcome.code) == ("refused", 2)


def test_a_machine_that_is_gone_is_named(scene: Scene) -> None:
    def gone(rank: int, text: str) -> None:
        scene.clusters[0].sat[1].lost = True

    scene.on_line = gone
    outcome = scene.attempt("print('begun', flush=True); time.sleep(600)", grace=0.3)
    assert outcome.kind == "lost"
    assert outcome.message.endswith("was lost: its machine is gone")
    assert outcome.message.startswith("worker 1 on ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_every_worker_to_end(scene: Scene, number: int) -> None:
    def ask(rank: int, text: str) -> None:
        if sum(line[2] == "begun" for line in scene.lines) == 2 and not scene.signals:
            scene.signals.append(number)

    scene.on_line = ask
    assert scene.attempt(PATIENT) == Outcome(kind="interrupted", code=128 + number)
    assert sorted(line for line in scene.lines if line[2] == "saved") == [
        (0, "out", "saved"),
        (1, "out", "saved"),
    ]
    assert scene.told[-1] == f"{signal.Signals(number).name}: every worker finishes its step, saves and ends"


def test_the_second_signal_leaves_at_once(scene: Scene) -> None:
    stubborn = PATIENT.replace("sys.exit(128 + number)", "pass")

    def ask(rank: int, text: str) -> None:
        scene.signals.append(signal.SIGINT if text == "begun" else signal.SIGTERM)

    scene.on_line = ask
    assert scene.attempt(stubborn, 1) == Outcome(kind="interrupted", code=128 + signal.SIGTERM)
    assert scene.told[-1] == "SIGTERM: leaving at once"


def test_a_worker_that_was_asked_by_somebody_else_ends_the_run_as_it_says(scene: Scene) -> None:
    assert scene.attempt("sys.exit(143)") == Outcome(kind="interrupted", code=143)


def test_a_signal_before_the_start_leaves_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from .fakes import FakeHand

    held = threading.Event()
    monkeypatch.setattr(FakeHand, "provide", lambda self, files: held.wait(20.0))
    scene.signals.append(signal.SIGTERM)
    try:
        assert scene.attempt("print('never')") == Outcome(kind="interrupted", code=143)
    finally:
        held.set()
    assert scene.lines == []


# -- machines that do not fit -----------------------------------------------------------------------------------------


def refused(scene: Scene, *facts: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        scene.attempt("print('never')", len(facts), facts=facts)
    assert scene.lines == []
    return str(caught.value)


def two() -> Sequence[dict[str, Any]]:
    return [{"node": f"n{n}", "host": f"node-{n}", "address": f"10.0.0.{n}"} for n in range(2)]


def test_machines_that_do_not_share_the_folder_are_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .fakes import FakeHand

    monkeypatch.setattr(FakeHand, "sees", lambda self, folder, token, seconds: False)
    text = refused(scene, *two())
    runs = scene.folder / "runs"
    assert (
        f"RAY006 the folder {runs} of worker 0 on node-0 (10.0.0.0) is not that of worker 1 on node-1" in text
    )
    assert "--runs" in text
    scene.clusters[0].pool.shutdown()
    assert list(runs.iterdir()) == [], "the file that was looked for is removed"


def test_a_folder_that_cannot_be_written_is_named(scene: Scene) -> None:
    (scene.folder / "runs").touch()
    assert "RAY006 worker 0 on node-0" in refused(scene, *two())


def test_a_plan_that_is_another_one_there_is_named(scene: Scene) -> None:
    (scene.folder / "plan.toml").write_text("other")
    text = refused(scene, *two())
    assert "RAY007 worker 0 on node-0 (10.0.0.0)" in text
    assert "plan.toml is there, and has other content than the driver's" in text


def test_machines_with_other_releases_are_named(scene: Scene) -> None:
    first, second = two()
    text = refused(scene, {**first, "python": "3.11.1"}, {**second, "python": "3.12.0"})
    assert "RAY008 the machines have different releases of python: 3.11.1 on node-0, 3.12.0 on node-1" in text
