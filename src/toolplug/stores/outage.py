"""Tells the log when changes begin to fail, and when they are written again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from toolplug.errors import StoreError

QUIET_S = 60.0
"""A file that fails now and then, such as one on a disk that is nearly full, is told of no more often."""

_LOG = logging.getLogger("toolplug.stores")


class Outage:
    """Of one file: one line when its changes begin to fail, one when they do no more."""

    __slots__ = ("_clock", "_path", "_quiet_until", "_told")

    def __init__(self, path: Path, *, clock: Callable[[], float] = monotonic) -> None:
        self._path = path
        self._clock = clock
        self._told = False
        self._quiet_until = -float("inf")

    def failed(self, error: StoreError) -> None:
        """A change could not be written."""
        now = self._clock()
        if not self._told and now >= self._quiet_until:
            self._told = True
            self._quiet_until = now + QUIET_S
            _LOG.error("changes cannot be kept: %s", error)

    def worked(self) -> None:
        """A change was written."""
        if self._told:
            self._told = False
            _LOG.warning("%s can be written again", self._path)
