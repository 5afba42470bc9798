"""Which place the variables of a launcher give, and runs under the launchers themselves."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as some

from nlpkernel.cli import main
from nlpkernel.context import Run
from nlpkernel.errors import TrainingError, UsageError
from nlpkernel.plan.train import Train
from nlpkernel_torchdist import joined, network
from nlpkernel_torchdist.binding import bind, interface
from nlpkernel_torchdist.component import TorchDist
from nlpkernel_torchdist.launchers import Place, first_host, leftover, place

from .launching import Job, listening, marked, until, use

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")

_FOUR = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
_TORCHRUN = {
    **_FOUR,
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
_SLURM = {
    "SLURM_JOB_ID": "815",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_RESTART_COUNT": "1",
}
_PODS = {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "n-0.n", "PET_MASTER_PORT": "29400"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (
            _TORCHRUN,
            {
                "launcher": "torchrun",
                "rank": 1,
                "world": 4,
                "local_rank": 1,
                "local_world": 2,
                "host": "a",
                "port": 29500,
                "agent": True,
                "run_id": "job",
                "attempt": 2,
            },
        ),
        # One torchrun on each node of a job: it is torchrun that started this process.
        ({**_SLURM, **_TORCHRUN}, {"launcher": "torchrun", "rank": 1, "world": 4}),
        ({**_PODS, **_TORCHRUN}, {"launcher": "torchrun", "rank": 1, "world": 4}),
        (_FOUR, {"launcher": "the environment", "rank": 1, "world": 4, "agent": False, "local_world": None}),
        ({**_FOUR, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, {"local_rank": 1, "local_world": 2}),
        # An Indexed Job, whose manifest gives all but the rank.
        (
            {**{k: v for k, v in _FOUR.items() if k != "RANK"}, "JOB_COMPLETION_INDEX": "2"},
            {"launcher": "Kubernetes", "rank": 2, "world": 4},
        ),
        # A script that sets the four from Slurm's and leaves the number on the machine to Slurm.
        ({**_FOUR, **_SLURM, "RANK": "3"}, {"rank": 3, "local_rank": 1, "local_world": None, "host": "a"}),
        ({**_FOUR, **_SLURM, "RANK": "3", "SLURM_NNODES": "1"}, {"local_rank": 1, "local_world": 4}),
        ({**_FOUR, **_SLURM, "RANK": "3", "LOCAL_RANK": "0"}, {"local_rank": 0, "local_world": None}),
        # A launcher of ours, which gives torchrun's variables.
        ({**_TORCHRUN, "NLPKERNEL_LAUNCHER": "Ray"}, {"launcher": "Ray", "attempt": 2}),
        # One of many pods that have nothing to do with each other.
        ({"JOB_COMPLETION_INDEX": "2"}, None),
        (
            _SLURM,
            {
                "launcher": "Slurm",
                "rank": 3,
                "world": 4,
                "local_rank": 1,
                "host": "gpu07",
                "port": 15815,
                "run_id": "815.0",
                "attempt": 1,
                "local_world": None,
            },
        ),
        ({**_SLURM, "SLURM_NNODES": "1"}, {"local_world": 4}),
        # srun has another number of tasks than the job.
        ({**_SLURM, "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "4"}, {"world": 8}),
        ({**_SLURM, "SLURM_STEP_NODELIST": "gpu[08-09]"}, {"host": "gpu08"}),
        ({**_SLURM, "MASTER_ADDR": "b", "MASTER_PORT": "4711"}, {"host": "b", "port": 4711}),
        # A shell in a job, or its batch script: nothing that srun started as one of several.
        ({**_SLURM, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, None),
        ({k: v for k, v in _SLURM.items() if k != "SLURM_STEP_ID"}, None),
        (_PODS, {"launcher": "Kubeflow", "rank": 2, "world": 3, "host": "n-0.n", "port": 29400}),
        ({**_PODS, "PET_NNODES": "1", "PET_NODE_RANK": "0"}, None),
    ],
)
def test_the_variables_of_a_launcher_say_which_worker_this_is(
    environment: dict[str, str], expected: dict[str, Any] | None
) -> None:
    found = place(environment)
    if expected is None:
        assert found is None
    else:
        assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({**_FOUR, "RANK": "4"}, "this process is worker 4 of 4 by the variables of the environment"),
        ({**_FOUR, "RANK": "one"}, "RANK=one; it is a whole number from 0 on"),
        ({**_FOUR, "WORLD_SIZE": "0"}, "WORLD_SIZE=0; it is a whole number from 1 on"),
        ({**_FOUR, "MASTER_PORT": "70000"}, "MASTER_PORT=70000; it is at most 65535"),
        ({**_FOUR, "MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        (
            {"RANK": "0", "WORLD_SIZE": "2"},
            "MASTER_ADDR and MASTER_PORT are not set, and RANK=0, WORLD_SIZE=2 are",
        ),
        (
            {k: v for k, v in _FOUR.items() if k != "WORLD_SIZE"},
            "WORLD_SIZE is not set, and RANK=1, MASTER_ADDR=a, MASTER_PORT=29500 are",
        ),
        ({k: v for k, v in _TORCHRUN.items() if k != "LOCAL_RANK"}, "LOCAL_RANK is not set"),
        ({**_TORCHRUN, "LOCAL_RANK": "2"}, "worker 2 of 2 on its machine"),
        (
            {**_TORCHRUN, "LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "0"},
            "worker 0 of 8 on its machine, and of 4 in all",
        ),
        # Exported before srun, so that all tasks have the same.
        ({**_SLURM, **_FOUR}, "RANK=1 contradicts SLURM_PROCID=3"),
        ({**_SLURM, **_FOUR, "RANK": "3", "WORLD_SIZE": "2"}, "contradicts SLURM_NTASKS=4"),
        ({k: v for k, v in _SLURM.items() if "NODELIST" not in k}, "SLURM_JOB_NODELIST is not"),
        (
            {**_SLURM, "SLURM_JOB_NODELIST": "[", "SLURM_STEP_NODELIST": ""},
            "SLURM_JOB_NODELIST=[ names no host",
        ),
        ({**_PODS, "PET_NPROC_PER_NODE": "4"}, "PET_NPROC_PER_NODE=4 are for torchrun, which did not start"),
        ({**_PODS, "PET_NNODES": "1:4"}, "PET_NNODES=1:4"),
    ],
)
def test_variables_that_contradict_each_other_or_are_half_there_are_refused(
    environment: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        place(environment)
    assert "TDI020" in str(caught.value)
    assert message in str(caught.value)


def test_a_leftover_is_told_of_and_taken_for_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert leftover({"PATH": "/bin"}) is None
    assert leftover(_FOUR) is None
    assert leftover({"MASTER_ADDR": "a"}) is None
    text = "RANK=3 is set and WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not: taken for a leftover"
    assert text in str(leftover({"RANK": "3"}))
    batch = {k: v for k, v in _SLURM.items() if k != "SLURM_STEP_ID"}
    assert "Slurm gave this job 4 tasks, and srun did not start this process" in str(leftover(batch))


def test_a_plain_run_with_a_leftover_says_so_once_and_starts_its_own_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANK", "3")
    run = Run(name="r", folder=tmp_path, cache=tmp_path, train=Train())
    with caplog.at_level(logging.WARNING):
        specs = run.ask(TorchDist(workers=2), "launch")
    assert [spec.rank for spec in specs] == [0, 1]
    assert caplog.text.count("RANK=3 is set") == 1
    assert run.ask(TorchDist(workers=1), "launch") == ()
    assert caplog.text.count("RANK=3 is set") == 1, "that process joins, which tells it"
    assert run.ask(TorchDist(workers=1), "join") is None
    assert caplog.text.count("RANK=3 is set") == 2


@given(some.lists(some.integers(0, 999), min_size=1, max_size=3), some.sampled_from(["", "gpu-", "a-b.c"]))
def test_the_first_host_of_a_list_is_found_however_it_is_written(numbers: list[int], before: str) -> None:
    written = ",".join(f"{each:03d}-{each + 1:03d}" for each in numbers)
    assert first_host(f"{before}n[{written}],other[1-2]") == f"{before}n{numbers[0]:03d}"
    assert first_host(f"{before}r[1-2]n[{written}]x") == f"{before}r1n{numbers[0]:03d}x"
    assert first_host(f"{before}n{numbers[0]},other[1-2]") == f"{before}n{numbers[0]}"


def test_the_ports_of_the_steps_of_a_job_differ() -> None:
    ports = {place({**_SLURM, "SLURM_STEP_ID": str(step)}).port for step in range(50)}  # type: ignore[union-attr]
    assert len(ports) == 50
    assert all(15000 <= port < 30000 for port in ports)


# -- the network ----------------------------------------------------------------------------------------------------


@linux
def test_addresses_and_interfaces_are_found() -> None:
    assert network.interface_of("127.0.0.1") == "lo"
    assert interface(None, "127.0.0.1") == "lo"
    assert interface("eth99", "127.0.0.1") == "lo", "on one machine there is one"
    assert network.resolve("localhost") == "127.0.0.1"
    assert network.is_loopback("::1")
    assert not network.is_loopback("192.0.2.1")
    with pytest.raises(UsageError, match=r"TDI021 the interface 'eth99' has no address here; there are .*lo"):
        network.address_of("eth99")


@linux
def test_a_port_in_use_is_named() -> None:
    with network.listen(network.LOOPBACK) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            TrainingError, match=f"TDI003 the first worker cannot listen on 127.0.0.1, port {port}: Addr"
        ):
            # It may be over the next time, so the exit code is not that of a mistake.
            network.listen(network.LOOPBACK, port)
    with pytest.raises(UsageError, match=r"TDI003 the first worker cannot listen on 192\.0\.2\.1"):
        network.listen("192.0.2.1")


def known_as(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let every name mean these addresses."""

    def found(host: str, *_: object, **__: object) -> list[Any]:
        family = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(family[":" in each], socket.SOCK_STREAM, 6, "", (each, 0)) for each in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)


def address(rank: int, host: str = "node7", *, agent: bool = False, **settings: Any) -> str:
    place = Place(launcher="Slurm", rank=rank, world=4, local_world=2, host=host, port=15000, agent=agent)
    return joined._address(TorchDist(workers=4, timeout=0.1, trusted_network=True, **settings), place)


def test_a_name_that_means_the_loopback_interface_here_is_not_where_the_others_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Distributions map the name of a machine to 127.0.1.1 in /etc/hosts; others ask a server of names."""
    known_as(monkeypatch, "127.0.1.1", "fe80::1", "10.0.0.7")
    assert address(0) == address(1) == "10.0.0.7"
    known_as(monkeypatch, "127.0.1.1")
    for rank in (0, 1):
        with pytest.raises(UsageError, match=r"TDI021 the host 'node7'.* is 127\.0\.1\.1 here.*/etc/hosts"):
            address(rank)
    monkeypatch.setattr(network, "addresses", lambda name: ["10.0.0.8"])
    assert address(0, interface="eth0") == "10.0.0.8"
    # Who names this machine alone means it.
    assert address(0, "127.0.1.1") == address(1, "localhost") == "127.0.1.1"


def test_the_first_worker_listens_on_the_interface_that_the_plan_names_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known_as(monkeypatch, "10.0.0.7")
    monkeypatch.setattr(network, "addresses", lambda name: {"eth0": ["10.0.0.7"], "ib0": ["10.1.0.7"]}[name])
    assert address(0) == address(0, interface="eth0") == "10.0.0.7"
    message = (
        r"TDI021 the first worker is to listen on 10\.0\.0\.7, which is no address of the interface 'ib0'"
    )
    with pytest.raises(UsageError, match=message) as caught:
        address(0, interface="ib0")
    assert "set MASTER_ADDR to 10.1.0.7" in str(caught.value)
    assert address(1, interface="ib0") == "10.0.0.7", "what the others listen on is not what they look for"
    assert address(0, agent=True, interface="ib0") == "10.1.0.7"


@linux
def test_all_addresses_of_an_interface_are_known() -> None:
    ours: dict[str, set[str]] = {}
    for name, each in psutil.net_if_addrs().items():
        ours[name] = {
            one.address.partition("%")[0] for one in each if one.family in (socket.AF_INET, socket.AF_INET6)
        }
    assert {name: set(network.addresses(name)) for name in ours} == ours


@linux
def test_gloo_is_bound_to_the_loopback_interface_whatever_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(name="r", folder=tmp_path, cache=tmp_path, train=Train())
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    with caplog.at_level(logging.WARNING):
        assert bind(TorchDist(), run, network.LOOPBACK) == "lo"
    assert os.environ["GLOO_SOCKET_IFNAME"] == os.environ["NCCL_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME=eth0 is set, and the workers use lo" in caplog.text


@pytest.mark.parametrize("rank", [0, 1])
def test_several_machines_need_a_network_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    for name, value in {**_FOUR, "RANK": str(rank), "MASTER_ADDR": "192.0.2.1"}.items():
        monkeypatch.setenv(name, value)
    run = Run(name="r", folder=tmp_path, cache=tmp_path, train=Train())
    with pytest.raises(UsageError) as caught:
        run.ask(TorchDist(workers=4), "join")
    assert (
        "TDI004 the environment started 4 workers on several machines (the first one is at 192.0.2.1)"
        in str(caught.value)
    )
    assert "trusted_network = true" in str(caught.value)


def test_a_host_that_nobody_knows_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**_FOUR, "MASTER_ADDR": "no-such-host.invalid"}.items():
        monkeypatch.setenv(name, value)
    run = Run(name="r", folder=tmp_path, cache=tmp_path, train=Train())
    with pytest.raises(UsageError, match=r"TDI021 the host 'no-such-host\.invalid'"):
        run.ask(TorchDist(workers=4, trusted_network=True, timeout=0.1), "join")


def test_one_machine_is_known_by_its_numbers() -> None:
    known = {"launcher": "torchrun", "rank": 0, "world": 4, "host": "a", "port": 1}
    assert Place(**known, local_world=4).one_machine
    assert not Place(**known, local_world=2).one_machine
    assert not Place(**known).one_machine


# -- runs -----------------------------------------------------------------------------------------------------------


@linux
def test_torchrun_starts_workers_again_at_the_first_try_and_leaves_none_behind(job: Job) -> None:
    """Of a run that has another number of workers in its plan. One of two workers is killed, then the agent."""
    job.plan(
        train={"seed": 3, "steps": 100_000},
        checkpoint={"use": "store", "every": 5},
        communicator={"workers": 4},
        monitor=[use("Pace", seconds=0.01, child=True)],
    )
    agent = job.torchrun(restarts=3)
    until(lambda: job.events("VersionSaved"), "a version")
    told = [each["message"] for each in job.events("Notice")]
    assert "torchrun started 2 workers, and the plan says 4: the number of torchrun counts" in told
    for pid in agent.workers():
        assert listening(pid) == {"127.0.0.1"}
    os.kill(agent.workers()[1], signal.SIGKILL)
    until(lambda: len(job.events("RunStarted")) == 2, "the restart")
    (restarted,) = job.events("Restarted")
    assert (restarted["number"], restarted["reason"]) == (1, "started again by torchrun")
    assert restarted["progress"]["step"] >= 5
    assert re.search(r"TDI022 worker \d was lost", agent.told)
    done = job.step(0)
    until(lambda: job.step(0) > done, "a step")
    before = agent.workers()
    assert len(before) == 2
    agent.signal(signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: not marked(job.folder) and not job.children(), "the end of all", 3.0)
    assert time.monotonic() - killed < 3.0


@linux
def test_a_run_of_one_worker_under_torchrun_goes_on_by_itself(job: Job) -> None:
    """One process needs nobody to meet; that it was started again is known."""
    job.plan(train={"seed": 3, "steps": 12}, checkpoint={"use": "store", "every": 4})
    variables = {
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "TORCHELASTIC_RUN_ID": "x",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    job.start(0, environment={**variables, "TORCHELASTIC_RESTART_COUNT": "0"}).end()
    assert "torchrun started 1 workers, and the plan says 2" in str(job.events("Notice"))
    job.start(0, environment={**variables, "TORCHELASTIC_RESTART_COUNT": "1"}).end()
    assert job.events("RunStarted")[-1]["start"]["step"] == 12


def test_a_worker_of_a_launcher_is_not_supervised_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --restarts it would be started by a supervisor of its own, as one of one."""
    for name, value in _FOUR.items():
        monkeypatch.setenv(name, value)
    run = Run(name="r", folder=tmp_path, cache=tmp_path, train=Train())
    with pytest.raises(UsageError) as caught:
        run.ask(TorchDist(workers=4), "open_group")
    assert "TDI020 the environment started 4 workers, and this one was told to run alone" in str(caught.value)
    assert "leave out --restarts" in str(caught.value)


def test_continue_does_not_go_with_overwrite(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.plan(communicator={"workers": 1})
    plan = str(job.folder / "plan.json")
    assert main(["run", plan, "--continue", "--overwrite"]) == 2
    assert "NK313 --continue does not go with --overwrite" in capsys.readouterr().err
    assert main(["run", plan, "--continue", "--runs", str(job.folder / "runs")]) == 2
    assert "NK304" in capsys.readouterr().err
    assert not (job.folder / "runs/tiny").exists()
