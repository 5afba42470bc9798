"""Run folders: where a run keeps its plan, lock, events, logs, report and versions."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel.plugins.suggest import hint

PLAN, LOCK, REPORT, LOGS, PROFILE = "plan.toml", "lock.json", "report.json", "logs", "profile.json"
LATEST = "latest"
#: The files that are locked while a process trains in the run, and while one supervises it.
OWNED, WATCHED = ".owned", ".watched"


def create(folder: Path, *, overwrite: bool = False) -> None:
    """Make the folder of a new run. Raise UsageError where it exists, unless `overwrite` removes it, where that one is
    in use, or where it cannot be made. One in which no run began yet is taken: of several processes that are so far,
    the claim decides, and `still_new` tells. The old run is kept aside until `forget_replaced` or `put_back`."""
    put_back(folder)
    remove(_gone(folder))
    replaces = folder.is_symlink() or (folder.exists() and not _unborn(folder))
    if replaces:
        if not overwrite:
            raise _exists(folder)
        if folder.is_symlink() or not _is_run(folder):
            raise fail(
                UsageError,
                "NK302",
                f"{str(folder)!r} is not a run folder (one has {PLAN} and {LOGS}/), so it is not replaced",
                hint="give the run another name with --set name=...",
            )
    try:
        if replaces:
            _set_aside(folder)
        (folder / LOGS).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have in this locale.
        reason = getattr(error, "strerror", None) or str(error)
        message = f"the run folder {str(folder)!r} cannot be made: {reason}"
        raise fail(UsageError, "NK305", message) from error


def still_new(folder: Path) -> None:
    """Raise UsageError where another process has begun a run in a folder between its making and this one's claim."""
    if not _unborn(folder):
        raise _exists(folder)


def _exists(folder: Path) -> NlpkernelError:
    return fail(
        UsageError,
        "NK301",
        f"the run folder {str(folder)!r} exists",
        hint=f"`nlpkernel resume {folder}` continues it, --overwrite replaces it, --set name=... makes another",
    )


def _set_aside(folder: Path) -> None:
    """Rename a run, so that it is whole where it stands, and whole once it is put back."""
    if folder.exists():
        with claim(folder):
            forget_replaced(folder)
            os.rename(folder, _replaced(folder))


def put_back(folder: Path) -> None:
    """Undo a replacement whose run did not begin. Where there is none, nothing happens. Raise UsageError where another
    process is about to begin one."""
    old = _replaced(folder)
    if not old.exists():
        return
    with ExitStack() as stack:
        if folder.exists():
            if not _unborn(folder):
                return
            stack.enter_context(claim(folder))
            remove(folder)
        os.rename(old, folder)


def forget_replaced(folder: Path) -> None:
    """Remove the run that this one replaced. It is renamed first: half of one is no run that could be put back."""
    old, gone = _replaced(folder), _gone(folder)
    remove(gone)
    if old.exists():
        os.rename(old, gone)
        remove(gone)


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there."""
    import shutil

    while folder.exists():
        with suppress(FileNotFoundError):  # Another process removes it at the same time.
            shutil.rmtree(folder)


def _replaced(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _gone(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.gone")


@contextmanager
def claim(folder: Path, *, watched: bool = False) -> Iterator[None]:
    """Own a run folder: nobody else trains in it, rolls it back or prunes it meanwhile. The claim ends with the
    process, however that ends. `watched`: this is a worker of the supervisor that watches the run. Raise UsageError
    naming the owner where there is one."""
    with ExitStack() as stack:
        if not watched:
            stack.enter_context(watch(folder))
        stack.enter_context(_hold(folder, OWNED))
        yield


def watch(folder: Path) -> AbstractContextManager[None]:
    """Own a run folder as its supervisor, whose workers claim it with `watched`: nobody comes in between two of
    them."""
    return _hold(folder, WATCHED)


@contextmanager
def _hold(folder: Path, name: str) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock, note = FileLock(folder / name), folder / f"{name}.json"
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise fail(
            UsageError,
            "NK311",
            f"the run {str(folder)!r} is in use{_owner(note)}",
            hint="wait for it, or end that process",
        ) from None
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        try:
            note.write_text(json.dumps({"pid": os.getpid(), "host": platform.node()}), encoding="utf-8")
        except OSError as error:
            raise _unwritable(folder, error) from error
        yield
    finally:
        # Where the folder has become read-only the note stays; it is the lock that decides.
        with suppress(OSError):
            note.unlink(missing_ok=True)
        lock.release()


def _unwritable(path: Path, error: OSError) -> NlpkernelError:
    message = f"{str(path)!r} cannot be written: {error.strerror or error}"
    return fail(UsageError, "NK305", message)


def _owner(note: Path) -> str:
    try:
        owner = json.loads(note.read_text(encoding="utf-8"))
        return f" by process {owner['pid']} on {owner['host']}"
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
    """Write a file. A process that is killed meanwhile leaves it as it was, or whole. Raise UsageError (NK305) where
    that fails."""
    aside = _aside(path)
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        _discard(aside)
        raise _unwritable(path, error) from error
    except BaseException:
        _discard(aside)
        raise


def _discard(path: Path) -> None:
    with suppress(OSError):  # The folder is gone or read-only, which is told of already.
        path.unlink(missing_ok=True)


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
        folders = sorted(
            (path for path in found if _is_run(path)),
            key=lambda path: ((path / PLAN).stat().st_mtime, path.name),
        )
    except OSError:  # A folder may vanish meanwhile.
        return
    yield from folders


def _is_run(folder: Path) -> bool:
    # A plan alone makes none: it may be the user's own, in a folder of the project.
    return (folder / PLAN).is_file() and (folder / LOGS).is_dir()


def _unborn(folder: Path) -> bool:
    """Whether this is all that is left of a process that was killed before it had written its plan."""
    locks = (OWNED, WATCHED)
    ours = {LOGS, *locks, *(f"{lock}.json" for lock in locks), _aside(folder / PLAN).name}
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
