"""Patience with a far store: which errors pass by themselves, and how long they are waited for."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

_T = TypeVar("_T")

_LOG = logging.getLogger("nlpkernel.store")

#: The HTTP answers that a service gives when it is busy, restarting, or asks to try again: too many requests, a
#: conflict with another conditional write that is still under way, a failure inside, a gateway without its server.
_STATUS = {408, 409, 429, 500, 502, 503, 504}
#: The same from a file system, or from a connection.
_NAMES = [
    "EAGAIN",
    "EBUSY",
    "ECONNABORTED",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTUNREACH",
    "EINTR",
    "EIO",
    "ENETDOWN",
    "ENETRESET",
    "ENETUNREACH",
    "EPIPE",
    "EREMOTEIO",
    "ESTALE",
    "ETIMEDOUT",
]
#: Not every system has all of them.
_NUMBERS = {number for name in _NAMES if (number := getattr(errno, name, None)) is not None}
#: Errors of clients that are no OSError, by the names of their classes: importing the clients to ask would make
#: every driver a dependency.
_CLASSES = {
    "HTTPClientError",
    "ResponseParserError",
    "ClientConnectionError",
    "ClientPayloadError",
    "IncompleteRead",
}


def passing(error: BaseException) -> bool:
    """Whether the same call may well succeed a moment later."""
    if isinstance(error, (FileExistsError, FileNotFoundError, PermissionError)):
        return False
    status = status_of(error)
    if status is not None:
        return status in _STATUS
    if isinstance(error, TimeoutError) or (isinstance(error, OSError) and error.errno in _NUMBERS):
        return True
    return any(each.__name__ in _CLASSES for each in type(error).__mro__)


def status_of(error: BaseException) -> int | None:
    """The HTTP status in the answer that an error tells of, where there is one."""
    answer = _answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return answer if isinstance(answer, int) else None


def code_of(error: BaseException) -> str:
    """The service's own word for what went wrong ("PreconditionFailed"), or nothing."""
    return str(_answer(error).get("Error", {}).get("Code", ""))


def _answer(error: BaseException) -> dict[str, Any]:
    # s3fs raises an OSError and chains botocore's error, which holds the answer.
    for each in (error, error.__cause__):
        answer = getattr(each, "response", None)
        if isinstance(answer, dict):
            return answer
    return {}


@attrs.frozen(kw_only=True)
class Patience:
    """How often a call is made, and the seconds before the second time, which double with every further one up to
    `longest`. The pauses add up to about 12 seconds, so a service may restart under a run."""

    attempts: int = 8
    pause: float = 0.1
    longest: float = 10.0

    def __call__(self, what: str, call: Callable[[], _T], words: Callable[[BaseException], str] = str) -> _T:
        """The result of `call`, which may be made again. `what` says in the log what is done, `words` what went wrong.
        The last error is raised as it came."""
        for attempt in range(1, self.attempts + 1):
            try:
                return call()
            except Exception as error:
                if attempt == self.attempts or not passing(error):
                    raise
                wait = min(self.pause * 2 ** (attempt - 1), self.longest)
                _LOG.warning(
                    "%s failed (%s); attempt %d of %d in %.1f s",
                    what,
                    words(error),
                    attempt + 1,
                    self.attempts,
                    wait,
                )
                time.sleep(wait)
        raise AssertionError("a loop of at least one attempt returns or raises")
