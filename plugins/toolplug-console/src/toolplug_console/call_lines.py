"""What the host logs of calls: where a tool crashed, and which watched rule would have denied it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

MAX_PLACES = 200
"""Crashes of which the line is kept until their calls are shown."""
MAX_WATCHED = 2_000
"""Calls that a watched rule would have denied, until they are answered: as many run at once in a busy host."""
MAX_CRASHES = 50
"""Crashes that are kept for who has just tried a tool; a trace has up to 64 Ki characters."""


class RecentCrashes(logging.Handler):
    """The newest crashes by the ids of their call and request, which a visitor that tries a tool asks for.

    Of each its line in the log; with `traces` its trace too, in which secrets are masked.
    """

    def __init__(self, *, traces: bool) -> None:
        super().__init__(logging.ERROR)
        self._traces = traces
        self._found: OrderedDict[tuple[str, str], dict[str, str]] = OrderedDict()
        self._logger = logging.getLogger("toolplug.crashes")
        self._logger.addHandler(self)

    def close(self) -> None:
        """Listen no longer."""
        self._logger.removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a crash. That of the tool comes first; a hook that fails after it does not replace it."""
        crash = getattr(record, "crash", None)
        if crash is None or not crash.call_id or (crash.call_id, crash.request_id) in self._found:
            return
        trace = {"trace": crash.trace()} if self._traces else {}
        self._found[crash.call_id, crash.request_id] = {"line": crash.line, **trace}
        if len(self._found) > MAX_CRASHES:
            self._found.popitem(last=False)

    def get(self, call_id: str, request_id: str) -> dict[str, str] | None:
        """Return the crash of a call; None for one that did not crash or is forgotten."""
        return self._found.get((call_id, request_id))


ReadLine = Callable[[logging.LogRecord], tuple[str, str, str] | None]


class CallLines(logging.Handler):
    """What the host logs of the newest `most` calls; `read` returns the ids of the call and its request, and the text.

    It is None for a record that is about no call.
    """

    def __init__(self, logger: str, read: ReadLine, most: int) -> None:
        super().__init__()
        self._logger = logging.getLogger(logger)
        self._read = read
        self._most = most
        self.lines: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._on = False

    def set(self, on: bool) -> None:
        """Listen, or stop that."""
        if on is self._on:
            return
        self._on = on
        if on:
            self._logger.addHandler(self)
        else:
            self._logger.removeHandler(self)
            self.lines.clear()

    def emit(self, record: logging.LogRecord) -> None:
        """Remember what is said of a call."""
        if (found := self._read(record)) is not None:
            self.lines[found[:2]] = found[2]
            if len(self.lines) > self._most:
                self.lines.popitem(last=False)

    def of(self, call_id: str, request_id: str) -> str:
        """Return what was said of a call, empty for nothing."""
        return self.lines.pop((call_id, request_id), "")


def crash_of(record: logging.LogRecord) -> tuple[str, str, str] | None:
    """Return where the tool of a call has crashed: the line of the host, without texts of exceptions."""
    crash = getattr(record, "crash", None)
    return (crash.call_id, crash.request_id, crash.line) if crash is not None and crash.call_id else None


def watched_rule_of(record: logging.LogRecord) -> tuple[str, str, str] | None:
    """Return the rule that would have denied a call, were it not only watched."""
    line = getattr(record, "audit", None)
    if line is None or line["outcome"] != "watched":
        return None
    return line["call_id"], line["request_id"], line["rule"]
