"""Tiny plans run around a component, and what could be seen of them."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.engine.api import Loop
from nlpkernel.engine.equality import difference, uncounted
from nlpkernel.engine.opening import activate, reading
from nlpkernel.errors import NlpkernelError, PlanError, PluginError
from nlpkernel.events import Event, Logged
from nlpkernel.plan import Plan
from nlpkernel.report import Report
from nlpkernel.state import Addends, Leaf, Spread
from nlpkernel.supervise.launch import wanted
from nlpkernel_sdk.conform.checks import NotApplicable
from nlpkernel_sdk.conform.subject import Part
from nlpkernel_sdk.conform.surroundings import surroundings

_numbers = itertools.count()
#: What is written outside while somebody listens: (what, path).
_writes: list[tuple[str, str]] | None = None
_hooked = False


@attrs.define(kw_only=True)
class Told:
    """A run that ended. error: how it failed, if it did. changed: what of the process was otherwise behind it than
    before. writes: what was written, by absolute path."""

    folder: Path
    plan: Plan
    events: list[Event] = attrs.field(factory=list)
    report: Report | None = None
    error: BaseException | None = None
    changed: Mapping[str, str] = attrs.field(factory=dict)
    writes: list[tuple[str, str]] = attrs.field(factory=list)
    state: Mapping[str, Leaf] = attrs.field(factory=dict)
    seen: list[Any] = attrs.field(factory=list)

    @property
    def losses(self) -> list[tuple[float | None, ...]]:
        """The losses of every log, in order."""
        return [event.losses for event in self.events if isinstance(event, Logged)]


def plan_of(part: Part, values: Mapping[str, Any]) -> Plan:
    """The plan of values, whose paths start from the author's folder."""
    return Plan.of(values, base=part.subject.config.base, catalog=part.subject.catalog)


def run(
    part: Part,
    values: Mapping[str, Any],
    *,
    folder: Path | None = None,
    stop_at: int | None = None,
    resume: bool = False,
    look: Callable[[Any], Any] | None = None,
    watched: bool = False,
) -> Told:
    """Run a plan to its end, or close it after a step as an interrupted run is closed. look: asked with the session
    after each step. watched: what changes in the process is noted."""
    folder = folder or fresh()
    made = Told(folder=folder, plan=plan_of(part, values))
    loop = Loop(
        made.plan, folder / made.plan.name, listen=made.events.append, resume="newest" if resume else None
    )
    with ExitStack() as stack:
        # What monitors show is not for whoever reads what the checks say.
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        stack.enter_context(redirect_stdout(nowhere))
        stack.enter_context(redirect_stderr(nowhere))
        before = surroundings() if watched else {}
        if watched:
            made.writes = stack.enter_context(_listening())
        steps = loop.steps()
        try:
            for session in steps:
                if look is not None:
                    made.seen.append(look(session))
                if session.progress.step == stop_at:
                    steps.close()
                    break
            else:
                made.report = loop.report()
        except BaseException as error:
            if not isinstance(error, (Exception, SystemExit)):
                raise
            made.error = error
        finally:
            steps.close()
        if watched:
            del steps, loop
            made.changed = differing(before)
    return made


def differing(before: Mapping[str, Any]) -> dict[str, str]:
    """What of the process is otherwise than it was."""
    # A thread that was told to end has a moment to do so; what a cycle holds is let go of.
    gc.collect()
    for thread in set(threading.enumerate()) - set(before["threads"]):
        if thread is not threading.current_thread():
            thread.join(0.5)
    after = surroundings()
    changed = {}
    for name, value in after.items():
        old = before[name]
        if value == old:
            continue
        if name in ("threads", "children", "files"):
            # What ends meanwhile is nobody's fault.
            new = [str(each) for each in value if each not in old]
            if new:
                changed[name] = ", ".join(new)[:300]
        elif isinstance(value, (list, tuple, set)):
            new = [str(each) for each in value if each not in old]
            gone = [str(each) for each in old if each not in value]
            changed[name] = f"new: {', '.join(new) or 'nothing'}; gone: {', '.join(gone) or 'nothing'}"[:300]
        elif isinstance(value, dict):
            keys = sorted(str(key) for key in {*value, *old} if value.get(key) != old.get(key))
            changed[name] = ", ".join(keys)[:300]
        else:
            changed[name] = f"{str(old)[:80]} became {str(value)[:80]}"
    return changed


def fresh() -> Path:
    """A new folder for runs, beside the cache of this look."""
    cache = os.environ.get("NLPKERNEL_CACHE", tempfile.gettempdir())
    folder = Path(cache).parent / f"runs-{os.getpid()}-{next(_numbers)}"
    folder.mkdir(parents=True)
    return folder


def versions(told: Told) -> Mapping[str, Leaf]:
    """The state in the newest version of a run, what lies in pieces as a whole, what follows the clock left out."""
    context, hooks, composition = activate(told.plan, told.folder / told.plan.name)
    with reading(context, hooks, composition) as store:
        tree = store.load().tree
    return {path: _one(leaf) for path, leaf in tree.items() if not uncounted(path)}


def _one(leaf: Leaf) -> Leaf:
    if isinstance(leaf.value, Spread):
        return Leaf(leaf.value.whole(), leaf.kind)
    return Leaf(leaf.value.total(), leaf.kind) if isinstance(leaf.value, Addends) else leaf


def unequal(left: Mapping[str, Leaf], right: Mapping[str, Leaf]) -> list[str]:
    """Where two states differ, a line each."""
    lines = []
    for path in {**left, **right}:
        what = difference(left.get(path), right.get(path))
        if what:
            lines.append(f"{path}: {what}")
    return lines


def base(part: Part) -> Told:
    """The run that most checks look at, made once; then made again to be watched, once libraries have warmed up. Raise
    NotApplicable where it fails, which behaviour.runs says."""
    told = attempt(part)
    if told.error is not None or told.report is None:
        raise NotApplicable("its tiny plan does not run: see behaviour.runs")
    return told


def attempt(part: Part) -> Told:
    """As `base`, also where it fails."""
    if "base" not in part.shared:
        try:
            if wanted(plan_of(part, part.values()), fresh()):
                raise NotApplicable("its plan wants several processes: see the level `distributed`")
            part.shared["base"] = run(part, part.values(), watched=True)
        except (PlanError, PluginError) as error:
            raise NotApplicable("its tiny plan is refused: see static.checks") from error
    told: Told = part.shared["base"]
    return told


def again(part: Part) -> Told:
    """The same plan once more, watched."""
    base(part)
    if "again" not in part.shared:
        part.shared["again"] = run(part, part.values(), watched=True)
    told: Told = part.shared["again"]
    return told


def steady(part: Part) -> None:
    """Raise NotApplicable where two runs of one plan differ already: another comparison would say it again."""
    if base(part).losses != again(part).losses or again(part).error is not None:
        raise NotApplicable("two runs of one plan differ: see behaviour.same-seed")


def words(error: BaseException | None) -> str:
    """An error in one line, without its type where it is one of ours."""
    text = str(error).partition("\n")[0]
    return text if isinstance(error, NlpkernelError) else f"{type(error).__name__}: {text}"


@contextmanager
def _listening() -> Iterator[list[tuple[str, str]]]:
    """Note every path that is written while inside."""
    global _writes, _hooked
    if not _hooked:
        # A hook cannot be taken off again; outside of here it does nothing.
        sys.addaudithook(_heard)
        _hooked = True
    heard: list[tuple[str, str]] = []
    _writes = heard
    try:
        yield heard
    finally:
        _writes = None


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if _writes is None:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if isinstance(path, (str, bytes)) and (writes or (isinstance(mode, str) and set(mode) & set("wax+"))):
            _writes.append(("written", os.path.abspath(os.fsdecode(path))))
    elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.truncate"):
        if isinstance(arguments[0], (str, bytes)):
            _writes.append((event, os.path.abspath(os.fsdecode(arguments[0]))))
    elif event in ("os.rename", "os.link", "os.symlink") and isinstance(arguments[1], (str, bytes)):
        _writes.append((event, os.path.abspath(os.fsdecode(arguments[1]))))
