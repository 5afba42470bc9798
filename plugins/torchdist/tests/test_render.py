"""Scripts and manifests that `nlpkernel render` writes: read by what they are for, or by its schema."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from nlpkernel.cli import main
from nlpkernel_sdk import tiny_values
from nlpkernel_torchdist.launchers import place
from nlpkernel_torchdist.render.yaml import documents

from .launching import EVERYTHING, PARTS, Job, marked, until, use

Render = Callable[..., str]


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Render:
    """Write a plan and render it; what is printed, or with `fails` the error."""
    monkeypatch.chdir(tmp_path)

    def do(kind: str, *options: str, fails: bool = False, **sections: Any) -> str:
        communicator = {"use": "torchdist", "workers": 4, **sections.pop("communicator", {})}
        values = tiny_values(**{"checkpoint": {"use": "store"}, **sections}, communicator=communicator)
        (tmp_path / "plan.json").write_text(json.dumps(values))
        code = main(["render", "plan.json", "--for", kind, *options])
        printed = capsys.readouterr()
        assert code == (2 if fails else 0), printed.err
        return printed.err if fails else printed.out

    return do


TRUSTED = {"trusted_network": True}
IMAGE = ("--image", "registry.example/nlpkernel:1")


def commands(script: str) -> list[list[str]]:
    """The commands of a script that is sound for bash, each as words."""
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    lines = [line for line in script.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def of(script: str, name: str) -> list[str]:
    """The words of the one command of that name."""
    (found,) = [words for words in commands(script) if name in words[:2]]
    return found[found.index(name) + 1 :]


def manifest(text: str) -> list[dict[str, Any]]:
    """The documents of a manifest that is valid for Kubernetes."""
    found = list(yaml.safe_load_all(text))
    for version in ("1.31", kubernetes_validate.latest_version()):
        for document in found:
            kubernetes_validate.validate(document, version, strict=True)
    return found


def torchrun(words: Sequence[str]) -> Any:
    """The command line of torchrun as it reads it itself. Raise SystemExit where it does not."""
    from torch.distributed.run import get_args_parser

    return get_args_parser().parse_args(words)


def test_torchrun_on_one_machine_reads_its_command(render: Render) -> None:
    script = render("torchrun", "--set", "train.seed=7")
    read = torchrun(of(script, "torchrun"))
    assert (read.nproc_per_node, read.standalone, read.max_restarts, read.no_python) == ("4", True, 3, True)
    words = ["nlpkernel", "run", "plan.json", "--set", "train.seed=7", "--continue"]
    assert [read.training_script, *read.training_script_args] == words


def test_torchrun_on_several_machines_meets_at_the_endpoint(render: Render) -> None:
    script = render(
        "torchrun", "--nodes", "2", "--endpoint", "a:4711", "--restarts", "1", communicator=TRUSTED
    )
    read = torchrun(of(script, "torchrun"))
    assert (read.nnodes, read.nproc_per_node, read.max_restarts) == ("2", "2", 1)
    assert (read.rdzv_backend, read.rdzv_id, read.rdzv_endpoint) == ("c10d", "tiny", "a:4711")
    assert "have to be on a file system that all 2 machines share" in script
    assert "neither encrypted nor authenticated" in script
    open_ = render("torchrun", "--nodes", "2", communicator=TRUSTED)
    told = subprocess.run(
        ["bash"], input=open_, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert told.returncode
    assert "ENDPOINT: HOST:PORT of the first machine" in told.stderr


def test_slurm_gets_a_task_for_each_worker(render: Render) -> None:
    options = [
        "--nodes",
        "2",
        "--memory",
        "16Gi",
        "--partition",
        "gpu",
        "--time",
        "1-00:00:00",
        "--lead",
        "300",
    ]
    script = render("slurm", *options, communicator=TRUSTED)
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script, re.MULTILINE))
    assert asked == {
        "job-name": "tiny",
        "nodes": "2",
        "ntasks-per-node": "2",
        "cpus-per-task": "4",
        "gpus-per-node": "2",
        "mem": "32G",
        "time": "1-00:00:00",
        "partition": "gpu",
        "output": "tiny-%j.log",
        "open-mode": "append",
        "signal": "USR1@300",
    }
    assert "\n#SBATCH --requeue\n" in script
    srun = of(script, "srun")
    assert srun[-4:] == ["nlpkernel", "run", "plan.json", "--continue"]
    # Directives count only before the first command.
    lines = script.splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert all(line.startswith("#") for line in lines[:last])


def test_a_plan_for_cpus_asks_for_no_gpus(render: Render) -> None:
    assert "gpus" not in render("slurm", communicator={"device": "cpu"})
    assert "gpus" not in render("slurm", communicator={"backend": "gloo"})
    assert "--gpus-per-node=8" in render("slurm", "--gpus", "2")
    assert "nvidia" not in render("kubernetes", *IMAGE, communicator={"device": "cpu"})


def test_kubernetes_gets_a_pod_for_each_machine_that_knows_which_worker_it_is(render: Render) -> None:
    service, job = manifest(
        render(
            "kubernetes", *IMAGE, "--nodes", "4", "--namespace", "ml", "--memory", "8Gi", communicator=TRUSTED
        )
    )
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (4, 4, "Indexed")
    assert spec["backoffLimit"] == 12
    assert job["metadata"]["namespace"] == service["metadata"]["namespace"] == "ml"
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["nlpkernel", "run", "plan.json", "--continue"]
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": "8Gi"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "1"},
    }
    # What the pods are told is a place.
    environment = {each["name"]: each["value"] for each in container["env"]}
    for index in range(4):
        found = place({**environment, "JOB_COMPLETION_INDEX": str(index)})
        assert found is not None
        assert (found.rank, found.world, found.launcher) == (index, 4, "Kubernetes")
        # The name of the first pod, in the domain of the service that finds it.
        assert found.host == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
        assert found.port == service["spec"]["ports"][0]["port"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    labels = spec["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_several_workers_of_a_pod_are_started_by_torchrun_in_it(render: Render) -> None:
    _, job = manifest(render("kubernetes", *IMAGE, "--nodes", "2", communicator=TRUSTED))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    shell, option, line = container["command"]
    assert (shell, option) == ("/bin/sh", "-c")
    environment = {each["name"]: each["value"] for each in container["env"]}
    filled = line.replace("$JOB_COMPLETION_INDEX", "1").replace("$MASTER_ADDR", environment["MASTER_ADDR"])
    words = shlex.split(filled)
    assert words[:2] == ["exec", "torchrun"]
    read = torchrun(words[2:])
    assert (read.nnodes, read.nproc_per_node, read.node_rank, read.master_addr) == (
        "2",
        "2",
        1,
        "tiny-0.tiny",
    )
    # The pods themselves are started again.
    assert read.max_restarts == 0
    assert place({**environment, "JOB_COMPLETION_INDEX": "1"}) is None, "that is torchrun's to say"


def test_one_pod_supervises_its_workers_itself(render: Render) -> None:
    _, job = manifest(render("kubernetes", *IMAGE, "--workers", "2"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words = "nlpkernel run plan.json --continue --set communicator.workers=2 --restarts 3"
    assert container["command"] == words.split()


def test_ray_gets_the_command_of_its_plugin(render: Render) -> None:
    script = render("ray", "--cpus", "2", "--gpus", "0")
    words = of(script, "nlpkernel")
    assert words[:2] == ["ray", "plan.json"]
    assert "--continue" not in words, "it goes without saying there"
    assert words[words.index("--address") + 1] == "auto"
    assert words[words.index("--workers") + 1] == "4"
    assert words[words.index("--cpus") + 1] == "2"


@pytest.mark.parametrize("kind", ["torchrun", "slurm", "kubernetes", "ray"])
def test_a_rendering_is_the_same_each_time_and_says_how_it_was_made(
    render: Render, kind: str, tmp_path: Path
) -> None:
    options = IMAGE if kind == "kubernetes" else ()
    text = render(kind, *options)
    assert text == render(kind, *options)
    assert f"# Written by `nlpkernel render plan.json --for {kind}" in text
    assert render(kind, *options, "--output", "made") == ""
    written = (tmp_path / "made").read_text()
    assert [line for line in written.splitlines() if "Written by" not in line] == [
        line for line in text.splitlines() if "Written by" not in line
    ]


@pytest.mark.parametrize(
    ("options", "sections", "message"),
    [
        (["--nodes", "3"], {"communicator": TRUSTED}, "TDI026 4 workers do not divide among 3 machines"),
        (["--nodes", "2"], {}, "TDI004 2 machines exchange what is neither encrypted nor authenticated"),
        (["--restarts", "1"], {"checkpoint": None}, "TDI026 without [checkpoint] a restart has nothing"),
        (["--workers", "3"], {"communicator": {"tensor": 2}}, "TDI001 3 workers cannot be laid out"),
        (["--image", "a"], {}, "TDI026 --image has no meaning for slurm"),
        (["--memory", "much"], {}, "TDI026 --memory much is no number of bytes"),
    ],
)
def test_a_plan_that_cannot_run_there_is_refused(
    render: Render, options: list[str], sections: dict[str, Any], message: str
) -> None:
    assert message in render("slurm", *options, fails=True, **sections)


def test_an_image_is_needed(render: Render) -> None:
    assert "TDI026 Kubernetes needs an image" in render("kubernetes", fails=True)


def test_another_communicator_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(tiny_values()))
    assert main(["render", str(plan), "--for", "slurm"]) == 2
    assert "TDI026 the plan's communicator is not torchdist" in capsys.readouterr().err


def test_without_checkpoint_nothing_is_started_again(render: Render) -> None:
    script = render("slurm", checkpoint=None)
    assert "--no-requeue" in script
    assert "--continue" not in script
    assert "a run that is interrupted is lost" in script
    assert torchrun(of(render("torchrun", checkpoint=None), "torchrun")).max_restarts == 0


def test_what_the_shell_would_take_apart_is_quoted(render: Render) -> None:
    script = render("torchrun", "--set", "name=it's $HOME `x`", "--runs", "my runs")
    read = torchrun(of(script, "torchrun"))
    assert read.training_script_args[2:6] == ["--set", "name=it's $HOME `x`", "--runs", "my runs"]
    assert read.training_script_args[-1] == "--continue"


_TEXTS = some.text(some.characters(exclude_categories=["Cs"]), max_size=12) | some.sampled_from(
    [
        "",
        "no",
        "Yes",
        "1e3",
        "0x1",
        "1_0",
        "~",
        "- a",
        "a: b",
        "a #b",
        "2026-01-01",
        "1:30",
        "=",
        ".inf",
        "null",
    ]
)
_VALUES = some.recursive(
    _TEXTS | some.integers(-(10**9), 10**9) | some.booleans(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(some.lists(some.dictionaries(_TEXTS, _VALUES, min_size=1, max_size=3), min_size=1, max_size=3))
def test_what_is_written_as_yaml_is_read_back(values: list[dict[str, Any]]) -> None:
    assert list(yaml.safe_load_all(documents(values))) == values


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
def test_the_script_for_slurm_starts_workers_again_and_puts_the_job_back_when_its_time_is_up(
    job: Job,
) -> None:
    """Under a small srun and scontrol. One worker is killed; then the time is nearly up. (With JOINING_ALL=1 the job
    then gets its next turn.)"""
    job.plan(
        train={"seed": 3, "steps": 100_000},
        checkpoint={"use": "store", "every": 5},
        communicator={"device": "cpu"},
        monitor=[use("Pace", seconds=0.01)],
    )
    script = job.folder / "job.sh"
    assert main(["render", str(job.folder / "plan.json"), "--for", "slurm", "--output", str(script)]) == 0
    bin_ = job.folder / "bin"
    bin_.mkdir()
    for name in ("srun", "scontrol", "nlpkernel"):
        target = bin_ / name
        text = (PARTS / f"{name}.sh").read_text().replace("PYTHON", sys.executable)
        target.write_text(text)
        target.chmod(target.stat().st_mode | stat.S_IXUSR)
    slurm = {
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_ID": str(job.port),
        "SLURM_NTASKS": "2",
        "SLURM_CPUS_PER_TASK": "1",
    }
    first = job.cold(["bash", str(script)], **slurm)
    until(lambda: job.events("VersionSaved"), "a version")
    os.kill(workers(job)[1], signal.SIGKILL)
    until(lambda: len(job.events("RunStarted")) == 2, "the second start")
    assert job.events("RunStarted")[-1]["start"]["step"] >= 5
    done = job.step(0)
    until(lambda: job.step(0) not in (0, done), "a step")
    for pid in workers(job):  # As Slurm does, `lead` seconds before the time is up.
        os.kill(pid, signal.SIGUSR1)
    told = first.end(0)
    assert "TDI022 worker 1 was lost" in told
    assert (
        "the workers ended with exit code 137 and are started again, which 2 more failures may follow" in told
    )
    assert f"requeue {job.port}" in told
    saved = job.events("VersionSaved")[-1]["progress"]["step"]
    assert job.step(0) == job.step(1) == saved
    assert marked(job.folder) == []
    if not EVERYTHING:
        return
    second = job.cold(["bash", str(script)], **slurm, SLURM_RESTART_COUNT="1")
    until(lambda: len(job.events("RunStarted")) == 3, "the next turn")
    assert job.events("RunStarted")[-1]["start"]["step"] == saved
    assert job.events("Restarted")[-1]["reason"] == "started again by Slurm"
    done = job.step(0)
    until(lambda: job.step(0) > done, "a step")
    os.kill(workers(job)[0], signal.SIGTERM)
    second.end(143)
    assert marked(job.folder) == []


def workers(job: Job) -> list[int]:
    """The processes of the workers, by their number."""
    found = {}
    for pid in marked(job.folder):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        rank = [each.partition(b"=")[2] for each in environment if each.startswith(b"SLURM_PROCID=")]
        if rank and b"\0nlpkernel\0run\0" in line:
            found[int(rank[0])] = pid
    return [found[rank] for rank in sorted(found)]
