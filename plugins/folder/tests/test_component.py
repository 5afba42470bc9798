from __future__ import annotations

import subprocess
import sys

import pytest

from nlpkernel.components import fields_of, is_component
from nlpkernel.hookspecs.everywhere import Action, Facts
from nlpkernel.progress import Progress
from nlpkernel_folder.codes import CODES
from nlpkernel_folder.component import Folder, Keep


def test_a_save_is_due_every_so_many_steps():
    due = [step for step in range(1, 13) if Folder(every=4).decide(Progress(step=step)) is not None]
    assert due == [4, 8, 12]
    assert Folder(every=4).decide(Progress(step=8)).action is Action.SAVE


def test_without_an_interval_nothing_is_due():
    assert not any(Folder().decide(Progress(step=step)) for step in range(100))


def test_settings_have_help_and_resolvable_types():
    assert is_component(Folder)
    fields = {field.name: field for field in [*fields_of(Folder), *fields_of(Keep)]}
    assert set(fields) == {"every", "keep", "fsync", "verify", "last", "best"}
    assert all(field.facts.help for field in fields.values())
    assert fields["keep"].type == Keep | None


def test_the_component_is_imported_without_torch():
    heavy = "{'torch', 'numpy', 'safetensors'}"
    code = f"import sys, nlpkernel_folder.component; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_the_estimate_says_how_large_a_version_is():
    facts = Facts(parameter_bytes=4_000_000, optimizer_bytes=8_000_000)
    assert Folder(keep=Keep(last=3, best=1)).estimate(facts).notes == (
        "a version takes about 12.0 MB on disk; at most 4 are kept",
    )
    assert Folder().estimate(facts).notes == ("a version takes about 12.0 MB on disk; all are kept",)
    assert Folder().estimate(Facts()) == Facts()


def test_best_by_a_missing_metric_is_never_best(open_store, snapshot, run):
    store = open_store(keep=Keep(last=1, best=1))
    store.save(snapshot(step=1))
    store.save(snapshot(step=2))
    assert [info.step for info in store.list()] == [2]


@pytest.mark.parametrize("code", CODES)
def test_codes_have_a_title_and_an_explanation(code):
    title, text = CODES[code]
    assert code.startswith("FLD")
    assert title
    assert 2 <= text.count("\n") + 1 <= 5
