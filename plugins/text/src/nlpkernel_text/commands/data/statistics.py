"""What became of a plan's documents, in numbers; and some of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpkernel.words import size
from nlpkernel_text.building import Building
from nlpkernel_text.corpus import Corpus
from nlpkernel_text.data import PackedData, TextData
from nlpkernel_text.opening import open_text

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.component import Text
    from nlpkernel_text.packing import Packer

_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
#: Characters of a row that are shown.
_CHARACTERS = 400


def statistics(text: Text, run: Run, whole: Callable[[], Building]) -> tuple[object, list[str]]:
    """From files to rows."""
    data = open_text(text, run, None if text.stream is not None else whole())
    assert isinstance(data, PackedData)
    try:
        found: dict[str, Any] = {
            "counts": [[source, what, n] for (source, what), n in sorted(run.counts.items())]
        }
        if text.stream is None:
            found.update(_documents(whole()))
        else:
            files = Corpus(text, run).files
            found["stream"] = {"files": len(files), "bytes": sum(each.file.size() for each in files)}
        found["vocabulary"] = data.info.vocabulary
        found["splits"] = {
            name: _split(data, packer, data.info.vocabulary) for name, packer in data.packers.items()
        }
        if isinstance(data, TextData):
            found["epoch"] = data.steps(epochs=1.0)
            found["sources"] = _sources(data)
        return found, _told(found)
    finally:
        data.close()


def show(text: Text, run: Run, count: int, whole: Callable[[], Building]) -> tuple[object, list[str]]:
    """The first rows of the training split, with where they come from."""
    data = open_text(text, run, None if text.stream is not None else whole())
    assert isinstance(data, PackedData)
    try:
        rows: list[dict[str, Any]] = []
        step = 0
        while len(rows) < count:
            for index in range(len(data.window(step))):
                names, batch = data.names(step, index), data.kept(step, index)
                for name, row in zip(names, batch, strict=False):
                    ids = row["tokens"].tolist()
                    found = {"name": name, "tokens": len(ids), "text": data.codec.decode(ids)}
                    if "label" in row:
                        found["label"] = data.info.labels[row["label"]]
                    if "labels" in row:
                        found["labels"] = [data.info.labels[each] for each in row["labels"]]
                    if "prompt" in row:
                        found["prompt"] = row["prompt"]
                    if "image" in row:
                        found["image"] = list(row["image"].shape[1:])
                    rows.append(found)
            step += 1
        lines = []
        for row in rows[:count]:
            label = f", label {row['label']!r}" if "label" in row else ""
            if "labels" in row:
                label = f", labels {', '.join(row['labels']) or 'none'}"
            if "prompt" in row:
                label += f", {row['prompt']} of the prompt"
            image = f", image of {row['image'][0]} x {row['image'][1]} pixels" if "image" in row else ""
            lines.append(f"{row['name']}  {row['tokens']} tokens{label}{image}")
            shown = row["text"][:_CHARACTERS] + ("..." if len(row["text"]) > _CHARACTERS else "")
            lines += [f"    {line}" for line in shown.split("\n")]
        return rows[:count], lines
    finally:
        data.close()


def _documents(building: Building) -> dict[str, Any]:
    entry, cleaned = building.tokens()
    found: dict[str, Any] = {
        "files": len(building.corpus.files),
        "bytes": sum(each.file.size() for each in building.corpus.files),
        "documents": entry.facts["documents"],
        "characters": entry.facts["characters"],
        "stages": [],
    }
    if building.images is not None:
        facts = building.images.facts
        found["images"] = {"count": facts["images"], "size": facts["size"]}
    if cleaned is not None:
        found["stages"] = cleaned.facts["stages"]
        found["said"] = cleaned.facts["said"]
    return found


def _split(data: PackedData, packer: Packer, vocabulary: int) -> dict[str, Any]:
    stream = packer.stream
    sizes = np.diff(stream.starts, append=len(stream.tokens))
    used = np.bincount(stream.tokens, minlength=vocabulary) > 0
    found: dict[str, Any] = {
        "documents": len(stream.starts),
        "tokens": len(stream.tokens),
        "rows": packer.samples,
        "padding": 1 - packer.tokens / max(1, packer.samples * packer.window),
        "used": float(used.mean()),
        "tokens_per_document": np.percentile(sizes, _PERCENTILES).astype(int).tolist() if len(sizes) else [],
    }
    if stream.labels is not None:
        counts = np.bincount(stream.labels, minlength=len(data.info.labels)).tolist()
        found["labels"] = dict(zip(data.info.labels, counts, strict=True))
    return found


def _sources(data: TextData) -> list[dict[str, Any]]:
    total = sum(group.weight or group.stop - group.start for group in data.groups)
    return [
        {
            "name": group.name,
            "rows": group.stop - group.start,
            "share": (group.weight or group.stop - group.start) / total,
        }
        for group in data.groups
    ]


def _told(found: dict[str, Any]) -> list[str]:
    lines = []
    if "stream" in found:
        files, amount = found["stream"]["files"], size(found["stream"]["bytes"])
        lines.append(f"stream       {files:,} files, {amount}, read as training goes on")
        lines.append(f"vocabulary   {found['vocabulary']:,}")
    if "files" in found:
        lines.append(f"read         {found['files']:,} files, {size(found['bytes'])}")
    for source, what, number in found["counts"]:
        if not source.startswith("stage "):
            lines.append(f"             {number:,} {what}")
    for stage in found.get("stages", ()):
        dropped = sum(stage["dropped"].values())
        changed = f", {stage['changed']:,} changed" if stage["changed"] else ""
        lines.append(f"{stage['name']:<12} {stage['came']:,} documents came, {dropped:,} dropped{changed}")
        for what, number in [*stage["dropped"].items(), *stage["counts"].items()]:
            lines.append(f"             {number:,} {what}")
    lines += [f"             {line}" for line in found.get("said", ())]
    if "documents" in found:
        characters = f"{found['characters']:,} characters"
        lines.append(f"documents    {found['documents']:,}, {characters}; own validation files not counted")
    if "images" in found:
        count, side = found["images"]["count"], found["images"]["size"]
        lines.append(f"images       {count:,} of {side} x {side} pixels, {size(3 * count * side * side)}")
    for name, split in found["splits"].items():
        lines.append(
            f"{name:<12} {split['documents']:,} documents, {split['tokens']:,} tokens, {split['rows']:,} rows"
            f" ({split['padding']:.1%} padding); {split['used']:.1%} of the vocabulary of {found['vocabulary']:,}"
        )
        if split["tokens_per_document"]:
            spread = ", ".join(
                f"{at}%: {number:,}"
                for at, number in zip(_PERCENTILES, split["tokens_per_document"], strict=True)
            )
            lines.append(f"             tokens of a document  {spread}")
        for label, number in split.get("labels", {}).items():
            lines.append(f"             label {label!r}: {number:,}")
    for source in found.get("sources", ()):
        lines.append(
            f"source       {source['name']}: {source['rows']:,} rows, {source['share']:.1%} of what is trained on"
        )
    if "epoch" in found:
        lines.append(f"epoch        {found['epoch']:,} steps")
    return lines
