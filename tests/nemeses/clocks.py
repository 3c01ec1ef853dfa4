"""A clock on the wall that can be stepped while its process runs; monotonic clocks go on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STEPPED_S = 2.0
"""After this time a process has read its new clock."""


class Clock:
    """The clock of one process, by libfaketime: an offset in a file, which is read each second."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.step(0)

    def step(self, offset_s: int) -> None:
        """Have the clock differ by so many seconds from that of the machine."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{offset_s:+d}\n")
        written.replace(self._file)

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables of a process that has this clock."""
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
