"""The log lines of commands, on stderr: for people, or as JSON; how many of them, and with which traces."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from toolplug.cli.crashes import FOLDER, CrashFiles
from toolplug.cli.log_options import log_options
from toolplug.cli.options import config_folder
from toolplug.crashes import Crash

AUDIT = "toolplug.audit"
CRASHES = "toolplug.crashes"
QUIETED = ("aiosqlite", "client", "httpcore2", "httpx2", "mcp", "openai", "python_multipart", "uvicorn", "watchfiles")
"""Libraries whose own reports only matter when something is wrong; at DEBUG some show what they send or store."""


class HumanLines(logging.Formatter):
    """`12:00:01 WARNING toolplug.providers: …`, for a terminal; with the trace of a crash below it if `traces`."""

    def __init__(self, *, traces: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        """The line, and what belongs to it."""
        trace = _trace(record) if self._traces else ""
        return f"{super().format(record)}\n{trace}" if trace else super().format(record)


class JsonLines(logging.Formatter):
    """One JSON object a line: `ts`, `level`, `logger`, `message`, and `error` where there is a traceback."""

    def __init__(self, *, traces: bool = False) -> None:
        super().__init__()
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds."""
        line = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = _trace(record) if self._traces else ""
        if record.exc_info:
            trace = self.formatException(record.exc_info)
        if trace:
            line["error"] = trace
        return json.dumps(line, ensure_ascii=False)


def _trace(record: logging.LogRecord) -> str:
    crash = getattr(record, "crash", None)
    return crash.trace() if isinstance(crash, Crash) else ""


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


def log_warnings(config: Path | None = None, *, traces: bool = False) -> None:
    """For commands that answer and end: warnings and worse, for people.

    With `traces`, and with `--debug`, crashes have their whole trace, and are kept next to the configuration.
    """
    traces = traces or log_options().debug
    _log(HumanLines(traces=traces), logging.WARNING)
    _keep_crashes(config, traces)


def log_service(config: Path | None, *, terminal: bool, traces: bool) -> None:
    """For `serve`: everything from INFO on, for people on a terminal, else as JSON; audit lines as they are."""
    traces = traces or log_options().debug
    _log(HumanLines(traces=traces) if terminal else JsonLines(traces=traces), logging.INFO)
    _keep_crashes(config, traces)
    audit = logging.getLogger(AUDIT)
    audit.handlers = [_handler(logging.Formatter("%(message)s"))]
    audit.propagate = False


def _log(formatter: logging.Formatter, usual: int) -> None:
    level = log_options().level_from(usual)
    logging.basicConfig(level=level, handlers=[_handler(formatter)], force=True)
    for name in QUIETED:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _keep_crashes(config: Path | None, kept: bool) -> None:
    logging.getLogger(CRASHES).handlers = [CrashFiles(config_folder(config) / FOLDER)] if kept else []


def _handler(formatter: logging.Formatter) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    return handler
