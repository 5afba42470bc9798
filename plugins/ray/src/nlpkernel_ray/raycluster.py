"""A cluster of Ray. It imports ray, which brings its own pickling: who can talk to a Ray cluster can run code on it."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel_ray.cluster import Lost, Needs
from nlpkernel_ray.codes import OWNER
from nlpkernel_ray.hand import Hand

#: Calls that one hand answers at the same time: a long one for lines, and others meanwhile.
_CALLS = 8
#: Bytes that a cluster of our own keeps for objects; we pass none. Ray takes no less.
_OBJECTS = 80 * 2**20
#: Seconds between two looks at signals.
_TICK = 0.5


class RayHand(Hand):
    """A hand that Ray has put somewhere."""

    def node(self) -> str:
        """Ray's name of its node."""
        return str(ray.get_runtime_context().get_node_id())

    def address(self) -> str:
        """The address by which Ray's nodes reach it: of several, the one that its operator chose."""
        node = self.node()
        return next(str(each["NodeManagerAddress"]) for each in _nodes() if each["NodeID"] == node)


class RaySeat:
    """An actor."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the hand."""
        answer: Future[Any] = Future()

        def arrived(inner: Future[Any]) -> None:
            error = inner.exception()
            if error is None:
                answer.set_result(inner.result())
            elif isinstance(error, RayActorError):
                answer.set_exception(_lost(error))
            else:
                answer.set_exception(error)

        reference = getattr(self.actor, method).remote(*arguments)
        reference.future().add_done_callback(arrived)
        return answer


class RayCluster:
    """One that runs, or one that is started here for as long as this object is there."""

    def __init__(self, name: str, folder: str | None = None) -> None:
        """folder: what a cluster that was started here writes, and what is removed with it."""
        self.name, self._folder = name, folder
        self._group: PlacementGroup | None = None
        self._actors: list[Any] = []

    @classmethod
    def connect(cls, address: str) -> RayCluster:
        """To one that runs: auto, HOST:PORT, or ray://HOST:PORT. Raise UsageError (RAY002) where there is none."""
        try:
            # A namespace of its own, and no lines of actors: what workers write comes by `read`.
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, OSError, RuntimeError, ValueError, ImportError, RayError) as error:
            raise _none(f"no Ray cluster answers at {address!r}: {_first_line(error)}") from error
        return cls(f"the Ray cluster at {address!r}")

    @classmethod
    def start(cls, cpus: int) -> RayCluster:
        """On this machine, as if it had so many cores, with the GPUs that it has. Raise UsageError (RAY002) where it
        does not start."""
        folder = tempfile.mkdtemp(prefix="nlpkernel-ray-")
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=_OBJECTS,
                _temp_dir=folder,
            )
        except (ConnectionError, OSError, RuntimeError, ValueError, RayError) as error:
            raise _none(
                f"a local Ray cluster does not start: {_first_line(error)} (logs in {folder})"
            ) from error
        return cls("the local Ray cluster", folder)

    def gpus(self) -> int:
        """GPUs in all."""
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return int(resources.get("GPU", 0))

    def room(self, needs: Needs) -> int:
        """By what the machines have, and what of all of it is free."""
        available: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
        fits = sum(_fits(node["Resources"], needs) for node in _nodes() if node["Alive"])
        return min(fits, _fits(available, needs))

    def seats(
        self, number: int, needs: Needs, seconds: float, hurry: Callable[[], bool]
    ) -> Sequence[RaySeat] | None:
        """A placement group, packed, and an actor in each of its bundles."""
        bundle = {"CPU": float(needs.cpus), **({"GPU": float(needs.gpus)} if needs.gpus else {})}
        group = placement_group([bundle] * number, strategy="PACK")
        ready, end = group.ready(), time.monotonic() + seconds
        while not ray.wait([ready], timeout=max(0.0, min(_TICK, end - time.monotonic())))[0]:
            if hurry() or time.monotonic() >= end:
                remove_placement_group(group)
                return None
        self._group = group
        # A hand that is gone is not put elsewhere: its worker would be alone there.
        kind: Any = ray.remote(RayHand)
        for index in range(number):
            made = kind.options(
                num_cpus=needs.cpus,
                num_gpus=needs.gpus,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=_CALLS,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=index
                ),
            )
            self._actors.append(made.remote())
        return [RaySeat(actor) for actor in self._actors]

    def release(self) -> None:
        """Kill the actors, with whom their processes end."""
        actors, self._actors = self._actors, []
        for actor in actors:
            ray.kill(actor, no_restart=True)
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def close(self) -> None:
        """Disconnect."""
        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _lost(error: RayActorError) -> Exception:
    """What became of an actor. One that cannot be made would not be made by another start either."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    made: Exception
    if error.actor_init_failed:
        # The text ends with the error of the traceback in it.
        made = fail(
            UsageError,
            "RAY008",
            f"a worker's actor cannot be made: {lines[-1]}",
            owner=OWNER,
            hint="install nlpkernel, nlpkernel-plugin-ray and the plugins of the plan there, in the same releases",
        )
    else:
        # The first line says only that it has died; then come its names, indented, and then the reason.
        made = Lost(f"its process or its machine is gone ({lines[min(1, len(lines) - 1)]})")
    made.__cause__ = error
    return made


def _nodes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return found


def _fits(resources: dict[str, float], needs: Needs) -> int:
    fits = int(resources.get("CPU", 0.0) // needs.cpus)
    return min(fits, int(resources.get("GPU", 0.0) // needs.gpus)) if needs.gpus else fits


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _none(message: str) -> NlpkernelError:
    hint = "start one with `ray start --head`, name one with --address, or let --local start one for this run"
    return fail(UsageError, "RAY002", message, owner=OWNER, hint=hint)
