"""Tokenizer, task and facts of the data, as a version keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.data import DataInfo, SplitInfo

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.task import Task
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text.component import Text

#: Names of the two artifacts.
TOKENIZER, FACTS = "tokenizer", "data.json"


class TextCodec:
    """Text to tokens and back, with what is known of the data."""

    def __init__(self, info: DataInfo, task: Task, tokenizer: Tokenizer) -> None:
        self.info = info
        self.task = task
        self.tokenizer = tokenizer
        self.end = tokenizer.end

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without an end."""
        return self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`."""
        return self.tokenizer.decode(ids)

    def artifacts(self) -> Mapping[str, bytes]:
        """What `load_codec` needs."""
        return {
            TOKENIZER: self.tokenizer.save(),
            FACTS: json.dumps(attrs.asdict(self.info), indent=1, sort_keys=True).encode(),
        }


def load_codec(text: Text, run: Run, artifacts: Mapping[str, bytes]) -> TextCodec:
    """Rebuild the codec. Raises DataError where an artifact is missing or is not what `artifacts` gave."""
    missing = [name for name in (TOKENIZER, FACTS) if name not in artifacts]
    if missing:
        raise fail(DataError, "TXT012", f"the version has no artifact {' and no '.join(missing)}")
    info = _info(artifacts[FACTS])
    tokenizer = run.ask(text.tokenizer, "load_tokenizer", run=run, saved=artifacts[TOKENIZER])
    if tokenizer.vocabulary != info.vocabulary:
        raise fail(
            DataError,
            "TXT012",
            f"the tokenizer has {tokenizer.vocabulary} entries, and {FACTS} says {info.vocabulary}",
        )
    task = run.ask(
        text.task,
        "create_task",
        run=run,
        vocabulary=info.vocabulary,
        labels=info.labels,
        counts=(),
        tokenizer=tokenizer,
    )
    return TextCodec(info, task, tokenizer)


def _info(saved: bytes) -> DataInfo:
    try:
        values: dict[str, Any] = json.loads(saved)
        splits = {name: SplitInfo(**split) for name, split in values.pop("splits").items()}
        return DataInfo(splits=splits, labels=tuple(values.pop("labels")), **values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise fail(DataError, "TXT012", f"the artifact {FACTS} cannot be read ({error!r})") from error
