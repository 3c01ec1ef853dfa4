"""The report of what was removed from a tool, or from a list of them."""

from __future__ import annotations

from toolplug.catalog.cleaning import cleaned, in_one_line

MAX_LINES = 20
MAX_LINE = 300

Path = tuple[str, ...]


class Cuts:
    """Lines `/path: why`, in the order of removal; at most 20, and how many more there were.

    Paths are the server's own texts: they are cleaned and cut.
    """

    def __init__(self, *, at_most: int = MAX_LINES) -> None:
        self._at_most = at_most
        self._lines: list[str] = []
        self._more = 0

    def add(self, path: Path, why: str) -> None:
        """Report one removal."""
        if len(self._lines) == self._at_most:
            self._more += 1
            return
        pointer = "".join(f"/{_shown(part)}" for part in path)
        self._lines.append(f"{pointer or '/'}: {why}"[:MAX_LINE])

    def include(self, other: Cuts) -> None:
        """Report all that another report says."""
        room = self._at_most - len(self._lines)
        self._lines += other._lines[:room]
        self._more += len(other._lines[room:]) + other._more

    def lines(self) -> tuple[str, ...]:
        """The report."""
        return (*self._lines, f"and {self._more} more") if self._more else tuple(self._lines)


def _shown(part: str) -> str:
    readable = in_one_line(cleaned(part[:80])).encode(errors="replace").decode()
    return readable.replace("~", "~0").replace("/", "~1")
