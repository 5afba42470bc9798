from __future__ import annotations

import subprocess
import sys

import pytest

from nlpkernel.components import fields_of, is_component
from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.everywhere import Action, Facts
from nlpkernel.progress import Progress
from nlpkernel_sdk.plans import tiny_plan
from nlpkernel_store.codes import CODES
from nlpkernel_store.component import Cold, Keep, Store


def test_a_save_is_due_every_so_many_steps():
    due = [step for step in range(1, 13) if Store(every=4).decide(Progress(step=step)) is not None]
    assert due == [4, 8, 12]
    assert Store(every=4).decide(Progress(step=8)).action is Action.SAVE


def test_without_an_interval_nothing_is_due():
    assert not any(Store().decide(Progress(step=step)) for step in range(100))


def test_settings_have_help_and_resolvable_types():
    assert is_component(Store)
    fields = {field.name: field for field in [*fields_of(Store), *fields_of(Keep)]}
    assert {"every", "keep", "last", "best", "asynchronous", "on_failure", "retries", "url"} <= set(fields)
    assert all(field.facts.help for field in fields.values())
    assert fields["keep"].type == Keep | None


@pytest.mark.parametrize(
    "module", ["component", "catalog", "references", "commands.versions", "commands.rollback"]
)
def test_what_lists_and_checks_is_imported_without_torch(module):
    heavy = "{'torch', 'numpy', 'safetensors', 'fsspec'}"
    code = f"import sys, nlpkernel_store.{module}; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_the_estimate_says_how_large_a_version_is():
    facts = Facts(parameter_bytes=4_000_000, optimizer_bytes=8_000_000)
    copy = "saving beside the training takes about 12.0 MB of host memory"
    assert Store(keep=Keep(last=3, best=1)).estimate(facts).notes == (
        "a version takes about 12.0 MB; at most 4 are kept",
        copy,
    )
    assert Store(keep=Keep(every=500)).estimate(facts).notes == (
        "a version takes about 12.0 MB; at most 1 and each of 500 steps are kept",
        copy,
    )
    assert Store(asynchronous=False).estimate(facts).notes == ("a version takes about 12.0 MB; all are kept",)
    assert Store().estimate(Facts()) == Facts()


@pytest.mark.parametrize("code", CODES)
def test_codes_have_a_title_and_an_explanation(code):
    title, text = CODES[code]
    assert code.startswith("STO")
    assert title
    assert 1 <= text.count("\n") + 1 <= 5


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("ftp://bob:hunter2@host/runs", "a user"),
        ("https://hunter2@host", "a user"),
        ("s3://bob:hun/ter2@bucket/runs", "a user"),
        ("simplecache::ftp://bob:hunter2@host/runs", "a user"),
        ("https://host/runs?token=hunter2", "a query"),
    ],
)
def test_a_url_with_what_may_be_secret_is_refused_without_being_repeated(url, what):
    for settings, at in (({"url": url}, "url"), ({"cold": {"url": url}}, "cold.url")):
        with pytest.raises(PlanError, match=rf"{at!r} holds {what}, and a URL is written down") as caught:
            tiny_plan(checkpoint={"use": "store", **settings})
        assert "`secrets`" in str(caught.value)
        assert "ter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/a@b/c",
        "http://host:9000/x",
        "http://[::1]:9000/x",
        "file:///mnt/what?/runs",
        "file://C:/runs",
        "memory://x",
    ],
)
def test_a_url_without_anything_secret_is_taken(url):
    assert list(Store(url=url, cold=Cold(url=url)).check_settings()) == []
