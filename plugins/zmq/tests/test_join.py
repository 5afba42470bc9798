"""Workers that join a run over TCP: the same losses, and what goes on when one side goes."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from .parts.machines import Site, ended, until

STEPS = 30


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("joined"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def local(site: Site) -> list[float]:
    """The losses of a run with both workers on one machine."""
    site.plan("local", STEPS)
    code, told = ended(site.start("run", "local.json"))
    assert code == 0, told
    losses = site.losses("local")
    assert len(losses) == STEPS
    return losses


def worst(losses: list[float], reference: list[float]) -> float:
    assert len(losses) == len(reference)
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))


def came_in(site: Site, name: str) -> list[int]:
    """The windows after which the worker came in."""
    log = site.log(f"{name}-worker-1", "rank-1.log")
    return [int(number) for number in re.findall(r"worker 1 comes in after window (\d+)", log)]


def all_of(site: Site, name: str, run: subprocess.Popen[str], joined: subprocess.Popen[str]) -> None:
    """Both sides come to a good end, and leave no keys and no ports."""
    for process in (joined, run):
        code, told = ended(process)
        assert code == 0, told
    assert not site.servers(name).exists()


def test_a_worker_that_joins_gives_the_losses_of_one_beside_the_servers(
    site: Site, local: list[float]
) -> None:
    site.plan("joined", STEPS, servers=2, listen="127.0.0.1", local=1)
    run = site.run("joined")
    all_of(site, "joined", run, site.join("joined"))
    assert worst(site.losses("joined"), local) <= 2e-6
    assert came_in(site, "joined") == [1], "the run waited for it"
    assert "is gone" not in site.log("joined")


@pytest.mark.slow
def test_a_server_that_is_started_again_alone_has_its_port_and_the_joined_worker_goes_on(
    site: Site, local: list[float]
) -> None:
    site.plan("again", STEPS, listen="127.0.0.1", local=1, silence=0)
    run = site.run("again", "--restarts", "2")
    before = site.endpoint("again")
    joined = site.join("again")
    until(lambda: bool(came_in(site, "again")), "the worker to come in")
    # Without its share the run stands still.
    joined.send_signal(signal.SIGSTOP)
    started = re.findall(r"server-0 started as process (\d+)", site.log("again"))
    subprocess.run(["kill", "-KILL", started[-1]], check=True)
    until(
        lambda: len(re.findall(r"server-0 started as process", site.log("again"))) > 1, "the server to come"
    )
    joined.send_signal(signal.SIGCONT)
    until(lambda: "goes on from its snapshot" in site.log("again"), "the server to go on")
    after = site.endpoint("again")
    all_of(site, "again", run, joined)
    assert after == before
    assert worst(site.losses("again"), local) <= 2e-6
    assert "is gone" not in site.log("again"), "nobody did the shares of the joined worker"


@pytest.mark.slow
def test_a_joined_worker_that_is_told_to_end_leaves_its_shares_to_the_others(
    site: Site, local: list[float]
) -> None:
    site.plan("left", STEPS, listen="127.0.0.1", local=1, silence=0)
    run = site.run("left")
    joined = site.join("left")
    until(lambda: bool(came_in(site, "left")), "the worker to come in")
    joined.terminate()
    assert joined.wait(60) in (0, 143)
    code, told = ended(run)
    assert code == 0, told
    assert worst(site.losses("left"), local) <= 2e-6


def test_where_the_run_is_interrupted_the_joined_worker_ends_as_well(site: Site) -> None:
    site.plan("stopped", 100_000, listen="127.0.0.1", local=1)
    run = site.run("stopped")
    joined = site.join("stopped")
    until(lambda: len(re.findall("Logged", site.log("stopped"))) > 1, "a few steps")
    run.terminate()
    assert ended(run)[0] == 143
    assert ended(joined)[0] == 0
    assert "VersionSaved" in site.log("stopped")
    assert not site.servers("stopped").exists()
