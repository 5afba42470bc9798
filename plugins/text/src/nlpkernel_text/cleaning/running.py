"""Documents through all stages: those that go by each document alone in several processes, the others here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from nlpkernel_text.cleaning.batches import Batch
from nlpkernel_text.cleaning.processes import Processes
from nlpkernel_text.cleaning.work import Tally, Watch, apply, counts_of, finish, names_of, open_stages

if TYPE_CHECKING:
    from nlpkernel.context import Run


class Cleaning:
    """The stages of a plan, opened. tallies: what each has done so far."""

    def __init__(
        self,
        run: Run,
        components: Sequence[object],
        shown: Sequence[str],
        workers: int = 0,
        watch: Watch | None = None,
    ) -> None:
        self._shown, self._watch = shown, watch
        names = names_of(run, components)
        self._stages = open_stages(run, components, names)
        self.tallies = [Tally(opened.name) for opened in self._stages]
        alone = [not opened.stage.ordered for opened in self._stages]
        self._processes = (
            Processes(run, components, names, shown, workers)
            if workers and any(alone) and watch is None
            else None
        )

    def clean(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """What is left of each batch; it may be nothing."""
        steps: Iterator[Batch] = iter(batches)
        for ordered, group in groupby(enumerate(self._stages), key=lambda each: each[1].stage.ordered):
            numbers = [number for number, _ in group]
            steps = self._step(steps, numbers[0], numbers[-1] + 1, ordered)
        return steps

    def counts(self) -> Counter[tuple[str, str]]:
        """What the stages have done so far, by who did it and by its name in the report."""
        return counts_of(self.tallies)

    @property
    def ordered(self) -> list[str]:
        """The stages that have to see all documents."""
        return [opened.name for opened in self._stages if opened.stage.ordered]

    def finish(self, folder: Callable[[str], Path]) -> list[str]:
        """End each stage, which may write into `folder` of its name; what a person should read now."""
        return [line for opened in self._stages for line in finish(opened, folder(opened.name))]

    def close(self) -> None:
        """End the processes."""
        if self._processes is not None:
            self._processes.close()

    def _step(self, batches: Iterator[Batch], first: int, last: int, ordered: bool) -> Iterator[Batch]:
        if self._processes is not None and not ordered:
            done = self._processes.map(first, last, batches)
        else:
            stages = self._stages[first:last]
            done = (apply(stages, batch, self._shown, self._watch) for batch in batches)
        for batch, tallies in done:
            for mine, theirs in zip(self.tallies[first:last], tallies, strict=True):
                mine.add(theirs)
            yield batch
