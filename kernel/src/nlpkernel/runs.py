"""Run folders: where a run keeps its plan, lock, events, logs, report and versions."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel.plugins.suggest import hint

PLAN, LOCK, REPORT, LOGS = "plan.toml", "lock.json", "report.json", "logs"
LATEST = "latest"
#: The file that is locked while a process owns the run, and the one that says which process that is.
OWNED, OWNER = ".owned", ".owner.json"


def create(folder: Path, *, overwrite: bool = False) -> None:
    """Make the folder of a new run. Raise UsageError where it exists, unless `overwrite` removes it, where that one is
    in use, or where it cannot be made. One in which no run began yet does not stand in the way."""
    if folder.is_symlink() or (folder.exists() and not _unborn(folder)):
        if not overwrite:
            raise fail(
                UsageError,
                "NK301",
                f"the run folder {str(folder)!r} exists",
                hint=f"`nlpkernel resume {folder}` continues it, --overwrite replaces it, --set name=... makes another",
            )
        if folder.is_symlink() or not _is_run(folder):
            raise fail(
                UsageError,
                "NK302",
                f"{str(folder)!r} is not a run folder (one has {PLAN} and {LOGS}/), so it is not replaced",
                hint="give the run another name with --set name=...",
            )
    try:
        _remove(folder)
        (folder / LOGS).mkdir(parents=True)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have in this locale.
        reason = getattr(error, "strerror", None) or str(error)
        message = f"the run folder {str(folder)!r} cannot be made: {reason}"
        raise fail(UsageError, "NK305", message) from error


def _remove(folder: Path) -> None:
    """Remove a run: renamed first, for one half of which is gone would be no run any more, nor free for a new one."""
    old = folder.with_name(f".{folder.name}.old")
    if folder.exists():
        with claim(folder):
            _forget(old)
            os.rename(folder, old)
    _forget(old)


def _forget(old: Path) -> None:
    if old.exists():
        import shutil

        shutil.rmtree(old)


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Own a run folder: nobody else trains in it, rolls it back or prunes it meanwhile. The claim ends with the
    process, however that ends. Raise UsageError naming the owner where there is one."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / OWNED)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise fail(
            UsageError,
            "NK311",
            f"the run {str(folder)!r} is in use{_owner(folder)}",
            hint="wait for it, or end that process",
        ) from None
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        note = {"pid": os.getpid(), "host": platform.node()}
        try:
            (folder / OWNER).write_text(json.dumps(note), encoding="utf-8")
        except OSError as error:
            raise _unwritable(folder, error) from error
        yield
    finally:
        # Where the folder has become read-only the note stays; it is the lock that decides.
        with suppress(OSError):
            (folder / OWNER).unlink(missing_ok=True)
        lock.release()


def _unwritable(folder: Path, error: OSError) -> NlpkernelError:
    message = f"the run folder {str(folder)!r} cannot be written: {error.strerror or error}"
    return fail(UsageError, "NK305", message)


def _owner(folder: Path) -> str:
    try:
        note = json.loads((folder / OWNER).read_text(encoding="utf-8"))
        return f" by process {note['pid']} on {note['host']}"
    except (OSError, ValueError, KeyError):
        return ""  # It is about to write it, or just left.


def point_latest(folder: Path) -> None:
    """Let `latest` beside it name the newest run. Where there are no symbolic links, there is no `latest`."""
    link = folder.parent / LATEST
    aside = folder.parent / f".{LATEST}-{os.getpid()}"
    try:
        aside.symlink_to(folder.name, target_is_directory=True)
        os.replace(aside, link)
        for left in folder.parent.glob(f".{LATEST}-*"):  # By processes that were killed in between.
            left.unlink(missing_ok=True)
    except OSError:
        aside.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """Write a file of a run. A process that is killed meanwhile leaves it as it was, or whole. Raise OSError."""
    aside = _aside(path)
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _aside(path: Path) -> Path:
    # The same name each time: what a process left that was killed is written over by the next one.
    return path.with_name(f".{path.name}.new")


def find(reference: str | Path) -> Path:
    """The folder of an existing run. Raise UsageError, with the runs beside it, where there is none."""
    folder = Path(reference)
    if (folder / PLAN).is_file():
        return folder.resolve() if folder.is_symlink() else folder
    beside = [str(path) for root in (folder.parent, Path("runs")) for path in each(root)]
    named = str(Path("runs") / folder)
    tip = f"did you mean {named!r}?" if named in beside else hint(str(folder), beside)
    tip = tip or "start one with `nlpkernel run plan.toml`"
    raise fail(UsageError, "NK303", f"{str(reference)!r} is no run folder", hint=tip)


def each(root: Path) -> Iterator[Path]:
    """The run folders below `root`, oldest first."""
    try:
        found = [path for path in root.iterdir() if not path.is_symlink() and not path.name.startswith(".")]
        folders = [path for path in found if _is_run(path)]
    except OSError:
        return
    yield from sorted(folders, key=lambda path: ((path / PLAN).stat().st_mtime, path.name))


def _is_run(folder: Path) -> bool:
    # A plan alone makes none: it may be the user's own, in a folder of the project.
    return (folder / PLAN).is_file() and (folder / LOGS).is_dir()


def _unborn(folder: Path) -> bool:
    """Whether this is all that is left of a process that was killed before it had written its plan."""
    ours = {LOGS, OWNED, OWNER, _aside(folder / PLAN).name}
    try:
        return not any(path.name not in ours for path in folder.iterdir()) and not any(
            (folder / LOGS).glob("*")
        )
    except OSError:
        return False


def cache_folder() -> Path:
    """The folder for what can be made again: NLPKERNEL_CACHE, or below the user's cache folder."""
    named = os.environ.get("NLPKERNEL_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nlpkernel"
