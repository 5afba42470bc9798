"""All plugins of this house conform, as far as metadata, sources and settings go (the level `static`); what is known,
and why, is said here. `nlpkernel conform DIST --level behaviour` looks at the rest."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from nlpkernel.plugins.catalog import Catalog
from nlpkernel_sdk.conform.runner import conform
from nlpkernel_sdk.conform.subject import Config, Subject

OFFERS = Catalog()
#: The kernel is no plugin; and Ray, which `make ray` brings, is what its plugin requires.
LEFT_OUT = {"nlpkernel"} if find_spec("ray") else {"nlpkernel", "nlpkernel-plugin-ray"}
DISTRIBUTIONS = sorted({offer.distribution for offer in OFFERS.offers} - LEFT_OUT)

#: What a component has to be given, by "point.name".
COMPONENTS: dict[str, dict[str, Any]] = {
    "data.text": {"settings": {"paths": ["corpus.txt"]}},
    "model.hf": {"settings": {"folder": "model"}},
    "optimizer.scheduled": {"settings": {"schedule": "nlpkernel-plugin-optim:constant"}},
    "sampler.curriculum": {"settings": {"over": 10}},
    "sampler.token-budget": {"settings": {"tokens": 64}},
    "stage.filter": {"settings": {"pattern": "a"}},
    "stage.language": {"settings": {"languages": ["en"]}},
    "stage.replace": {"settings": {"rules": [{"pattern": "a", "text": "b"}]}},
    "augmentation.back-translation": {"settings": {"there": "there", "back": "back"}},
    "augmentation.synonyms": {"settings": {"path": "wordnet"}},
    "tokenizer.pretrained": {"settings": {"path": "tokenizer.json"}},
}
#: By distribution: failures that are known, with their reason.
KNOWN: dict[str, dict[str, str]] = {
    "nlpkernel-plugin-text": {
        "static.no-pickle": "between a process and workers that it started itself",
    },
}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_plugin_of_this_house_conforms(distribution: str, tmp_path: Any) -> None:
    (tmp_path / "sample").write_text("text\n", encoding="utf-8")
    own = {f"{offer.point}.{offer.name}" for offer in OFFERS.offers if offer.distribution == distribution}
    tables = {name: table for name, table in COMPONENTS.items() if name in own}
    tables |= {
        name: {"sample": "sample", **tables.get(name, {})} for name in own if name.startswith("reader.")
    }
    config = Config(components=tables, known=KNOWN.get(distribution, {}), base=tmp_path, at_least=20)
    verdict = conform(Subject(distribution, config, OFFERS), ("static",))
    assert [f"{each.case}: {each.said}" for each in verdict.outcomes if each.status == "failed"] == []
    assert list(verdict.wrong) == []
    needed = [each.said for each in verdict.outcomes if each.status == "skipped" and "it needs" in each.said]
    assert needed == []
