"""The stages in a plan, through the data component of another distribution."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import nlpkernel
from nlpkernel.errors import NlpkernelError
from nlpkernel_sdk import tiny_values

README = Path(__file__).parent.parent / "README.md"

SENTENCE = (
    "The keeper of the lighthouse climbed the stairs with a lamp, and looked out over the water to the islands "
    "that lie before the coast. He had done so every evening for thirty years, in storm and calm, number {}."
)


def plan(folder: Path, stages: list[object], **data: object) -> nlpkernel.Plan:
    """A tiny plan over 43 documents."""
    pytest.importorskip("nlpkernel_text")
    pytest.importorskip("nlpkernel_transformer")
    rows = [{"text": SENTENCE.format(at) + f" Word{at} " * 3, "kind": "ab"[at % 2]} for at in range(40)]
    rows += [rows[0], {"text": "schÃ¶n", "kind": "a"}]
    rows.append({"text": f"Write to ann@example.com. {rows[1]['text']}", "kind": "b"})
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = tiny_values(
        data={
            "use": "text",
            "paths": ["docs.jsonl"],
            "window": 16,
            "validation": 0,
            "fields": {"label": "kind"},
            "stages": stages,
            **data,
        },
        model={"use": "gpt", "preset": "nano", "layers": 1, "width": 32},
        train={"steps": 1, "batch": 1},
    )
    return nlpkernel.Plan.of(values, base=folder)


def test_all_stages_work_in_a_plan_and_the_report_counts_what_they_did(tmp_path: Path) -> None:
    stages = [
        {"use": "normalize"},
        {"use": "language", "languages": ["en", "de"], "threshold": 0},
        {"use": "quality", "off": ["words", "repetition"]},
        {"use": "length", "least": 20},
        {"use": "replace", "rules": [{"pattern": "lighthouse", "text": "tower"}]},
        {"use": "filter", "column": "label", "values": ["a", "b"]},
        {"use": "pii"},
        {"use": "duplicates"},
        {"use": "near-duplicates", "threshold": 1.0},
        {"use": "label-noise", "folds": 2},
    ]
    report = nlpkernel.run(plan(tmp_path, stages), runs_folder=tmp_path / "runs")
    assert report.status == "finished"
    counts = {(count.source, count.what): count.number for count in report.counts}
    assert counts["stage normalize", "mojibake repaired"] == 1
    assert counts["stage quality", "documents dropped: stop words below 2"] == 1
    assert counts["stage replace", "places replaced"] == 42
    assert counts["stage pii", "e-mail addresses masked"] == 1
    assert counts["stage duplicates", "documents dropped: duplicate"] == 1


def test_a_mistake_in_a_stage_is_said_with_its_place_in_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        '[data]\nuse = "text"\nsource = "stdlib"\nstages = [\n'
        '  { use = "quality", most_bulets = 0.5 },\n  { use = "pii", kinds = ["mail"] },\n]\n',
        encoding="utf-8",
    )
    with pytest.raises(NlpkernelError) as caught:
        nlpkernel.Plan.load(path)
    text = str(caught.value)
    assert re.search(r"plan\.toml:5:22: NK101 .*most_bulets.*most_bullets", text), text
    assert re.search(r"plan\.toml:6:\d+: .*mail", text), text


def test_the_plan_in_the_readme_has_no_mistakes(tmp_path: Path) -> None:
    (block,) = re.findall(
        r"^```toml\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert "stages" in block
    path = tmp_path / "plan.toml"
    rest = (
        '[model]\nuse = "gpt"\npreset = "nano"\n[optimizer]\nuse = "adamw"\nlr = 1e-3\n[train]\nsteps = 1\n'
    )
    path.write_text(f"{block}\n{rest}", encoding="utf-8")
    assert nlpkernel.Plan.load(path)
