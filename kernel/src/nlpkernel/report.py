"""What a run came to, for people and for machines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import attrs

from nlpkernel import runs
from nlpkernel.errors import UsageError, fail
from nlpkernel.progress import Progress


@attrs.frozen(kw_only=True)
class Count:
    """Something skipped, dropped or repaired: by whom, what, how often."""

    source: str
    what: str
    number: int


@attrs.frozen(kw_only=True)
class Report:
    """The end of a run.

    status: "finished", "stopped" (by a policy), "interrupted" (by a signal) or "failed". metrics: the newest of each
    evaluation ("validation/loss"). best: the best main value, at best_step. counts: everything that was skipped,
    dropped or repaired. seconds: of this process.
    """

    name: str
    folder: str
    status: str
    reason: str
    progress: Progress
    length: int
    metrics: Mapping[str, float | None]
    main: str
    best: float | None
    best_step: int | None
    counts: tuple[Count, ...]
    detached: tuple[str, ...]
    version: str | None
    seconds: float

    def write(self, path: Path) -> None:
        """Write the report as JSON. A number that is not finite is written as "NaN", "Infinity" or "-Infinity"."""
        import cattrs

        plain = cattrs.unstructure(self)
        plain["progress"] = self.progress._asdict()
        plain["metrics"] = {name: _finite(value) for name, value in self.metrics.items()}
        plain["best"] = _finite(self.best)
        runs.write(path, json.dumps(plain, indent=2, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read what `write` wrote. Raise FileNotFoundError where there is none, UsageError where it is damaged."""
        import cattrs

        converter = cattrs.Converter()
        converter.register_structure_hook(Progress, lambda plain, _: Progress(**plain))
        try:
            return converter.structure(json.loads(path.read_text(encoding="utf-8")), cls)
        except FileNotFoundError:
            raise
        except Exception as error:
            message = f"the report {str(path)!r} is damaged, or of another release: {type(error).__name__}"
            raise fail(UsageError, "NK310", message) from error

    def text(self) -> str:
        """The report as a person reads it."""
        progress = self.progress
        lines = [
            f"run {self.name}: {self.status}" + (f" ({self.reason})" if self.reason else ""),
            f"  folder    {self.folder}",
            f"  steps     {progress.step} of {self.length}, {progress.updates} updates, epoch {progress.epoch:.2f}",
            f"  seen      {progress.samples} samples, {progress.tokens} tokens",
            f"  time      {self.seconds:.1f} s in this process",
        ]
        if self.version:
            lines.append(f"  version   {self.version}")
        lines += [f"  {name:<22} {_number(value)}" for name, value in sorted(self.metrics.items())]
        if self.best is not None:
            lines.append(f"  best {self.main:<17} {self.best:.4f} at step {self.best_step}")
        lines.append("  skipped, dropped or repaired:" + ("" if self.counts else " nothing"))
        lines += [f"    {count.number:>8} {count.what} ({count.source})" for count in self.counts]
        lines += [f"  detached: {line}" for line in self.detached]
        return "\n".join(lines)


def _finite(value: float | None) -> float | str | None:
    """What JSON has for a number."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _number(value: float | None) -> str:
    return "nothing to count" if value is None else f"{value:.4f}"
