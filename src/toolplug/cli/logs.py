"""The log lines of commands, on stderr: for people, or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

AUDIT = "toolplug.audit"
QUIETED = ("client", "httpcore2", "httpx2", "mcp", "openai", "uvicorn", "watchfiles")
"""Libraries whose own reports only matter when something is wrong."""


class HumanLines(logging.Formatter):
    """`12:00:01 WARNING toolplug.providers: …`, for a terminal."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")


class JsonLines(logging.Formatter):
    """One JSON object a line: `ts`, `level`, `logger`, `message`, and `error` where there is a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds."""
        line = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


@contextmanager
def without_findings() -> Generator[None]:
    """Leave out the log lines that `doctor` has as findings."""
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(_is_no_finding)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_is_no_finding)


def _is_no_finding(record: logging.LogRecord) -> bool:
    return not hasattr(record, "finding")


def log_warnings() -> None:
    """For commands that answer and end: warnings and worse, for people."""
    logging.basicConfig(level=logging.WARNING, handlers=[_handler(HumanLines())], force=True)


def log_service(*, terminal: bool) -> None:
    """For `serve`: everything from INFO on, for people on a terminal, else as JSON; audit lines as they are."""
    logging.basicConfig(level=logging.INFO, handlers=[_handler(HumanLines() if terminal else JsonLines())], force=True)
    for name in QUIETED:
        logging.getLogger(name).setLevel(logging.WARNING)
    audit = logging.getLogger(AUDIT)
    audit.handlers = [_handler(logging.Formatter("%(message)s"))]
    audit.propagate = False


def _handler(formatter: logging.Formatter) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    return handler
