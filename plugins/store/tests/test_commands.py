"""`nlpkernel versions` and `nlpkernel rollback` on real runs."""

from __future__ import annotations

import json
import re
import shutil

import attrs
import pytest
import torch
from safetensors.torch import load_file, save_file

import nlpkernel
from nlpkernel import runs
from nlpkernel.cli import main
from nlpkernel.events import RunStarted
from nlpkernel.plan import Plan
from nlpkernel.state import Leaf, PerWorker, Sharded, Summed, local
from nlpkernel_sdk.plans import record, tiny_plan
from nlpkernel_store.component import Store
from nlpkernel_store.options import Options, Worker
from nlpkernel_store.store import VersionStore


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of three versions, made once."""
    folder = tmp_path_factory.mktemp("made")
    plan = tiny_plan(
        train={"steps": 12, "evaluate": {"every": 4}}, checkpoint={"use": "store", "every": 4, "fsync": False}
    )
    nlpkernel.run(plan, runs_folder=folder)
    return folder / "tiny"


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it."""
    shutil.copytree(made, tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def command(capsys, folder):
    """Run `versions ACTION RUN ...` (or `rollback RUN ...`), and return its exit code, output and errors."""

    def call(action, *arguments, run=folder):
        words = ["rollback"] if action == "rollback" else ["versions", *filter(None, [action])]
        capsys.readouterr()
        code = main([*words, str(run), *arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


@pytest.fixture
def listed(command):
    def rows():
        code, out, _ = command("list", "--json")
        assert code == 0
        return json.loads(out)

    return rows


def resume(folder, steps):
    plan = Plan.load(folder / runs.PLAN, [f"train.steps={steps}"])
    return record(plan, folder.parent, resume="newest")


def flip(folder, suffix):
    (path,) = (folder / "versions/packs").glob(f"*{suffix}.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return path


def test_versions_lists_each_with_what_it_is(command, listed):
    code, out, _ = command("")
    assert code == 0
    lines = [line.split() for line in out.splitlines()[2:]]
    rows = listed()
    assert [row["name"] for row in rows] == [next(w for w in line if w != ">") for line in lines]
    assert [line[0] == ">" for line in lines] == [False, False, True]
    assert [row["step"] for row in rows] == [4, 8, 12]
    assert [row["head"] for row in rows] == [False, False, True]
    assert all(row["current"] and row["line"] == 1 and row["verified"] is None for row in rows)
    assert [row["parent"] for row in rows] == [None, rows[0]["id"], rows[1]["id"]]
    assert all(row["bytes"] > row["new_bytes"] for row in rows[1:])
    assert all(set(row["metrics"]) == {"validation/loss"} for row in rows)


@pytest.mark.parametrize("words", [["--json", "RUN"], ["RUN", "--json"], ["list", "RUN", "--json"]])
def test_the_short_form_takes_options_on_either_side(folder, capsys, words):
    assert main(["versions", *(str(folder) if word == "RUN" else word for word in words)]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3


def test_show_tells_what_a_version_consists_of_and_what_made_it(command):
    code, out, _ = command("show", "8")
    assert code == 0
    assert re.search(r"^version +8-[0-9a-f]{12}$", out, re.MULTILINE)
    assert "nlpkernel-plugin-store" in out
    told = json.loads(command("show", "8", "--json")[1])
    leaves = {leaf["path"]: leaf for leaf in told["leaves"]}
    assert leaves["model/head.weight"]["type"] == "float32 1 x 4"
    assert leaves["random/torch"]["kind"] == "of worker 0"
    assert told["lock"]["activated"]["kernel"] == nlpkernel.__version__
    assert set(told["artifacts"]) == {"info.json"}


def test_verify_says_sound_and_when_and_finds_damage_with_exit_code_1(command, listed, folder):
    assert command("verify")[0] == 0
    assert all(row["verified"]["damage"] == [] for row in listed())
    path = flip(folder, "-2-0")
    code, out, _ = command("verify", "newest", "4")
    assert code == 1
    assert re.search(
        rf"^12-\w+  damaged\n  {path}: \S+ has xxh3 \w+, and \w+ was recorded\n4-\w+  sound$",
        out,
        re.MULTILINE,
    )
    assert listed()[2]["verified"]["damage"]
    assert "damaged" in command("")[1]
    code, out, _ = command("verify", "--json")
    assert code == 1
    assert [each["sound"] for each in json.loads(out)] == [True, True, False]


def test_diff_names_tensors_with_their_distance_and_what_else_is_other(command, folder):
    code, out, _ = command("diff", "4", "8")
    assert code == 1
    assert re.search(r"^model/head.weight +at most 0\.\d+$", out, re.MULTILINE)
    told = json.loads(command("diff", "4", "8", "--json")[1])
    left, right = (load(folder, step)["head.weight"] for step in ("4", "8"))
    (row,) = [row for row in told["leaves"] if row["path"] == "model/head.weight"]
    assert row["max_abs"] == pytest.approx(float((left - right).abs().max()))
    assert "random/python" not in {row["path"] for row in told["leaves"]}
    assert told["changes"] == []
    assert command("diff", "8", "8")[:2] == (0, f"{told['b']} and {told['b']}: 17 leaves the same\n")


def load(folder, version):
    out = folder.parent / f"export-{version}"
    assert main(["versions", "export", str(folder), version, "--safetensors", str(out)]) == 0
    return load_file(out / "model.safetensors")


def test_settings_that_differ_are_named(command, folder):
    resume(folder, 14)
    assert "train.steps was 12 and is 14" in command("diff", "12", "14")[1]


def test_a_tag_names_a_version_until_it_is_taken_away(command, listed):
    assert command("tag", "4", "good")[0] == 0
    assert [row["tags"] for row in listed()] == [["good"], [], []]
    assert "4-" in command("show", "good")[1]
    code, _, err = command("tag", "8", "good", "--delete")
    assert (code, "STO004" in err) == (1, True)
    assert command("tag", "good", "good", "--delete")[0] == 0
    assert [row["tags"] for row in listed()] == [[], [], []]
    assert "STO008" in command("tag", "4", "newest")[2]


def test_rollback_goes_on_from_an_older_version_and_keeps_the_others(command, listed, folder):
    code, out, _ = command("rollback", "8")
    assert code == 0
    assert "training goes on from 8-" in out
    assert "1 version left behind" in out
    assert [row["head"] for row in listed()] == [False, True, False]
    assert [row["current"] for row in listed()] == [True, True, False]
    (started,) = [event for event in resume(folder, 11) if isinstance(event, RunStarted)]
    assert started.start.step == 8
    rows = listed()
    assert [(row["step"], row["line"], row["current"]) for row in rows] == [
        (4, 1, True),
        (8, 1, True),
        (12, 1, False),
        (11, 2, True),
    ]
    assert rows[3]["parent"] == rows[1]["id"]


def test_rollback_to_a_damaged_version_is_refused_with_another(command, listed, folder):
    flip(folder, "-1-0")
    code, _, err = command("rollback", "8")
    assert code == 1
    assert "STO003" in err
    assert "the newest sound version is 4-" in err
    assert listed()[2]["head"]


def test_training_the_same_again_from_an_older_version_ends_with_the_same_bits(command, folder):
    command("rollback", "4")
    resume(folder, 12)
    _, out, _ = command("diff", "12", json.loads(command("list", "--json")[1])[2]["name"], "--json")
    told = json.loads(out)
    # What a run remembers of its roll-backs is other; every tensor is the same.
    assert all(row["max_abs"] is None for row in told["leaves"])
    assert told["same"] >= 12


def test_prune_removes_what_a_roll_back_left_and_frees_its_packs(command, listed, folder):
    command("rollback", "4")
    before = sorted((folder / "versions/packs").iterdir())
    code, out, _ = command("prune", "--dry-run")
    assert code == 0
    assert "2 versions and 2 packs" in out
    assert "would be removed" in out
    assert len(listed()) == 3
    assert command("prune")[0] == 0
    assert [row["step"] for row in listed()] == [4]
    assert len(list((folder / "versions/packs").iterdir())) == len(before) - 2
    assert command("verify")[0] == 0


def test_prune_takes_versions_by_name_and_spares_head_and_tags(command, listed):
    command("tag", "8", "good")
    for version, word in (("12", "training goes on"), ("8", "has the tag 'good'")):
        code, _, err = command("prune", version)
        assert (code, word in err) == (1, True)
    assert json.loads(command("prune", "4", "--json")[1])["versions"][0].startswith("4-")
    assert [row["step"] for row in listed()] == [8, 12]


def test_prune_thins_the_current_line_by_rule(command, listed):
    command("prune", "--last", "1", "--every", "8")
    assert [row["step"] for row in listed()] == [8, 12]


def test_prune_removes_damaged_manifests_only_when_told_to(command, listed, folder):
    (manifest,) = (folder / "versions/manifests").glob("000001-*")
    manifest.write_bytes(b"?")
    assert "damaged: the manifest has SHA-256" in command("")[1]
    code, _, err = command("prune")
    assert code == 1
    assert "--damaged" in err
    assert command("prune", "--damaged")[0] == 0
    assert [row["step"] for row in listed()] == [8, 12]


@pytest.mark.parametrize("words", [("rollback", "4"), ("prune",), ("import", "x")])
def test_what_changes_a_run_is_refused_while_it_is_in_use(command, folder, words):
    with runs.claim(folder):
        code, _, err = command(*words)
    assert code == 2
    assert "NK311" in err
    # Looking is allowed, and so are tags.
    with runs.claim(folder):
        assert command("")[0] == command("tag", "4", "good")[0] == 0


def test_export_writes_plain_weights_and_artifacts(folder, tmp_path, capsys):
    weights = load(folder, "best")
    assert set(weights) == {"head.weight", "head.bias"}
    out = tmp_path / "export-best"
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*")) == [
        "artifacts", "artifacts/info.json", "model.safetensors", "plan.toml", "version.json",
    ]  # fmt: skip
    about = json.loads((out / "version.json").read_text())
    assert about["step"] in (4, 8, 12)
    capsys.readouterr()
    assert main(["versions", "export", str(folder), "best", "--safetensors", str(out)]) == 2
    assert "is there and not empty" in capsys.readouterr().err


def test_an_export_that_is_imported_again_is_the_same_and_no_step_of_the_training(command, listed, folder):
    load(folder, "12")
    code, out, _ = command("import", str(folder.parent / "export-12"), "--tag", "again")
    assert code == 0
    assert "0 tensors of 2 differ from the base" in out
    rows = listed()
    assert [row["head"] for row in rows] == [False, False, True, False]
    assert (rows[3]["tags"], rows[3]["current"], rows[3]["parent"]) == (["again"], False, rows[2]["id"])
    assert command("diff", "12", "again")[0] == 0
    resume(folder, 14)
    assert [row["step"] for row in listed() if row["current"]] == [4, 8, 12, 14]


def test_other_weights_are_taken_up_after_a_roll_back_to_them(command, folder, tmp_path):
    weights = load(folder, "12")
    weights["head.weight"] = torch.full_like(weights["head.weight"], 0.5)
    save_file(weights, tmp_path / "new.safetensors")
    code, out, _ = command("import", str(tmp_path / "new.safetensors"), "--base", "8", "--tag", "new")
    assert code == 0
    assert "2 tensors of 2 differ from the base" in out
    assert torch.equal(load(folder, "new")["head.weight"], weights["head.weight"])
    assert command("rollback", "new")[0] == 0
    (started,) = [event for event in resume(folder, 11) if isinstance(event, RunStarted)]
    assert started.start.step == 8


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda w: w.pop("head.bias"), "1 tensor of the model missing: head.bias"),
        (lambda w: w.update(more=torch.ones(1)), "the model has no more"),
        (lambda w: w.update({"head.bias": torch.ones(3)}), r"head.bias is torch.float32 [3]"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(command, listed, folder, tmp_path, change, word):
    weights = load(folder, "12")
    change(weights)
    save_file(weights, tmp_path / "new.safetensors")
    code, _, err = command("import", str(tmp_path / "new.safetensors"))
    assert code == 2
    assert word in err
    assert len(listed()) == 3


def test_a_run_that_keeps_its_versions_elsewhere_is_refused(tmp_path, command):
    nlpkernel.run(tiny_plan(name="bare"), runs_folder=tmp_path)
    code, _, err = command("", run=tmp_path / "bare")
    assert code == 2
    assert "STO009" in err


def test_listing_and_verifying_do_not_import_torch(folder):
    import subprocess
    import sys

    code = (
        "import sys; from nlpkernel.cli import main\n"
        f"main(['versions', {str(folder)!r}]); main(['versions', 'verify', {str(folder)!r}])\n"
        "main(['versions', 'show', {0!r}, 'newest']); main(['rollback', {0!r}, '4'])\n"
        "print({{'torch', 'numpy'}} & sys.modules.keys())".format(str(folder))
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


def test_a_damaged_head_is_told_after_the_list_and_a_roll_back_mends_it(command, listed, folder):
    command("rollback", "4")
    (folder / "versions/head").write_text("nonsense")
    name = next((folder / "versions/manifests").glob("000002-*")).name.split("-")[2][:12]
    code, out, err = command("")
    assert (code, f"8-{name}" in out) == (1, True)
    assert "STO003 its digest is not the recorded one" in err
    assert command("rollback", f"8-{name}")[0] == 0
    assert [row["head"] for row in listed()] == [False, True, False]


@pytest.mark.parametrize("words", [(), ("--damaged",), ("--last", "1"), ("--damaged", "--dry-run")])
def test_prune_removes_nothing_where_the_version_to_go_on_from_cannot_be_read(command, listed, folder, words):
    (manifest,) = (folder / "versions/manifests").glob("000003-*")
    manifest.write_bytes(b"?")
    before = sorted((folder / "versions").rglob("*.*"))
    code, _, err = command("prune", *words)
    assert code == 1
    assert "STO003" in err
    assert re.search(r"training goes on from 12-\w+, and the manifest has SHA-256", err)
    assert re.search(r"`nlpkernel rollback RUN 8-\w+` goes on from the newest sound version", err)
    assert sorted((folder / "versions").rglob("*.*")) == before
    assert command("rollback", "8-" + re.search(r"RUN 8-(\w+)", err)[1])[0] == 0
    assert command("prune", "--damaged")[0] == 0
    assert [row["step"] for row in listed()] == [4, 8]


@pytest.fixture
def split(folder):
    """A version with the content of the newest, as two workers would save it that each hold half of the weights."""
    catalogs = [Store(fsync=False).catalog(folder) for _ in range(2)]
    stores = [
        VersionStore(catalog, Options(), Worker(launch="two", rank=rank, world=2), write=True, notice=print)
        for rank, catalog in enumerate(catalogs)
    ]
    for rank, store in enumerate(stores):
        snapshot = store.load("12")
        tree = dict(snapshot.tree)
        weight = tree["model/head.weight"].value
        half = Sharded.box((1, 4), (0, 2 * rank), (1, 2))
        tree["model/head.weight"] = Leaf(local(weight, half), half)
        tree["group/owed"] = Leaf(torch.ones(3), Summed(rank))
        tree["random/own"] = Leaf(rank, PerWorker(rank))
        store.save(attrs.evolve(snapshot, tree=tree))
    (first, *_), _ = [store.settle(wait=True) for store in stores]
    return first.version.name


def test_show_tells_what_workers_hold_together_in_one_row(command, split):
    code, out, _ = command("show", split)
    assert code == 0
    assert re.search(r"^workers +2$", out, re.MULTILINE)
    for row in (
        r"model/head.weight +float32 1 x 4 +sharded over 2 workers +16 B",
        r"group/owed +float32 3 +summed over 2 workers +24 B",
        r"model/head.bias +float32 1 +replicated +4 B",
        r"random/own +plain +of worker 1 +1 B",
    ):
        assert len(re.findall(rf"^{row}$", out, re.MULTILINE)) == 1, row
    leaves = json.loads(command("show", split, "--json")[1])["leaves"]
    halves = [leaf for leaf in leaves if leaf["path"] == "model/head.weight"]
    assert [leaf["worker"] for leaf in halves] == [0, 1]
    assert [leaf["whole"] for leaf in halves] == [[1, 4]] * 2
    assert halves[1]["pieces"] == [{"at": [0, 0], "offset": [0, 2], "shape": [1, 2]}]


def test_diff_compares_what_pieces_make_whatever_the_layout(command, listed, split, folder):
    code, out, _ = command("diff", listed()[2]["name"], split, "--json")
    told = json.loads(out)
    assert code == 1
    assert [(row["path"], row["worker"], row["only"]) for row in told["leaves"]] == [
        ("group/owed", None, "b"),
        ("random/own", 0, "b"),
        ("random/own", 1, "b"),
    ]
    assert told["same"] == 17
    assert command("diff", split, split)[0] == 0
    told = json.loads(command("diff", "8", split, "--json")[1])
    left, right = (load(folder, version)["head.weight"] for version in ("8", split))
    (row,) = [row for row in told["leaves"] if row["path"] == "model/head.weight"]
    assert row["max_abs"] == pytest.approx(float((left - right).abs().max()))


def test_pieces_are_exported_whole_and_imported_again_by_one_worker(command, listed, split, folder):
    both = [load(folder, version) for version in (listed()[2]["name"], split)]
    assert both[0].keys() == both[1].keys()
    assert all(torch.equal(both[0][name], both[1][name]) for name in both[0])
    code, out, _ = command(
        "import", str(folder.parent / f"export-{split}"), "--base", split, "--tag", "again"
    )
    assert code == 0
    assert "0 tensors of 2 differ from the base" in out
    assert "what belongs to worker 1 alone is left behind" in out
    told = json.loads(command("diff", split, "again", "--json")[1])
    assert [(row["path"], row["worker"], row["only"]) for row in told["leaves"]] == [("random/own", 1, "a")]
    assert json.loads(command("show", "again", "--json")[1])["workers"] == 1
