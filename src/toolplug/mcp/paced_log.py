"""A log that somebody else's noise cannot fill."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from toolplug.catalog.counted import counted

_MINUTE_S = 60.0
_MAX_CHARACTERS = 500


class PacedLog:
    """Writes at most `per_minute` lines in a minute, and says with the next minute's first how many it left out."""

    def __init__(
        self, log: logging.Logger, *, per_minute: int = 10, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._per_minute = per_minute
        self._clock = clock
        self._since = clock()
        self._written = 0
        self._left_out = 0

    def takes(self) -> bool:
        """Whether a line would be written now; one that would not is counted, and need not be made."""
        now = self._clock()
        if now - self._since >= _MINUTE_S:
            self._since, self._written = now, 0
        if self._written < self._per_minute:
            return True
        self._left_out += 1
        return False

    def write(self, level: int, what: str, text: str) -> None:
        """Log `what: text`, cut to 500 characters, or count it."""
        if not self.takes():
            return
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        more = f" ({counted(left_out, 'line')} left out before)" if left_out else ""
        self._log.log(level, "%s: %s%s", what, text[:_MAX_CHARACTERS], more)
