"""Delays and timeouts of a client, and its retries."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from toolplug.errors import HostRefused, HostUnreachable
from toolplug.exports import not_installed

try:
    from tenacity import (
        AsyncRetrying,
        RetryCallState,
        retry_if_exception,
        wait_exception,
        wait_random_exponential,
    )
except ModuleNotFoundError as _error:
    raise not_installed(_error, "toolplug.client") from None

Result = TypeVar("Result")

_LOG = logging.getLogger("toolplug.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays and timeouts in seconds.

    `first_s`, `longest_s`: the delay before an attempt is random, at most `first_s` at first, and twice the last
    maximum after each failure, up to `longest_s`. `silence_s`: a stream without data for this long is broken (a host
    sends something every 15 s). `gather_s`: changes of tools within this time are one update. `answer_s`: timeout of a
    request. `call_s`: timeout of a call, until the host has its answer.

    ```python
    from toolplug.client import Application, Backoff

    patient = Application("http://127.0.0.1:8080", plugin_type="notes", backoff=Backoff(longest_s=300.0))
    ```
    """

    first_s: float = 0.5
    longest_s: float = 30.0
    silence_s: float = 45.0
    gather_s: float = 0.02
    answer_s: float = 30.0
    call_s: float = 300.0

    async def retry(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Repeat the attempt while the host is unreachable or busy, respecting `Retry-After`. Raises other errors."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_temporary),
            # Added, not the larger of both: all clients are told the same `Retry-After`, and would come back at once.
            wait=wait_random_exponential(multiplier=self.first_s, max=self.longest_s) + wait_exception(_retry_after_s),
            before_sleep=_log_first,
            reraise=True,
        )
        return cast("Result", await retrying(attempt))  # its own type says less


def _is_temporary(error: BaseException) -> bool:
    return isinstance(error, HostUnreachable) or (isinstance(error, HostRefused) and error.retry_after_s is not None)


def _retry_after_s(error: BaseException) -> float:
    asked = error.retry_after_s if isinstance(error, HostRefused | HostUnreachable) else None
    return asked or 0.0


def _log_first(state: RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        _LOG.warning("%s; trying again", state.outcome.exception())
