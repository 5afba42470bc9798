"""The versions of an opened run: written, told of, taken up again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nlpkernel.changes import changes, refuse
from nlpkernel.engine.capture import capture, parts_of, restore
from nlpkernel.engine.roundtrip import RoundTrip
from nlpkernel.events import VersionFailed, VersionSaved

if TYPE_CHECKING:
    from nlpkernel.engine.session import Session
    from nlpkernel.hookspecs.checkpoint import Store
    from nlpkernel.progress import Progress
    from nlpkernel.state import Snapshot


class Versions:
    """What a session puts into its store and takes out of it. Without a store, nothing happens.

    `pending`: a save is on its way, so that `settle` may have something to tell.
    """

    def __init__(self, session: Session, store: Store | None) -> None:
        self._session, self._store = session, store
        self._round_trip = RoundTrip(parts_of(session))
        self._saved_at: int | None = None
        #: The version that this process last made or took up.
        self.current: str | None = None
        # Saves of which nobody knows yet what became of them, by step.
        self.pending: dict[int, Progress] = {}

    @property
    def due(self) -> bool:
        """Whether a save would write anything: this step is not saved yet, and this worker has a part of it."""
        session = self._session
        return (
            self._store is not None
            and self._saved_at != session.progress.step
            and session.run.rank in session.group.present
        )

    @property
    def empty(self) -> bool:
        """Whether there is no complete version to take up."""
        return self._store is None or not self._store.list()

    def save(self) -> None:
        """Put the state into a version."""
        session = self._session
        assert self._store is not None, "nobody asks where nothing is due"
        with session.run.pulse.during("save"):
            self._round_trip.check()
            self._store.save(capture(session))
        self._saved_at = session.progress.step
        self.pending[session.progress.step] = session.progress
        self.settle()

    def settle(self, *, wait: bool = False) -> None:
        """Tell what became of saves; with `wait`, of all of them."""
        if self._store is None:
            return
        run = self._session.run
        if wait:
            with run.pulse.during("save"):
                settled = self._store.settle(wait=True)
        else:
            settled = self._store.settle()
        for saved in settled:
            progress, now = self.pending.pop(saved.step), time.time()
            if saved.version is None:
                if self._saved_at == saved.step:
                    self._saved_at = None  # What is still to be saved at this step is tried again.
                run.count("engine", "versions not written")
                run.bus.publish(VersionFailed(time=now, progress=progress, error=saved.error))
                continue
            self.current = saved.version.name
            run.bus.publish(
                VersionSaved(
                    time=now,
                    progress=progress,
                    version=saved.version.name,
                    bytes=saved.version.bytes,
                    seconds=saved.seconds,
                )
            )

    def load(self, reference: str | None, allow: Sequence[str] | None) -> Snapshot:
        """Put the session where a version was taken, the newest where none is named. `allow`: what may be other than it
        was then; None where this process made the version itself."""
        assert self._store is not None, "a run without a store has nothing to load"
        self.settle(wait=True)
        with self._session.run.pulse.during("load"):
            snapshot = self._store.load(reference)
            if allow is not None:
                self._compare(snapshot, allow)
            restore(self._session, snapshot, allow or ())
        self._saved_at = self._session.progress.step
        self.current = snapshot.name
        return snapshot

    def _compare(self, snapshot: Snapshot, allow: Sequence[str]) -> None:
        """Refuse to go on where the numbers would not be those of the unbroken run, unless it is allowed by name."""
        session, facts = self._session, snapshot.facts
        found = changes(facts["plan"], facts["lock"], session.plan.text(), session.lock.plain())
        refuse(found, allow, "NK505", "since the version was made")
        for change in found:
            session.run.notice("kernel", f"goes on although {change.text}")
