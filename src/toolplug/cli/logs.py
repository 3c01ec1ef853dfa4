"""The log of commands on stderr: as lines for people or as JSON, from which level, and with which traces."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from toolplug.catalog.text import clean_text
from toolplug.cli.crashes import FOLDER, CrashFiles
from toolplug.cli.log_options import log_options
from toolplug.cli.options import config_folder
from toolplug.cli.output import paint
from toolplug.config.units import timestamp
from toolplug.crashes import Crash

AUDIT = "toolplug.audit"
CRASHES = "toolplug.crashes"
# `client` is the logger of the MCP SDK's client session.
QUIETED = (
    "aiosqlite",
    "client",
    "httpcore2",
    "httpx2",
    "mcp",
    "openai",
    "python_multipart",
    "uvicorn",
    "watchfiles",
    "websockets",
)
"""Libraries logged from WARNING on: at DEBUG some log what they send or store."""

LEVEL_COLOURS = MappingProxyType({logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"})
"""Colours of levels at a terminal."""


class HumanLines(logging.Formatter):
    """Formats as `2026-11-24T14:30:00.250Z WARNING toolplug.providers: …`, with `traces` and the trace of a crash."""

    def __init__(self, *, traces: bool = False, worker: int | None = None) -> None:
        who = "" if worker is None else f"worker {worker}: "
        super().__init__(f"%(asctime)s %(levelname)s %(name)s: {who}%(message)s")
        self._traces = traces

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  logging's name
        """Return the time as in audit lines."""
        return timestamp(record.created)

    def format(self, record: logging.LogRecord) -> str:
        """Format the line, and the trace if there is one."""
        trace = _trace(record) if self._traces else ""
        line = super().format(record)
        colour = LEVEL_COLOURS.get(record.levelno)
        if colour is not None:
            line = line.replace(record.levelname, _paint(record.levelname, colour), 1)
        return f"{line}\n{trace}" if trace else line


class JsonLines(logging.Formatter):
    """Formats as one JSON object per line: `ts`, `level`, `logger`, `message`, and `error` if there is a traceback.

    With `worker`, also that number of the process.
    """

    def __init__(self, *, traces: bool = False, worker: int | None = None) -> None:
        super().__init__()
        self._traces = traces
        self._who = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """Format one line; JSON escapes line breaks in the message."""
        line = {
            "ts": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._who,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        elif self._traces and (trace := _trace(record)):
            line["error"] = trace
        return json.dumps(line, ensure_ascii=False)


class AuditLines(HumanLines):
    """Formats a line of the audit log for people: event, outcome and its reason, target, and who caused it."""

    def format(self, record: logging.LogRecord) -> str:
        line = json.loads(record.getMessage())
        event, outcome, target = line["event"], line["outcome"], line["target"]
        about = f" {target!r}" if target else ""
        why = f" ({' '.join(clean_text(line['reason']).split())})" if "reason" in line else ""
        text = f"{event}{about} {_paint(outcome, 'yellow')}{why}, by {line['principal']!r} of {line['tenant']!r}"
        return super().format(logging.makeLogRecord({**vars(record), "msg": text, "args": ()}))


def _paint(text: str, colour: str) -> str:
    """Return the text in a colour where the log is read at a terminal, and not in a file."""
    return paint(text, colour) if sys.stderr.isatty() else text


def _trace(record: logging.LogRecord) -> str:
    crash = getattr(record, "crash", None)
    return crash.trace() if isinstance(crash, Crash) else ""


@contextmanager
def without_findings() -> Generator[None]:
    """Suppress the log lines that `doctor` reports as findings."""
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
    """Log warnings and errors, as lines for people.

    With `traces` or `--debug`, crashes are logged with their trace and kept next to the configuration.
    """
    traces = traces or log_options().debug
    _log(HumanLines(traces=traces), logging.WARNING)
    _keep_crashes(config, traces)


def log_service(config: Path | None, *, people: bool, traces: bool, worker: int | None = None) -> None:
    """Log from INFO on, for `serve`: lines for `people`, else JSON, as audit lines are already.

    `worker`: the number of this process in the lines, if it is one of several.
    """
    traces = traces or log_options().debug
    formatter = HumanLines if people else JsonLines
    _log(formatter(traces=traces, worker=worker), logging.INFO)
    _keep_crashes(config, traces)
    audit = logging.getLogger(AUDIT)
    audit.handlers = [_handler(AuditLines(worker=worker) if people else logging.Formatter("%(message)s"))]
    # Else the handler of the root would write each line a second time, as a line of the log.
    audit.propagate = False


def _log(formatter: logging.Formatter, usual: int) -> None:
    level = log_options().level_from(usual)
    # `force`: an earlier command line of this process may have set handlers, as in tests.
    logging.basicConfig(level=level, handlers=[_handler(formatter)], force=True)
    for name in QUIETED:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _keep_crashes(config: Path | None, kept: bool) -> None:
    logging.getLogger(CRASHES).handlers = [CrashFiles(config_folder(config) / FOLDER)] if kept else []


def _handler(formatter: logging.Formatter) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    return handler
