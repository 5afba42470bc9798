"""The store: versions saved, listed, loaded and rotated in one folder."""

from __future__ import annotations

import difflib
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from safetensors import SafetensorError

from nlpkernel.errors import CheckpointError, Place, Problem, fail
from nlpkernel.state import Saved, Snapshot, VersionInfo
from nlpkernel_folder import layout, version
from nlpkernel_folder.component import OWNER
from nlpkernel_folder.disk import sync
from nlpkernel_folder.manifest import MANIFEST, Manifest, NewerFormat, foreign_files
from nlpkernel_folder.plain import refuse
from nlpkernel_folder.rotation import kept

_log = logging.getLogger("nlpkernel.folder")


@attrs.define(eq=False)
class FolderStore:
    """Versions of one run in one folder; see `nlpkernel.hookspecs.checkpoint.Store`.

    last, best: how many stay, as in `Keep`; `last` None keeps all. What is best is judged by
    `facts["main"]` of the snapshot that is saved: the name of a metric in `facts["metrics"]`, and "min" or
    "max".
    notice: tells a person of something that went wrong after a version was complete.
    """

    folder: Path
    fsync: bool = attrs.field(kw_only=True)
    check_digests: bool = attrs.field(kw_only=True)
    last: int | None = attrs.field(kw_only=True)
    best: int = attrs.field(kw_only=True)
    notice: Callable[[str], None] = attrs.field(kw_only=True)
    #: Versions with files of somebody else in them, that somebody has been told of.
    _saved: list[Saved] = attrs.field(init=False, factory=list)
    _spared: set[str] = attrs.field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        try:
            for name in layout.recover(self.folder):
                _log.info("cleaned up %s, which a dead process had left", name)
        except OSError as error:
            # A reader may lack the right to write; versions are as complete as before.
            _log.info("leftovers in %s stay: %s", self.folder, error)

    def save(self, snapshot: Snapshot) -> None:
        """Write a version aside, commit it by a rename, and remove those that are not kept any more. A
        version of the same step is replaced. Raise CheckpointError: FLD001 for a value that cannot be
        stored, FLD002 where writing fails; older versions are untouched then.
        """
        start = time.monotonic()
        contents = version.Contents.of(snapshot)
        main = snapshot.facts.get("main", ())
        if self.best and not main:
            raise refuse("the version", "keep.best needs the name of the main metric in facts['main']")
        name = layout.version_name(snapshot.step)
        try:
            self._make_folder()
            with layout.aside(self.folder) as temporary:
                manifest = version.write(temporary, contents, fsync=self.fsync)
                self._commit(temporary, name)
        except (OSError, SafetensorError) as error:
            raise self._not_written(name, contents, error) from error
        self._rotate(main)
        version_ = _info(name, self.folder / name, manifest)
        self._saved.append(Saved(step=snapshot.step, version=version_, seconds=time.monotonic() - start))

    def settle(self, *, wait: bool = False) -> Sequence[Saved]:
        """What was saved since this was asked last."""
        saved, self._saved = self._saved, []
        return saved

    def load(self, reference: str | None = None) -> Snapshot:
        """The version `reference`, or the newest. Raise CheckpointError: FLD003 where it is damaged, naming
        file, both digests and the newest sound version; FLD004 where there is none; FLD005 for a newer
        format.
        """
        name, folder = self._find(reference)
        try:
            manifest, damage = version.examine(folder, digests=self.check_digests)
            if manifest is not None and not damage:
                try:
                    return version.read(folder, manifest)
                except (ValueError, TypeError, KeyError, SafetensorError) as error:
                    damage = [(folder, f"its files cannot be read: {error}")]
        except NewerFormat as error:
            raise fail(
                CheckpointError,
                "FLD005",
                f"{name} has {error}, and this release reads formats up to 1",
                place=Place(str(folder)),
                owner=OWNER,
                hint="install a newer nlpkernel-plugin-folder",
            ) from error
        raise self._damaged(name, damage)

    def list(self) -> Sequence[VersionInfo]:
        """Complete versions, oldest first. One whose manifest cannot be read is left out; `load` and
        `verify` name what is wrong with it.
        """
        found = []
        for name, folder in layout.versions(self.folder).items():
            try:
                found.append(_info(name, folder, Manifest.load(folder)))
            except (ValueError, NewerFormat) as error:
                _log.warning("%s is left out: %s", folder, error)
        return found

    def verify(self, reference: str) -> Sequence[str]:
        """What is wrong with a version, a line for each file. Raise CheckpointError (FLD004) where there is
        none.
        """
        name, folder = self._find(reference)
        try:
            _, damage = version.examine(folder, digests=True)
        except NewerFormat as error:
            return [f"{name}: {error} is newer than this release reads"]
        return [f"{path}: {what}" for path, what in damage]

    def close(self) -> None:
        """Nothing is ever still being written: `save` returns when the version is complete."""

    def _make_folder(self) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            if self.fsync:
                sync(self.folder.parent)

    def _commit(self, temporary: Path, name: str) -> None:
        target = self.folder / name
        if target.exists():
            self._replace(temporary, target)
        else:
            temporary.rename(target)
        if self.fsync:
            sync(self.folder)

    def _replace(self, temporary: Path, target: Path) -> None:
        with layout.aside(self.folder, target.name) as old:
            target.rename(old)
            temporary.rename(target)
            if self.fsync:
                sync(self.folder)

    def _rotate(self, main: Sequence[str]) -> None:
        """Remove versions that are not kept. One that fails to go is told of, and does no harm to the new
        one.
        """
        if self.last is None:
            return
        versions = self.list()
        stay = kept(versions, self.last, self.best, main)
        for info in versions:
            if info.name not in stay:
                self._retire(self.folder / info.name)

    def _retire(self, folder: Path) -> None:
        try:
            foreign = foreign_files(folder)
            if foreign:
                self._spare(folder.name, foreign[0].name)
                return
            with layout.aside(self.folder) as doomed:
                folder.rename(doomed)
        except OSError as error:
            self.notice(f"{folder.name} could not be removed: {error}")

    def _spare(self, name: str, foreign: str) -> None:
        if name not in self._spared:
            self._spared.add(name)
            self.notice(f"{name} stays, because {foreign} in it is not this store's")

    def _find(self, reference: str | None) -> tuple[str, Path]:
        found = layout.versions(self.folder)
        if reference is None and found:
            reference = next(reversed(found))
        if reference in found:
            return reference, found[reference]
        if not found:
            raise fail(CheckpointError, "FLD004", f"there is no version in {self.folder}", owner=OWNER)
        near = difflib.get_close_matches(str(reference), found, n=1)
        raise fail(
            CheckpointError,
            "FLD004",
            f"there is no version {reference!r} in {self.folder}; there are {', '.join(found)}",
            owner=OWNER,
            hint=f"did you mean {near[0]}?" if near else None,
        )

    def _damaged(self, name: str, damage: Sequence[tuple[Path, str]]) -> CheckpointError:
        sound = self._newest_sound(name)
        hint = f"the newest sound version is {sound}" if sound else "no other version is sound"
        return CheckpointError(
            [
                Problem(
                    code="FLD003",
                    message=f"{name} is damaged: {what}",
                    place=Place(str(path)),
                    owner=OWNER,
                    hint=hint,
                )
                for path, what in damage
            ]
        )

    def _newest_sound(self, but: str) -> str | None:
        for name, folder in reversed(layout.versions(self.folder).items()):
            if name == but:
                continue
            try:
                _, damage = version.examine(folder, digests=True)
            except NewerFormat:
                continue
            if not damage:
                return name
        return None

    def _not_written(self, name: str, contents: version.Contents, error: Exception) -> CheckpointError:
        existing = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        return fail(  # type: ignore[return-value]
            CheckpointError,
            "FLD002",
            f"{name} could not be written: {error}; it needs {contents.total:,} bytes, and {free:,} are free",
            place=Place(str(self.folder)),
            owner=OWNER,
            hint="older versions are untouched; make room or keep fewer versions, and resume",
        )


def _info(name: str, folder: Path, manifest: Manifest) -> VersionInfo:
    return VersionInfo(
        name=name,
        step=manifest.step,
        bytes=manifest.total + (folder / MANIFEST).stat().st_size,
        created=manifest.created,
        metrics=manifest.metrics,
    )
