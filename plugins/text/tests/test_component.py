"""Settings, lightness, and the codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nlpkernel_text
from nlpkernel.components import fields_of
from nlpkernel_text.codes import CODES
from nlpkernel_text.component import Text
from nlpkernel_text.reading.components import JsonLines, Plain
from nlpkernel_text.samplers.components import Random
from nlpkernel_text.settings import Source, Stream
from nlpkernel_text.task import Lm
from nlpkernel_text.tokenizers.components import Bpe, Bytes, Characters

from .conftest import COMPONENTS

HERE = Path("a.txt")


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys, nlpkernel_text.component, nlpkernel_text.tokenizers.components, nlpkernel_text.task;"
        "import nlpkernel_text.codes, nlpkernel_text.reading.components, nlpkernel_text.samplers.components;"
        "sys.exit(', '.join({'torch', 'numpy', 'tokenizers', 'rich', 'zmq'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_setting_says_what_it_is() -> None:
    for kind in (Text, Bytes, Characters, Bpe, Lm):
        assert kind.__doc__
        for field in fields_of(kind):
            assert field.facts.help, f"{kind.__name__}.{field.name}"


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({}, "paths"),
        ({"paths": (HERE,), "source": "stdlib"}, "source"),
        ({"paths": (HERE,), "validation": 0.1, "validation_paths": (HERE,)}, "validation"),
        ({"paths": (HERE,), "split": "tail", "validation_paths": (HERE,)}, "split"),
        ({"paths": (HERE,), "long": "skip"}, "long"),
        ({"paths": (HERE,), "fields": {"text": "body"}, "format": Plain()}, "fields"),
        ({"source": "stdlib", "fields": {"text": "body"}}, "fields"),
        ({"source": "stdlib", "sources": [Source(paths=(HERE,))]}, "sources"),
        ({"urls": ("s3://a/b",), "source": "stdlib"}, "source"),
        ({"sources": [Source(paths=(HERE,), weight=1.0), Source(paths=(HERE,))]}, "sources"),
        ({"sources": [Source(paths=(HERE,), name="a"), Source(paths=(HERE,), name="a")]}, "sources"),
        ({"sources": [Source(name="a")]}, "sources"),
        ({"paths": (HERE,), "temperature": 2.0}, "temperature"),
        ({"sources": [Source(paths=(HERE,))], "split": "tail"}, "split"),
        ({"sources": [Source(paths=(HERE,), fields={"label": "y"})], "stream": Stream()}, "fields"),
        ({"paths": (HERE,), "augment": [object()]}, "augment"),
        ({"paths": (HERE,), "augment": [object()], "pack": "rows"}, "augment"),
        ({"paths": (HERE,), "stream": Stream(), "validation": 0.1}, "validation"),
        ({"paths": (HERE,), "stream": Stream(), "sampling": Random()}, "sampling"),
    ],
)
def test_settings_that_do_not_go_together_are_told_by_name(settings: dict[str, Any], wrong: str) -> None:
    assert [name for name, _ in Text(**{**COMPONENTS, **settings}).check_settings()] == [wrong]


@pytest.mark.parametrize(
    "settings",
    [
        {"paths": (HERE,)},
        {"source": "stdlib"},
        {"paths": (HERE,), "long": "skip", "pack": "rows"},
        {"paths": (HERE,), "fields": {"text": "body"}, "format": JsonLines()},
        {"paths": (HERE,), "fields": {"text": "body"}},
        {"paths": (HERE,), "urls": ("s3://a/b",)},
        {"paths": (HERE,), "augment": [object()], "pack": "rows", "long": "truncate"},
        {"paths": (HERE,), "stream": Stream(), "validation_paths": (HERE,)},
        {"paths": (HERE,), "validation_paths": (HERE,)},
        {"paths": (HERE,), "split": "tail", "sampling": Random(), "pack": "isolated"},
    ],
)
def test_settings_that_go_together_are_fine(settings: dict[str, Any]) -> None:
    assert not list(Text(**{**COMPONENTS, **settings}).check_settings())


def test_a_share_is_held_out_unless_files_are() -> None:
    assert Text(paths=(HERE,)).share == 0.1
    assert Text(paths=(HERE,), validation=0.0).share == 0.0
    assert Text(paths=(HERE,), validation_paths=(HERE,)).share == 0.0


def test_every_code_is_explained_and_used() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(nlpkernel_text.__file__).parent.rglob("*.py")
        if path.name != "codes.py"
    )
    assert set(re.findall(r"TXT\d{3}", source)) == set(CODES)
    assert all(title and 1 < len(text.split("\n")) < 6 for title, text in CODES.values())
