from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import nlpkernel_tasks
from nlpkernel.components import fields_of, is_component
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel_tasks.codes import CODES
from nlpkernel_tasks.component import Classification, Mlm

SOURCE = Path(nlpkernel_tasks.__file__).parent


def test_the_components_import_nothing_heavy() -> None:
    program = (
        "import sys, nlpkernel_tasks.component, nlpkernel_tasks.codes\n"
        "heavy = {'torch', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_task_is_offered_and_every_setting_has_help() -> None:
    points = {
        each.name: each
        for each in entry_points(group="nlpkernel.task.v1")
        if each.value.startswith("nlpkernel_tasks")
    }
    assert sorted(points) == ["classification", "mlm"]
    for name, point in points.items():
        cls = point.load()
        assert is_component(cls)
        assert all(field.facts.help for field in fields_of(cls)), cls
        assert cls().estimate(Facts()) == Facts(task=name)


def test_every_code_is_explained_and_every_explanation_is_used() -> None:
    used = {
        code
        for path in SOURCE.rglob("*.py")
        if path.name != "codes.py"
        for code in re.findall(r'"(TSK\d{3})"', path.read_text())
    }
    assert used == set(CODES)
    for title, text in CODES.values():
        assert title
        assert 1 <= len(text.splitlines()) <= 5


def test_shares_are_no_more_than_there_is() -> None:
    assert [name for name, _ in Mlm(masked=0.9, replaced=0.2).check_settings()] == ["replaced"]
    assert not list(Mlm(masked=0.9, replaced=0.1).check_settings())
    assert Classification().main == "accuracy"
