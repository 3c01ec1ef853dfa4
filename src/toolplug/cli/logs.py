"""The log lines of commands, on stderr: for people, or as JSON; how many of them, and with which traces."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from toolplug.cli.crashes import FOLDER, CrashFiles
from toolplug.cli.options import config_folder
from toolplug.crashes import Crash

AUDIT = "toolplug.audit"
CRASHES = "toolplug.crashes"
QUIETED = ("aiosqlite", "client", "httpcore2", "httpx2", "mcp", "openai", "python_multipart", "uvicorn", "watchfiles")
"""Libraries whose own reports only matter when something is wrong; at DEBUG some show what they send or store."""
Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What the command line says of the log. `level` is the name of one, empty where it names none."""

    verbosity: int = 0
    level: str = ""
    debug: bool = False

    def level_from(self, usual: int) -> int:
        """The level to log from, where the command's own is the usual one."""
        if self.level:
            return logging.getLevelNamesMapping()[self.level.upper()]
        return logging.DEBUG if self.debug else max(usual - 10 * self.verbosity, logging.DEBUG)


_NOTHING_SAID = LogOptions()
_options: ContextVar[LogOptions] = ContextVar("toolplug_log_options", default=_NOTHING_SAID)


def _more(count: int) -> None:
    _options.set(replace(_options.get(), verbosity=count))


def _from_level(level: Level | None) -> None:
    _options.set(replace(_options.get(), level=level or ""))


def _with_traces(debug: bool) -> None:
    _options.set(replace(_options.get(), debug=debug))


def _every_command(
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            callback=_more,
            expose_value=False,
            show_default=False,
            help="Log more; -vv logs still more.",
        ),
    ] = 0,
    log_level: Annotated[
        Level | None,
        typer.Option("--log-level", callback=_from_level, expose_value=False, help="Log from this level on."),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            callback=_with_traces,
            expose_value=False,
            help="Log everything, print the whole trace of a crash, and keep it for `toolplug why`.",
        ),
    ] = False,
) -> None:
    """The options of every command."""


def add_log_options(command: object) -> None:
    """Give a command, or every command of a group, the options `-v`, `--log-level` and `--debug`."""
    if isinstance(command, TyperGroup):
        for inner in command.commands.values():
            add_log_options(inner)
    elif isinstance(command, TyperCommand):
        donor = typer.Typer(add_completion=False)
        donor.command()(_every_command)
        params = typer.main.get_command(donor).params
        command.params.extend(param for param in params if param.name != "help")


def reset_log_options() -> None:
    """Forget what an earlier command line of this process said."""
    _options.set(_NOTHING_SAID)


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
    traces = traces or _options.get().debug
    _log(HumanLines(traces=traces), logging.WARNING)
    _keep_crashes(config, traces)


def log_service(config: Path | None, *, terminal: bool, traces: bool) -> None:
    """For `serve`: everything from INFO on, for people on a terminal, else as JSON; audit lines as they are."""
    traces = traces or _options.get().debug
    _log(HumanLines(traces=traces) if terminal else JsonLines(traces=traces), logging.INFO)
    _keep_crashes(config, traces)
    audit = logging.getLogger(AUDIT)
    audit.handlers = [_handler(logging.Formatter("%(message)s"))]
    audit.propagate = False


def _log(formatter: logging.Formatter, usual: int) -> None:
    level = _options.get().level_from(usual)
    logging.basicConfig(level=level, handlers=[_handler(formatter)], force=True)
    for name in QUIETED:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _keep_crashes(config: Path | None, kept: bool) -> None:
    logging.getLogger(CRASHES).handlers = [CrashFiles(config_folder(config) / FOLDER)] if kept else []


def _handler(formatter: logging.Formatter) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    return handler
