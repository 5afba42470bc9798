"""Folders that the library `datasets` wrote with `save_to_disk`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_formats.columnar import ArrowReader

#: What lies beside the data.
_BESIDE = frozenset({"state.json", "dataset_info.json", "dataset_dict.json"})


class DatasetsReader:
    """The Arrow files of such a folder; what lies beside them is looked at, not read as data.

    split: the split to read; files of others are left out and counted. None where the folder has one.
    """

    unit: Literal["line", "record"] = "record"
    text = False

    def __init__(self, split: str | None = None) -> None:
        self.split = split
        self._arrow = ArrowReader()

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        name = PurePosixPath(source.shown)
        if name.name in _BESIDE:
            return
        if name.suffix != ".arrow":
            raise _wrong(source, "this file is none of a saved dataset")
        folder = source.local.parent if source.local is not None else None
        if folder is not None:
            self._check(source, folder)
        if self.split is not None and self.split != _split(source, folder):
            faults.count("files of other splits")
            return
        yield from self._arrow.read(source, columns, faults)

    def _check(self, source: Source, folder: Path) -> None:
        """Raise DataError where the folder is incomplete, or has several splits and none is named."""
        state = _json(folder / "state.json")
        if state is None:
            raise _wrong(
                source, "there is no state.json beside it", 'a single Arrow file is `format = "arrow"`'
            )
        names = [str(each.get("filename")) for each in state.get("_data_files", ())]
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise _wrong(source, f"state.json names {missing[0]}, which is not there")
        splits = (_json(folder.parent / "dataset_dict.json") or {}).get("splits", [])
        known = ", ".join(map(str, splits))
        if self.split is None and len(splits) > 1:
            hint = f'write `format = {{ use = "datasets", split = "{splits[0]}" }}`'
            raise _wrong(source, f"the dataset has the splits {known}, and the plan does not say which", hint)
        if self.split is not None and splits and self.split not in splits:
            raise _wrong(source, f"there is no split {self.split!r}; there are: {known}")


def _split(source: Source, folder: Path | None) -> str | None:
    if folder is None:
        return PurePosixPath(source.shown).parent.name
    split = (_json(folder / "state.json") or {}).get("_split")
    return folder.name if (folder.parent / "dataset_dict.json").is_file() else split


def _json(path: Path) -> dict[str, Any] | None:
    """An object of a JSON file; None where the file is not there or is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _wrong(source: Source, what: str, hint: str | None = None) -> Exception:
    return fail(DataError, "FMT005", what, place=Place(source.shown), hint=hint)
