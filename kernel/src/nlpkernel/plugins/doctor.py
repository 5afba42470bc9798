"""Everything that is wrong with what is installed. Each module of components is tried in a process of its
own, so that one that crashes, hangs or exits cannot take doctor down, and none sees what another one
imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import attrs

from nlpkernel.errors import Problem
from nlpkernel.hookspecs import POINTS
from nlpkernel.plugins.catalog import Catalog, owner
from nlpkernel.plugins.requires import unmet
from nlpkernel.plugins.scan import SERVICES, Offer, Scan, distributions
from nlpkernel.plugins.suggest import hint

#: Packages that no light module may import.
HEAVY = ("torch", "numpy", "zmq", "cupy")
#: Seconds that a module may take to import before it is ended.
LIMIT = 30.0


@attrs.frozen
class Trial:
    """What came of importing one module: problems, extension points that its components open, and whether it
    answered at all."""

    problems: tuple[Problem, ...]
    points: frozenset[str] = frozenset()
    answered: bool = True


def doctor(found: Scan, *, paths: Sequence[str] | None = None, limit: float = LIMIT) -> list[Problem]:
    """All findings, in a fixed order: metadata, names, versions, imports and hooks, points, requirements.

    `paths` is where plugins are imported from (default: `sys.path`), `limit` how many seconds one module may
    take."""
    paths = list(sys.path if paths is None else paths)
    usable, mismatched = _by_version(found.offers)
    trials = _try_all(usable, paths, limit)
    return [
        *_broken(found),
        *_twice(usable),
        *mismatched,
        *(problem for trial in trials for problem in trial.problems),
        *_unopened(usable, trials),
        *_requirements(found.offers, distributions(paths)),
    ]


def _broken(found: Scan) -> Iterable[Problem]:
    for broken in found.broken:
        message = f"{broken.location} {broken.reason}"
        yield Problem(code="NK030", message=message, owner=broken.distribution, hint=None)


def _by_version(offers: Iterable[Offer]) -> tuple[list[Offer], list[Problem]]:
    """The offers built for this kernel, and a problem for each other one.

    A distribution that offers a component for several versions of a contract serves several kernels: no
    problem."""
    usable = [offer for offer in offers if offer.version == _version(offer.point)]
    served = {(offer.point, offer.name, offer.distribution) for offer in usable}
    problems = []
    for offer in offers:
        if offer.version == _version(offer.point) or (offer.point, offer.name, offer.distribution) in served:
            continue
        # The catalog refuses it before it imports anything, with the words that the plan's reader uses.
        refused = Catalog([offer]).resolve(offer.point, offer.name, base=None, place=None)
        if isinstance(refused, Problem):
            problems.append(refused)
    return usable, problems


def _version(point: str) -> int:
    # A point of a plugin's own has version 1: `extension` gives no other.
    return POINTS[point].version if point in POINTS else 1


def _twice(offers: Iterable[Offer]) -> Iterable[Problem]:
    same: dict[tuple[str, str], list[Offer]] = defaultdict(list)
    for offer in offers:
        same[offer.point, offer.name].append(offer)
    for (point, name), several in same.items():
        if len(several) < 2:
            continue
        owners = sorted({offer.distribution for offer in several})
        who = " and ".join(f"{offer.distribution} {offer.release} ({offer.target})" for offer in several)
        words = " or ".join(f'"{each}:{name}"' for each in owners)
        tip = f"write use = {words} in a plan" if len(owners) > 1 and point not in SERVICES else None
        yield Problem(code="NK031", message=f"{name!r} is offered twice for {point!r}: {who}", hint=tip)


def _unopened(offers: Iterable[Offer], trials: Iterable[Trial]) -> Iterable[Problem]:
    opened = {*POINTS, *SERVICES}.union(*(trial.points for trial in trials))
    silent = sum(not trial.answered for trial in trials)
    for offer in offers:
        if offer.point in opened:
            continue
        tip = hint(offer.point, opened) or ""
        if silent:
            tip += f"; one of the components that do not import may open it ({silent} cannot be asked)"
        yield Problem(
            code="NK032",
            message=f"{offer.name!r} is offered for {offer.point!r}, a point that nothing installed opens",
            owner=owner(offer.name, offer.distribution, offer.release),
            hint=tip,
        )


def _requirements(offers: Iterable[Offer], installed: dict[str, str]) -> Iterable[Problem]:
    wanting = {offer.distribution: offer for offer in offers}
    locations = {name: offer.location for name, offer in wanting.items()}
    if "nlpkernel" in installed:
        locations["nlpkernel"] = installed["nlpkernel"]
    for name, location in sorted(locations.items()):
        release = wanting[name].release if name in wanting else ""
        for each in unmet(location, installed):
            through = f" through {each.through}" if each.through else ""
            state = "is not installed" if each.installed is None else f"is installed as {each.installed}"
            yield Problem(
                code="NK036" if each.installed is None else "NK037",
                message=f"{name} requires {each.requirement}{through}, which {state}",
                owner=f"{name} {release}".rstrip(),
                hint=f'pip install "{each.requirement}"',
            )


# -- trials ----------------------------------------------------------------------------------------


def _try_all(offers: Iterable[Offer], paths: Sequence[str], limit: float) -> list[Trial]:
    modules: dict[str, list[Offer]] = defaultdict(list)
    for offer in offers:
        modules[offer.target.partition(":")[0]].append(offer)
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(lambda each: _try(each, paths, limit), modules.values()))


def _try(offers: Sequence[Offer], paths: Sequence[str], limit: float) -> Trial:
    """Import the module of `offers` in a process of its own."""
    module = offers[0].target.partition(":")[0]
    request = {"path": list(paths), "heavy": HEAVY, "offers": offers}
    # Files, not pipes: a process that a plugin leaves behind would hold a pipe open.
    with tempfile.TemporaryFile() as questions, tempfile.TemporaryFile() as answers:
        questions.write(json.dumps(request).encode())
        questions.seek(0)
        with tempfile.TemporaryFile() as words:
            # -P: the folder of probe.py holds modules that are called like some of the standard library.
            child = subprocess.Popen(
                [sys.executable, "-P", "-X", "faulthandler", _probe()],
                stdin=questions,
                stdout=answers,
                stderr=words,
                start_new_session=True,
            )
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                message = f"importing {module!r} was not finished after {limit:g} seconds"
                return Trial((Problem(code="NK034", message=message, owner=_owners(offers)),), answered=False)
            finally:
                _end(child)
            try:
                answer = json.loads(_text(answers))
            except ValueError:
                message = f"importing {module!r} ends the process{_death(code, _text(words))}"
                return Trial((Problem(code="NK033", message=message, owner=_owners(offers)),), answered=False)
    return _trial(answer, module, offers)


def _trial(answer: dict[str, Any], module: str, offers: Sequence[Offer]) -> Trial:
    problems = [Problem(**problem) for problem in answer["problems"]]
    for package, where in answer["heavy"]:
        problems.append(
            Problem(
                code="NK035",
                message=f"importing {module!r} imports {package} ({where})",
                owner=_owners(offers),
                hint="import it inside the hook methods",
            )
        )
    answered = not any(problem.code in ("NK051", "NK052") for problem in problems)
    return Trial(tuple(problems), frozenset(answer["points"]), answered)


def _probe() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "probe.py")


def _owners(offers: Sequence[Offer]) -> str:
    names = ", ".join(sorted({offer.name for offer in offers}))
    return owner(names, offers[0].distribution, offers[0].release)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process, and where sessions exist what it started too."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:
            child.kill()  # macOS answers so for a group whose members have ended
    else:
        child.kill()
    child.wait()


def _death(code: int, words: str) -> str:
    """How a process died, with the line of the plugin that faulthandler names, or its last words."""
    try:
        how = f" by {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
    except ValueError:
        how = f" by signal {-code}"
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    frames = [line for line in lines if line.startswith("File ")]
    last = frames[0] if frames else lines[-1] if lines else ""
    return f"{how} ({last})" if last else how


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")
