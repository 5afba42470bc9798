"""Parts of a version from several workers: each puts its own, the first waits for all and commits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from nlpkernel.errors import CheckpointError, fail
from nlpkernel_store.catalog import PARTS
from nlpkernel_store.codes import OWNER
from nlpkernel_store.manifest import Part
from nlpkernel_store.options import Worker
from nlpkernel_store.packs import FOLDER
from nlpkernel_store.places import Place
from nlpkernel_store.plain import decode, encode

#: Seconds between two looks: short at first, longer the longer it takes.
_SOON, _LATE = 0.005, 0.25


class Gathering:
    """The parts of one save, `save` being its word. Raise OSError where the place fails."""

    def __init__(self, files: Place, save: str, worker: Worker, timeout: float) -> None:
        self._files, self._worker, self._timeout = files, worker, timeout
        self._folder = f"{PARTS}{save}/"

    def put(self, part: bytes) -> None:
        """This worker has written its part."""
        self._put(["part", part])

    def give_up(self, error: str) -> None:
        """This worker could not write its part; nobody needs to wait for it."""
        self._put(["error", error])

    def gather(self) -> list[bytes]:
        """On the first worker: the parts of the others, in their order, without those that are gone meanwhile. Raise
        CheckpointError (STO007) naming those that failed or did not come in time."""
        found: dict[int, bytes] = {}
        missing = self._worker.others
        for _ in self._looks(self._timeout):
            there = self._files.names(self._folder)
            missing &= self._worker.others
            for rank in [rank for rank in missing if self._name(rank) in there]:
                what, content = decode(self._files.read(self._name(rank)))
                if what == "error":
                    raise _not_saved(f"worker {rank} could not write its part: {content}")
                found[rank] = content
                missing.discard(rank)
            if not missing:
                return [found[rank] for rank in sorted(found)]
        ranks = ", ".join(map(str, sorted(missing)))
        raise _not_saved(f"no part came from worker {ranks} within {self._timeout:g} s")

    def await_packs(self, parts: Sequence[Part]) -> None:
        """On the first worker: until every pack that a part names is there, whole. Where several machines share a
        folder, one may see a file later than the other wrote it. Raise CheckpointError (STO007) naming one that is not
        seen in time."""
        for _ in self._looks(self._timeout):
            there = self._files.names(FOLDER)
            wrong = [
                (worker, name, size.file)
                for worker, part in enumerate(parts)
                for name, size in part.packs.items()
                if there.get(name) != size.file
            ]
            if not wrong:
                return
        worker, name, size = wrong[0]
        found = f"has {there[name]:,}" if name in there else "is not there"
        raise _not_saved(
            f"worker {worker} names {self._files.describe(name)} with {size:,} bytes, and it {found}"
        )

    def end(self) -> None:
        """On the first worker: the save is over, whatever became of it."""
        for name in self._files.names(self._folder):
            if name != self._name(0):
                self._files.remove(name)

    def wait(self) -> None:
        """On the others: until the first worker is through with this save. Raise CheckpointError (STO007)."""
        # The first may wait that long for a third one before it begins.
        for _ in self._looks(2 * self._timeout):
            there = self._files.names(self._folder)
            if self._name(0) in there:
                raise _not_saved(f"worker 0 could not save: {decode(self._files.read(self._name(0)))[1]}")
            if self._name(self._worker.rank) not in there:
                return
        raise _not_saved(f"worker 0 did not commit within {2 * self._timeout:g} s")

    def _put(self, content: list[str | bytes]) -> None:
        self._files.replace(self._name(self._worker.rank), encode(content, "part"))

    def _name(self, rank: int) -> str:
        return f"{self._folder}{rank}.msgpack"

    @staticmethod
    def _looks(timeout: float) -> Iterator[None]:
        end, pause = time.monotonic() + timeout, _SOON
        while True:
            yield
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LATE)


def forget(files: Place, save: str) -> None:
    """On the first worker: remove parts of saves that are over, and those of other starts of the run. The last save
    before `save` keeps its own: somebody may be about to read what became of it. Raise OSError."""
    launch, _, count = save.rpartition("-")
    for name in files.names(PARTS):
        theirs, _, number = name.removeprefix(PARTS).partition("/")[0].rpartition("-")
        if theirs != launch or not number.isdecimal() or int(number) < int(count) - 1:
            files.remove(name)


def _not_saved(message: str) -> CheckpointError:
    return fail(  # type: ignore[return-value]
        CheckpointError, "STO007", message, owner=OWNER, hint="older versions are untouched"
    )
