"""The component `store`: when to save, which versions to keep, and where."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel import component, hookimpl, setting, settings
from nlpkernel.hookspecs.everywhere import Action, Decision, Facts
from nlpkernel.progress import Progress

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.checkpoint import Store as StoreProtocol
    from nlpkernel_store.catalog import Catalog
    from nlpkernel_store.places import Place as Files


@settings
class Keep:
    """Which versions of the current line stay when a new one is complete: all that one of these names. The newest, and
    those that have a tag, always do."""

    last: int = setting(default=1, ge=1, help="the newest versions that stay")
    best: int = setting(default=0, ge=0, help="versions that stay for being best by the task's main metric")
    every: int | None = setting(
        default=None, ge=1, help="versions of a multiple of so many steps stay; left out: not for their step"
    )


@settings
class Cold:
    """A second place, to which older versions are moved."""

    url: str = setting(help="where they go, as s3://bucket/folder, each run in a folder of its name")
    options: dict[str, Any] = setting(factory=dict, help="options of the driver behind `url`")
    secrets: dict[str, str] = setting(factory=dict, secret=True, help="its options that are secret")
    after: int = setting(
        default=3, ge=1, help="the newest versions of the current line that stay where they were written"
    )


@component
class Store:
    """Content-addressed versions in the folder `versions` of the run, or at a URL.

    A version is a manifest with the digest of every tensor. Tensors lie in safetensors files, unchanged ones once for
    all versions. It is written beside the training, which waits for a copy in memory only, and it is complete or it is
    not there.
    """

    every: int | None = setting(default=None, ge=1, help="steps between two saves; left out: at the end only")
    keep: Keep | None = setting(
        default=None,
        help="which versions stay, as { last = 3, best = 2, every = 1000 }; left out: all of them",
    )
    asynchronous: bool = setting(
        default=True,
        help="write beside the training, from a copy in host memory; off: the training waits, without one",
    )
    fsync: bool = setting(
        default=True, help="wait until the disk has a version before it counts; needed to survive a power cut"
    )
    verify: bool = setting(default=True, help="compare the digest of every tensor when a version is loaded")
    on_failure: Literal["stop", "continue"] = setting(
        default="stop", help="when a version cannot be written: end the run, or train on without it"
    )
    retries: int = setting(default=2, ge=0, help="further tries where writing fails")
    retry_after: float = setting(
        default=1.0, ge=0, unit="seconds", help="pause before the first further try; it doubles each time"
    )
    rank_timeout: float = setting(
        default=600.0,
        gt=0,
        unit="seconds",
        help="how long the first worker waits for the parts of the others",
    )
    url: str | None = setting(
        default=None,
        help="where versions are kept, as s3://bucket/folder, each run in a folder of its name; left out: in the run's",
    )
    options: dict[str, Any] = setting(factory=dict, help="options of the driver behind `url`")
    secrets: dict[str, str] = setting(
        factory=dict, secret=True, help='its options that are secret, as { key = "${S3_KEY}" }'
    )
    cold: Cold | None = setting(
        default=None, help='a second place for older versions, as { url = "s3://bucket/folder", after = 3 }'
    )

    _due: Decision = attrs.field(init=False, default=Decision(Action.SAVE, "the save interval ended"))

    def check_settings(self) -> Iterator[tuple[str, str]]:
        """Secrets belong where they are not written down."""
        from nlpkernel_store.places.hidden import revealing, suspicious

        for setting_, name, url in (
            ("url", "url", self.url),
            ("cold", "cold.url", self.cold.url if self.cold else None),
        ):
            if url is not None and (what := revealing(url)):
                yield (
                    setting_,
                    f"{name!r} holds {what}, and a URL is written down: give what is secret in `secrets`, from the "
                    "environment, and the rest in `options`",
                )
        for setting_, options in (
            ("options", self.options),
            ("cold", self.cold.options if self.cold else {}),
        ):
            for path, _ in suspicious(options):
                yield (
                    setting_,
                    f"{path!r} of the options is a secret: give it in `secrets`, from the environment",
                )

    @hookimpl
    def decide(self, progress: Progress) -> Decision | None:
        """Ask for a save every `every` steps."""
        if self.every is None or progress.step % self.every:
            return None
        return self._due

    @hookimpl
    def open_store(self, run: Run, folder: Path, write: bool) -> StoreProtocol:
        """Open the versions; with `write`, clean up after writers that died. Raise CheckpointError (STO011, STO05x)
        where the URL cannot be reached, or belongs to another run. A rehearsal keeps them in `folder` in any case.
        """
        from nlpkernel_store.options import Options, Worker
        from nlpkernel_store.rotation import Rule
        from nlpkernel_store.store import VersionStore

        keep = self.keep
        owned = write and run.rank == 0
        return VersionStore(
            self.catalog(folder, owner=run.name if owned else None, alone=owned, here=run.rehearsal),
            Options(
                keep=Rule(last=keep.last, best=keep.best, every=keep.every) if keep else None,
                asynchronous=self.asynchronous,
                verify=self.verify,
                on_failure=self.on_failure,
                retries=self.retries,
                retry_after=self.retry_after,
                rank_timeout=self.rank_timeout,
            ),
            Worker(
                launch=re.sub(r"[^0-9A-Za-z]", "", run.launch),
                rank=run.rank,
                world=run.world,
                present=None if run.group is None else lambda: run.group.present,
            ),
            write=write,
            notice=lambda message: run.notice("store", message, level="warning"),
            owner=lambda path: _owner(run, path),
        )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Say how large a version is, where parameters and optimizer are known, and what the copy takes."""
        if facts.parameter_bytes is None or facts.optimizer_bytes is None:
            return facts
        own = (facts.parameter_bytes + facts.optimizer_bytes) / 1e6
        whole = (
            facts.parameter_bytes * facts.parameter_parts + facts.optimizer_bytes * facts.optimizer_parts
        ) / 1e6
        notes = [f"a version takes about {whole:,.1f} MB; {self._kept()}"]
        if self.asynchronous:
            notes.append(f"saving beside the training takes about {own:,.1f} MB of host memory")
        return attrs.evolve(facts, notes=(*facts.notes, *notes))

    def _kept(self) -> str:
        if not self.keep:
            return "all are kept"
        every = f" and each of {self.keep.every} steps" if self.keep.every else ""
        return f"at most {self.keep.last + self.keep.best}{every} are kept"

    def catalog(
        self, folder: Path, *, owner: str | None = None, alone: bool = False, here: bool = False
    ) -> Catalog:
        """The versions of the run in `folder`, without torch. owner: the run's name, where they are to be changed; a
        place away from the folder then belongs to the run. alone: nobody else changes them meanwhile. here: in the
        folder, whatever the settings say. Raise CheckpointError (STO011, STO05x).
        """
        from nlpkernel_store.catalog import Catalog
        from nlpkernel_store.places.local import Local
        from nlpkernel_store.places.tiers import Tiered

        if self.url is None or here:
            place: Files = Local(folder / "versions", fsync=self.fsync)
        else:
            place = self._far(folder, "hot", self.url, self.options, self.secrets, owner)
        if self.cold is not None and not here:
            cold = self._far(folder, "cold", self.cold.url, self.cold.options, self.cold.secrets, owner)
            place = Tiered(place, cold, after=self.cold.after, owned=alone)
        return Catalog(place)

    def _far(
        self,
        folder: Path,
        tier: str,
        url: str,
        options: dict[str, Any],
        secrets: dict[str, str],
        owner: str | None,
    ) -> Files:
        """A place away from the run's folder."""
        from nlpkernel.errors import CheckpointError, fail
        from nlpkernel_store.codes import OWNER
        from nlpkernel_store.places import open_place
        from nlpkernel_store.places.owning import own

        # The folder's own name: it may be given through a link.
        url = f"{url.rstrip('/')}/{folder.resolve().name}"
        place = open_place(url, options, cache=folder / "fetched" / tier, secrets=secrets, fsync=self.fsync)
        if owner is None:
            return place
        try:
            own(place, folder / "versions", owner)
        except OSError as error:
            message = f"{place.describe()} cannot be written: {error}"
            raise fail(CheckpointError, "STO011", message, owner=OWNER) from error
        return place


#: Parts of the state that the component of a slot gives.
_SLOTS = {
    "model": "model",
    "optimizer": "optimizer",
    "schedule": "optimizer",
    "precision": "precision",
    "data": "data",
    "group": "communicator",
}


def _owner(run: Run, path: str) -> str | None:
    """The component that a leaf of the state is of."""
    head, _, rest = path.partition("/")
    address = rest.partition("/")[0] if head == "component" else _SLOTS.get(head)
    return run.hooks.owner_at(address) if run.hooks is not None and address else None
