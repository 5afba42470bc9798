"""What Ray's own errors become."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from nlpkernel.errors import UsageError
from nlpkernel_ray.cluster import Lost

exceptions = pytest.importorskip("ray.exceptions")


def asked(error: Exception) -> Future[Any]:
    """The answer of a seat whose actor ends with an error."""
    from nlpkernel_ray.raycluster import RaySeat

    inner: Future[Any] = Future()
    inner.set_exception(error)
    method = SimpleNamespace(remote=lambda *_: SimpleNamespace(future=lambda: inner))
    return RaySeat(SimpleNamespace(read=method)).ask("read")


def test_the_reason_why_a_seat_is_lost_is_kept() -> None:
    text = (
        "The actor died unexpectedly before finishing this task.\n\tclass_name: RayHand\n\tactor_id: 7f\n\tpid: 9\n"
        "The actor is dead because its node has died. Node Id: 4c"
    )
    error = exceptions.RayActorError(error_msg=text)
    with pytest.raises(Lost, match="The actor is dead because its node has died") as caught:
        asked(error).result()
    assert caught.value.__cause__ is error
    with pytest.raises(Lost, match=r"is gone \(The actor experienced an error"):
        asked(exceptions.RayActorError()).result()


def test_a_seat_that_cannot_be_made_is_no_machine_that_was_lost() -> None:
    """Another start would not help, so it is a mistake of what is installed."""
    text = (
        "The actor died because of an error raised in its creation task, ray::RayHand.__init__()\n"
        "  File \"x.py\", line 1\nModuleNotFoundError: No module named 'nlpkernel_ray'\n"
    )
    error = exceptions.RayActorError(error_msg=text, actor_init_failed=True)
    with pytest.raises(
        UsageError, match="RAY008 a worker's actor cannot be made: ModuleNotFoundError: No mod"
    ) as caught:
        asked(error).result()
    assert caught.value.__cause__ is error


def test_other_errors_are_left_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError):
        asked(ZeroDivisionError()).result()
