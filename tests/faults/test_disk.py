"""Case K2 and its kin through the command line: a disk that is full, read-only, or slow, and files that are gone or not
what was written.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .lab import EVERY, STEPS, Lab, differences, until

WEAK = {"what": "weak"}
#: Less than a version takes, more than anything else of a run.
SMALL = 30_000


def steps(lab: Lab) -> list[int]:
    return [info.step for info in lab.versions()]


def goes_on(lab: Lab, whole: Lab, tidy: set[str]) -> None:
    """Resumed, the run comes to the end of the unbroken one."""
    lab.do("resume", "runs/small", "-q")
    assert lab.told().numbers == whole.told().numbers
    assert differences(lab.load(), whole.load()) == []
    assert lab.remains() == tidy


# -- full -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def little_room(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Give a folder a disk of its own, with room for three versions."""
    mounted: list[Path] = []

    def mount(folder: Path) -> None:
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(folder)], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"only root may mount: {done.stderr.strip()}")
        mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_case_k2_a_disk_without_room_ends_the_run_with_what_it_needs_and_leaves_older_versions(
    lab: Callable[..., Lab], whole: Lab, tidy: set[str], little_room: Callable[[Path], None]
) -> None:
    made = lab(checkpoint={"keep": None, "retries": 1, "retry_after": 0.01})
    little_room(made.folder / "runs")
    told = made.do("run", "plan.json", code=1)
    (line,) = told.splitlines()
    found = re.fullmatch(
        r"error: runs/small/versions: STO002 the version of step 12 could not be written: "
        r"\[Errno 28\] No space left on device; it needs ([\d,]+) bytes, and ([\d,]+) are free; older versions are "
        r"untouched; make room or keep fewer versions, and resume \[store of nlpkernel-plugin-store\]",
        line,
    )
    assert found is not None, told
    needed, free = (int(number.replace(",", "")) for number in found.groups())
    assert free < needed < 200_000
    assert made.report()["status"] == "failed"
    assert steps(made) == [3, 6, 9]
    assert made.remains() == tidy
    # Room is made.
    made.do("versions", "prune", "runs/small", "3", "6")
    made.do("resume", "runs/small", "-q", "--set", "checkpoint.keep.last=1")
    assert made.told().numbers == whole.told().numbers
    assert steps(made) == [24]


def test_case_k2_under_the_policy_continue_the_run_goes_on_and_its_report_counts_what_is_missing(
    lab: Callable[..., Lab], whole: Lab, tidy: set[str]
) -> None:
    made = lab(checkpoint={"on_failure": "continue", "retries": 0, "asynchronous": False})
    told = made.do("run", "plan.json", traps=[{"what": "full", "step": 8, "until": 13, "bytes": SMALL}])
    assert re.search(r"2 versions not written \(engine\)", told)
    assert made.told().steps("failed") == [9, 12]
    assert "File too large" in next(line for line in made.told().lines if line[0] == "failed")[2]
    assert steps(made) == [21, 24]
    assert made.told().numbers == whole.told().numbers
    (only,) = differences(made.load(), whole.load())
    assert only.startswith("run/counts: ")
    assert made.remains() == tidy


def test_case_k2_a_disk_that_is_full_for_a_moment_is_waited_for(lab: Callable[..., Lab], whole: Lab) -> None:
    made = lab(checkpoint={"retries": 12, "retry_after": 0.002})
    go = made.folder / "go"
    # The disk is full when the first version is written, and there is room again before the second one is due.
    process = made.start(
        "run",
        "plan.json",
        "-q",
        traps=[
            {"what": "full", "step": 3, "until": 6, "bytes": SMALL},
            {"what": "hold", "step": 5, "file": str(go)},
        ],
    )
    made.reached(process, go)
    log = made.run / "logs/rank-0.log"
    assert until(lambda: "a version is not written yet: [Errno 27] File too large" in log.read_text())
    go.touch()
    process.end()
    assert made.told().steps("saved") == list(range(EVERY, STEPS + 1, EVERY))
    assert made.told().steps("failed") == []
    assert differences(made.load(), whole.load()) == []


# -- read-only ------------------------------------------------------------------------------------------------------


def frozen(root: Path, mode: int = 0o555) -> None:
    """Take away the right to write, or give it back."""
    for folder, _, files in os.walk(root):
        os.chmod(folder, mode)
        for name in files:
            os.chmod(Path(folder, name), mode & 0o666)


@pytest.fixture
def readable(tmp_path: Path) -> Iterator[None]:
    """Everything can be removed in the end."""
    yield
    frozen(tmp_path, 0o755)


@pytest.mark.usefixtures("readable")
def test_a_read_only_folder_is_named_before_anything_is_done(lab: Callable[..., Lab]) -> None:
    made = lab()
    (made.folder / "runs").mkdir()
    frozen(made.folder / "runs")
    told = made.do("run", "plan.json", code=2, traps=[WEAK])
    assert told == "error: NK305 the run folder 'runs/small' cannot be made: Permission denied\n"
    assert list((made.folder / "runs").iterdir()) == []


@pytest.mark.usefixtures("readable")
def test_a_read_only_run_can_be_looked_at_and_not_resumed(lab: Callable[..., Lab]) -> None:
    made = lab()
    made.do("run", "plan.json", "-q")
    before = made.remains()
    frozen(made.run)
    for owner in (0o555, 0o755):
        # The files may be writable in a folder that is not, and the folder where a file is not.
        os.chmod(made.run, owner)
        told = made.do("resume", "runs/small", "--from", "21", code=None, traps=[WEAK])
        assert re.fullmatch(r"error: NK305 .*'runs/small' cannot be written: Permission denied\n", told)
    listed = made.do("versions", "runs/small", traps=[WEAK])
    assert all(info.name in listed for info in made.versions())
    assert made.do("versions", "verify", "runs/small", traps=[WEAK]).count("sound") == 3
    assert "finished" in made.do("report", "runs/small", traps=[WEAK])
    assert made.remains() == before


@pytest.mark.usefixtures("readable")
def test_a_folder_that_becomes_read_only_ends_the_run_and_leaves_older_versions(
    lab: Callable[..., Lab], whole: Lab, tidy: set[str]
) -> None:
    made = lab(checkpoint={"retries": 0})
    with made.held(8, "run", "plan.json", code=1, traps=[WEAK]) as process:
        assert until(lambda: steps(made) == [3, 6])
        frozen(made.run / "versions")
    assert re.match(
        r"error: runs/small/versions: STO002 the version of step 9 could not be written: \[Errno 13\] Permission "
        r"denied: 'runs/small/versions/\.aside/[^']+'; it needs [\d,]+ bytes, and [\d,]+ are free; older versions are "
        r"untouched; ",
        process.told,
    )
    frozen(made.run / "versions", 0o755)
    assert steps(made) == [3, 6]
    goes_on(made, whole, tidy)


# -- slow -----------------------------------------------------------------------------------------------------------


def test_a_slow_disk_does_not_hold_the_training_until_the_second_save_and_a_stop_waits_for_it(
    lab: Callable[..., Lab], whole: Lab, tidy: set[str]
) -> None:
    made = lab()
    go = made.folder / "go"
    process = made.start("run", "plan.json", "-q", traps=[{"what": "gate", "file": str(go)}])
    made.reached(process, go)
    # The save after step 3 is under way, and the loop comes to the one after step 6.
    assert until(lambda: made.told().last == 2 * EVERY)
    process.kill(signal.SIGTERM)
    assert until(lambda: not process.running(), 0.5) is None, "it left before its version was written"
    assert made.told().last == 2 * EVERY, "it trained on without a place for the next snapshot"
    assert made.told().steps("saved") == []
    assert steps(made) == []
    go.touch()
    process.end(128 + signal.SIGTERM)
    assert made.told().steps("saved") == [3, 6]
    assert steps(made) == [3, 6]
    goes_on(made, whole, tidy)


def test_parameters_that_change_right_after_the_snapshot_are_not_in_the_version(
    lab: Callable[..., Lab], whole: Lab
) -> None:
    """The writer does not even look at the snapshot until the next two updates are done in place."""
    made = lab(checkpoint={"keep": None})
    go = made.folder / "go"
    hold = {"what": "call", "function": "nlpkernel_store.writer:Writer._run", "then": "hold", "file": str(go)}
    process = made.start("run", "plan.json", "-q", traps=[{**hold, "turn": 2}])
    made.reached(process, go)
    assert until(lambda: made.told().last == 3 * EVERY)
    go.touch()
    process.end()
    for step in (3, 6, 9, 24):
        assert differences(made.load(str(step)), whole.load(str(step))) == [], f"the version of step {step}"
        assert digests(made, step) == digests(whole, step)


def digests(lab: Lab, step: int) -> dict[str, object]:
    """What the manifest of a version says of each leaf that lies in a pack."""
    with lab.store() as store:
        entry = next(entry for entry in store.catalog.entries() if entry.step == step)
        _, parts = store.catalog.read(entry)
    leaves = {leaf.path: leaf.content for part in parts for leaf in part.leaves}
    found = {path: content.digest for path, content in leaves.items() if hasattr(content, "digest")}
    assert len(found) > 10
    return found


# -- damaged --------------------------------------------------------------------------------------------------------


def flipped(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    # Behind the head of a pack, which holds the names.
    start = int.from_bytes(data[:8], "little") + 8 if path.suffix == ".safetensors" else 0
    data[draw.randrange(start, len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def truncated(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])


def removed(path: Path, draw: random.Random) -> None:
    path.unlink()


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run that was killed after step 20, with the versions of steps 12, 15 and 18."""
    made = Lab(tmp_path_factory.mktemp("broken"), checkpoint={"keep": None, "asynchronous": False})
    advance = {"what": "call", "function": "nlpkernel.bus:Bus.publish", "step": 20}
    made.do("run", "plan.json", "-q", code=-signal.SIGKILL, traps=[advance])
    assert steps(made) == [3, 6, 9, 12, 15, 18]
    return made


def newest(lab: Lab, kind: str) -> Path:
    """The newest pack or manifest of a run."""
    with lab.store() as store:
        entry = store.catalog.entries()[-1]
        manifest = store.catalog.manifest(entry)
        (pack,) = (name for name in manifest.packs if name.startswith(f"packs/{manifest.save}-"))
    return lab.run / "versions" / (pack if kind == "pack" else entry.file)


WHAT = {
    ("pack", flipped): r"\S+ has xxh3 [0-9a-f]{32}, and [0-9a-f]{32} was recorded",
    ("pack", truncated): r"it has [\d,]+ bytes, and [\d,]+ were recorded \(the first leaf in it is \S+\)",
    ("pack", removed): r"it is missing, and [\d,]+ bytes were recorded \(the first leaf in it is \S+\)",
    ("manifest", flipped): r"the manifest has SHA-256 [0-9a-f]{64}, and [0-9a-f]{64} was recorded",
    ("manifest", truncated): r"the manifest has SHA-256 [0-9a-f]{64}, and [0-9a-f]{64} was recorded",
}


@pytest.mark.parametrize(("kind", "harm"), WHAT, ids=lambda each: getattr(each, "__name__", each))
def test_case_k1_damage_is_named_and_the_version_that_is_offered_goes_on_exactly(
    lab: Callable[..., Lab], broken: Lab, whole: Lab, kind: str, harm: Callable[[Path, random.Random], None]
) -> None:
    made = taken_over(lab, broken)
    path = newest(made, kind)
    name = made.versions()[-1].name
    harm(path, random.Random(f"{kind} {harm.__name__}"))
    told = made.do("resume", "runs/small", code=1)
    found = re.fullmatch(
        rf"error: {path.relative_to(made.folder)}: STO003 {name} is damaged: {WHAT[kind, harm]}; the newest sound "
        r"version is (15-\w+) \[store of nlpkernel-plugin-store\]\n",
        told,
    )
    assert found is not None, told
    told = made.do("versions", "verify", "runs/small", code=1)
    assert re.search(rf"{path.name}.*: {WHAT[kind, harm]}", told)
    assert told.count("sound") == 5
    made.do("resume", "runs/small", "-q", "--from", found[1])
    assert made.told().numbers == whole.told().numbers
    assert differences(made.load(), whole.load()) == []


def test_case_k1_a_version_whose_manifest_is_gone_is_none_and_the_one_before_goes_on_exactly(
    lab: Callable[..., Lab], broken: Lab, whole: Lab, tidy: set[str]
) -> None:
    made = taken_over(lab, broken)
    newest(made, "manifest").unlink()
    assert steps(made) == [3, 6, 9, 12, 15]
    made.do("resume", "runs/small", "-q")
    assert made.told().began == [0, 15]
    assert differences(made.load(), whole.load()) == []
    assert made.remains() == tidy, "the pack that nobody names is gone"


@pytest.mark.parametrize("kind", ["pack", "manifest", "all"])
@pytest.mark.parametrize("harm", [truncated, removed], ids=lambda each: each.__name__)
def test_case_k1_what_is_harmed_under_a_run_harms_no_later_version(
    lab: Callable[..., Lab], whole: Lab, kind: str, harm: Callable[[Path, random.Random], None]
) -> None:
    """The next version shares what has not changed, most of the model, with the one that is harmed."""
    frozen_part = f"{Path(__file__).parent / 'parts/frozen.py'}:Frozen"
    made = lab(model={"transform": [{"use": frozen_part}]}, checkpoint={"keep": None, "asynchronous": False})
    draw = random.Random(f"{kind} {harm.__name__}")
    with made.held(20, "run", "plan.json"):
        with made.store() as store:
            newest_two = store.catalog.entries()[-2:]
            shared = [set(store.catalog.manifest(entry).packs) for entry in newest_two]
        assert shared[0] & shared[1], "nothing is shared"
        if kind == "all":
            for path in [path for path in (made.run / "versions").rglob("*") if path.is_file()]:
                harm(path, draw)
        else:
            harm(newest(made, kind), draw)
    with made.store() as store:
        sound = [entry.step for entry in store.catalog.entries() if not store.verify(entry.name)]
    assert sound[-2:] == [21, 24]
    assert made.load().step == STEPS
    assert made.do("resume", "runs/small").startswith("run small: finished")


def taken_over(lab: Callable[..., Lab], other: Lab) -> Lab:
    """A lab with the run of another one."""
    made = lab(checkpoint={"keep": None, "asynchronous": False})
    shutil.copytree(other.folder / "runs", made.folder / "runs", symlinks=True)
    shutil.copytree(other.folder / "cache", made.folder / "cache")
    shutil.copy(other.witness, made.witness)
    return made


pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="faults of the disk are made as Linux makes them"
)
