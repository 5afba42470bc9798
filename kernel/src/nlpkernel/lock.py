"""What exactly ran: sealed in two parts, plugins and settings at activation, data and layout before the first step."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

from nlpkernel import __version__, runs
from nlpkernel.errors import Problem, UsageError, fail
from nlpkernel.plan.structure import Placed


@attrs.frozen(kw_only=True)
class LockedComponent:
    """One component as it ran. `content` is a hash of the sources of its package, or of its local file."""

    address: str
    use: str
    distribution: str
    release: str
    content: str


@attrs.frozen(kw_only=True)
class Activated:
    """The first part: who runs, under which settings, in which environment."""

    plan: str
    kernel: str
    components: tuple[LockedComponent, ...]
    python: str
    torch: str
    platform: str
    threads: int

    def fingerprint(self) -> dict[str, str]:
        """What the workers of a run must have alike, as texts of a line each; machines may differ."""
        versions = f"nlpkernel {self.kernel}\npython {self.python}\ntorch {self.torch}"
        plugins = [
            f"{each.address}: {each.use} of {each.distribution} {each.release}, sources {each.content[:16]}"
            for each in self.components
        ]
        return {"versions": versions, "plugins": "\n".join(plugins), "threads": str(self.threads)}


@attrs.frozen(kw_only=True)
class Opened:
    """The second part: on which data and in which layout. `schema` is a hash of parameter names, shapes and types."""

    data: str
    schema: str
    world: int
    device: str


@attrs.frozen(kw_only=True)
class Lock:
    """Both parts."""

    activated: Activated
    opened: Opened

    def plain(self) -> dict[str, Any]:
        """Plain data, for JSON and msgpack."""
        import cattrs

        return cattrs.unstructure(self)  # type: ignore[no-any-return]

    def write(self, path: Path) -> None:
        """Write the lock as JSON."""
        runs.write(path, json.dumps(self.plain(), indent=2) + "\n")


def threads_of(path: Path) -> int | None:
    """The number of threads in a lock that `Lock.write` wrote; None where it cannot be read: what else differs is found
    when a version is compared."""
    try:
        threads = json.loads(path.read_text(encoding="utf-8"))["activated"]["threads"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return threads if isinstance(threads, int) and threads > 0 else None


@attrs.frozen(kw_only=True)
class Locked:
    """A lock that was written down: the filled plan, what ran it, and by distribution what a look at its conformance
    came to."""

    plan: str
    lock: Mapping[str, Any]
    conformance: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def contents(self, distribution: str) -> set[str]:
        """The hashes of the sources of a distribution that the lock names; none where the plan does not use it."""
        components = self.lock["activated"]["components"]
        return {each["content"] for each in components if each["distribution"] == distribution}

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        content: dict[str, Any] = {"lock": self.lock, "plan": self.plan.splitlines()}
        if self.conformance:
            content["conformance"] = self.conformance
        runs.write(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Locked:
        """Read what `write` wrote. Raise UsageError where it is missing or is none."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            lock = content["lock"]
            for part, known in (("activated", Activated), ("opened", Opened)):
                missing = [field.name for field in attrs.fields(known) if field.name not in lock[part]]
                if missing:
                    raise KeyError(*missing)
            return cls(
                plan="\n".join([*content["plan"], ""]), lock=lock, conformance=content.get("conformance", {})
            )
        except OSError as error:
            message = f"the lock {str(path)!r} cannot be read: {error.strerror or error}"
            raise fail(UsageError, "NK312", message, hint="`nlpkernel lock plan.toml` writes one") from error
        except (ValueError, KeyError, TypeError) as error:
            message = f"{str(path)!r} is no lock: {type(error).__name__}: {error}"
            raise fail(UsageError, "NK312", message, hint="`nlpkernel lock plan.toml` writes one") from error

    def hold(self, lock: Lock, plan: str) -> None:
        """Raise UsageError (NK506) naming everything that is not as it is here."""
        from nlpkernel.changes import changes

        problems = [
            Problem(
                code="NK506",
                message=f"{change.text} since the lock was written",
                hint="put it back, or write a new lock with `nlpkernel lock`",
            )
            for change in changes(self.plan, self.lock, plan, lock.plain())
        ]
        if problems:
            raise UsageError(problems)


def activate(plan_text: str, placed: Sequence[Placed]) -> Activated:
    """Seal the first part."""
    import torch

    return Activated(
        plan=digest(plan_text),
        kernel=__version__,
        components=tuple(
            LockedComponent(
                address=each.address,
                use=each.found.use,
                distribution=each.found.distribution,
                release=each.found.release,
                content=_content(each),
            )
            for each in placed
        ),
        python=platform.python_version(),
        torch=str(torch.__version__),
        platform=platform.platform(),
        threads=torch.get_num_threads(),
    )


def schema_text(shapes: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    """Parameter names, shapes and types, in their order, a line each."""
    return "\n".join(f"{name} {shape} {kind}" for name, (shape, kind) in shapes.items())


def digest(text: str) -> str:
    """A hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _sources(path: Path) -> Iterable[Path]:
    """Every file of a package but what Python compiles: kernels and templates decide what happens as well."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.rglob("*") if each.is_file() and "__pycache__" not in each.parts)


_hashes: dict[str, str] = {}


def _content(placed: Placed) -> str:
    module_name, _, _ = placed.found.target.rpartition(":")
    if placed.found.local:
        return hashlib.sha256(Path(module_name).read_bytes()).hexdigest()
    return package_hash(module_name.partition(".")[0])


def package_hash(package: str) -> str:
    """A hash of the sources of an importable package."""
    if package not in _hashes:
        # The sources themselves, not the RECORD of the installation: an editable install has no true one.
        module = sys.modules.get(package) or import_module(package)
        digest = hashlib.sha256()
        for path in map(Path, getattr(module, "__path__", None) or [module.__file__ or ""]):
            for source in _sources(path):
                name = source.relative_to(path.parent).as_posix()
                digest.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
        _hashes[package] = digest.hexdigest()
    return _hashes[package]
