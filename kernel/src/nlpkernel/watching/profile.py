"""Where the time of a run goes, by plugin: a thread looks a few hundred times a second at what the loop is doing.

Looking from beside costs the loop next to nothing and needs nothing of the plugins, and it sees what hooks alone do
not: the forward of a model, the update of an optimizer, a batch that is made. On a GPU it sees where the host stands,
which asks for work ahead of the device and waits where a number is read.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from time import perf_counter
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel import runs

if TYPE_CHECKING:
    from nlpkernel.engine.session import Session

#: Seconds between two looks.
INTERVAL = 0.004
KERNEL, BACKWARD, ELSEWHERE = "the kernel", "the backward pass (torch)", "elsewhere"
#: Slots whose opened part is an object of a library, and what of a session that is.
_PARTS = {"optimizer": "optimizer", "model": "model"}


@attrs.frozen
class Share:
    """Seconds of one phase ("step", "evaluate", "save", ...) that went to one plugin, and the function of it that most
    of them were spent in, or below."""

    phase: str
    owner: str
    seconds: float
    function: str


class Profile:
    """Adds up the time between `begin` and `end`."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._seconds: Counter[tuple[str, str, str]] = Counter()
        self._looks = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._packages: dict[str, str] = {}
        self._objects: dict[int, str] = {}
        self._owners: dict[CodeType, str | None] = {}

    def begin(self, session: Session) -> None:
        """Look at the calling thread from now on."""
        hooks = session.hooks
        for component, owner in hooks.owned():
            module = type(component).__module__
            _, _, whose = owner.partition(" of ")
            # A component of a local file has a module of its own; one of a distribution has the package.
            name = module if ".py " in whose else module.partition(".")[0]
            self._packages.setdefault(name, whose)
            self._objects[id(component)] = whose
        for slot, part in _PARTS.items():
            owner = hooks.owner_at(slot) or ""
            self._objects[id(getattr(session.work, part))] = owner.partition(" of ")[2]
        self._packages["nlpkernel"] = KERNEL
        watched = threading.get_ident()
        self._thread = threading.Thread(
            target=self._look, args=(watched, session.run.pulse), name="nlpkernel-profile", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def shares(self) -> list[Share]:
        """What was found, by phase, the greatest first."""
        sums: dict[tuple[str, str], dict[str, float]] = {}
        for (phase, owner, function), seconds in self._seconds.items():
            sums.setdefault((phase, owner), {})[function] = seconds
        found = [
            Share(phase, owner, sum(of.values()), max(of, key=lambda name: of[name]))
            for (phase, owner), of in sums.items()
        ]
        total = Counter[str]()
        for share in found:
            total[share.phase] += share.seconds  # type: ignore[assignment]
        return sorted(found, key=lambda share: (-total[share.phase], share.phase, -share.seconds))

    def text(self) -> str:
        """As a person reads it."""
        shares = self.shares()
        if not shares:
            return "the profile is empty: the run took no step"
        lines = []
        for phase in dict.fromkeys(share.phase for share in shares):
            own = [share for share in shares if share.phase == phase]
            total = sum(share.seconds for share in own)
            lines.append(f"{phase}: {total:.2f} s, of which")
            lines += [
                f"  {share.seconds / total:>6.1%}  {share.owner}"
                + (f", most in {share.function}" if share.function else "")
                for share in own
            ]
        return "\n".join([*lines, f"from {self._looks} looks at the first worker"])

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        content = {"looks": self._looks, "shares": [attrs.asdict(share) for share in self.shares()]}
        runs.write(path, json.dumps(content, indent=2) + "\n")

    def _look(self, watched: int, pulse: Any) -> None:
        before = perf_counter()
        while not self._stop.wait(self._interval):
            frame = sys._current_frames().get(watched)
            now = perf_counter()
            if frame is not None:
                owner, function = self._whose(frame)
                # By the clock and not by the number of looks: one that comes late stands for more.
                self._seconds[pulse.phase, owner, function] += now - before  # type: ignore[assignment]
                self._looks += 1
            del frame
            before = now

    def _whose(self, innermost: FrameType) -> tuple[str, str]:
        """Whose code runs: the innermost frame that belongs to a plugin, to an object of one, or to the kernel."""
        frame: FrameType | None = innermost
        while frame is not None:
            code = frame.f_code
            if code not in self._owners:
                self._owners[code] = self._of_code(frame)
            owner = self._owners[code]
            if owner is None and code.co_varnames[:1] == ("self",):
                owner = self._objects.get(id(frame.f_locals.get("self")))
            if owner is not None:
                return owner, "" if owner == BACKWARD else code.co_qualname
            frame = frame.f_back
        return ELSEWHERE, ""

    def _of_code(self, frame: FrameType) -> str | None:
        module = frame.f_globals.get("__name__", "")
        if module == "torch.autograd" and frame.f_code.co_name == "backward":
            return BACKWARD
        return self._packages.get(module) or self._packages.get(module.partition(".")[0])
