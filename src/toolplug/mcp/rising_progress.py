"""What a call reports while it runs, as the protocol wants it: numbers that rise."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from toolplug.execution.reports import Reports

R = TypeVar("R")


class _Progress(NamedTuple):
    progress: float
    total: float | None
    message: str | None


class RisingProgress:
    """Sends what `report` is given; progress that does not rise is dropped."""

    def __init__(self, send: Callable[[float, float | None, str | None], Awaitable[None]]) -> None:
        self._send = send
        self._reports = Reports(self._pass_on)
        self._highest = -math.inf

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Take one report, from any thread; what is no progress is dropped. Never blocks."""
        if _is_number(progress) and (total is None or _is_number(total)):
            self._reports.take(_Progress(progress, total, message if isinstance(message, str) else None))

    async def during(self, execute: Callable[[], Awaitable[R]]) -> R:
        """Run the call and send its reports meanwhile; those that came before its end are sent before its result."""
        return await self._reports.during(execute)

    async def _pass_on(self, report: _Progress) -> None:
        if report.progress > self._highest:
            self._highest = report.progress
            await self._send(*report)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
