"""How long a client waits, for what."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exception, wait_random_exponential

from toolplug.errors import HostRefused, HostUnreachable

Made = TypeVar("Made")

_LOG = logging.getLogger("toolplug.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds. Between two attempts it waits at random: up to `first_s`, then up to twice as long, up to `longest_s`.

    A stream on which nothing came for `silence_s` is dead (a host says something every 15 s). Changes of tools within
    `gather_s` travel together. `answer_s`: how long it waits for an answer of the host. `call_s`: a call that takes
    longer, until the host has its answer, is given up: no caller waits for it any more.
    """

    first_s: float = 0.5
    longest_s: float = 30.0
    silence_s: float = 45.0
    gather_s: float = 0.02
    answer_s: float = 30.0
    call_s: float = 300.0

    async def insist(self, attempt: Callable[[], Awaitable[Made]]) -> Made:
        """Try without end while the host is away, and no sooner than it asks where it is busy."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_random_exponential(multiplier=self.first_s, max=self.longest_s) + wait_exception(_asked_s),
            before_sleep=_say_once,
            reraise=True,
        )
        return cast("Made", await retrying(attempt))  # its own type says less


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, HostUnreachable) or (isinstance(error, HostRefused) and error.retry_after_s is not None)


def _asked_s(error: BaseException) -> float:
    asked = error.retry_after_s if isinstance(error, HostRefused | HostUnreachable) else None
    return asked or 0.0


def _say_once(state: RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        _LOG.warning("%s; trying again", state.outcome.exception())
