"""The crashes that a developer's own commands keep, for `toolplug why`, and those of tasks and threads left running.

Only `toolplug call`, `serve --reload` on a terminal and `--debug` keep any: the last 100, in `.toolplug/crashes` next
to the configuration, readable by their owner alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import walk_tb
from typing import Any

from toolplug.crashes import CodeOwner, Crash, log_crash
from toolplug.execution.accounting import timestamp
from toolplug.host.host import Host

FOLDER = Path(".toolplug", "crashes")
KEPT = 100


class CrashFiles(logging.Handler):
    """Writes each crash that is logged to a file of its own, and removes the oldest beyond the last 100."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the crash of this record; the log has it in any case."""
        crash = getattr(record, "crash", None)
        if isinstance(crash, Crash):
            try:
                self._write(crash, record.created)
            except OSError:
                self.handleError(record)

    def _write(self, crash: Crash, created: float) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fields = {
            "ts": timestamp(created),
            "call_id": crash.call_id,
            "request_id": crash.request_id,
            "line": crash.line,
            "trace": crash.trace(),
        }
        file = self._folder / f"{time.time_ns()}-{os.getpid()}.json"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            json.dump(fields, stream, ensure_ascii=False)
        for old in sorted(self._folder.glob("*.json"))[:-KEPT]:
            old.unlink(missing_ok=True)


def kept_crash(folder: Path, wanted: str) -> Mapping[str, str] | None:
    """The newest crash that was kept in the folder for this call id or request id."""
    for file in sorted(folder.glob("*.json"), reverse=True):
        with suppress(OSError, ValueError):  # another process has just removed it, or still writes it
            crash = json.loads(file.read_text("utf-8"))
            if wanted in (crash["call_id"], crash["request_id"]):
                return crash
    return None


@contextmanager
def left_running(host: Host) -> Generator[None]:
    """Log crashes of tasks, callbacks and threads that nobody waits for, with the provider whose code it is."""
    loop = asyncio.get_running_loop()
    before, thread_before = loop.get_exception_handler(), threading.excepthook

    def task_failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, BaseException):
            loop.default_exception_handler(context)
            return
        task = context.get("task") or context.get("future")
        what = f"background task {task.get_name()!r}" if isinstance(task, asyncio.Task) else "a callback"
        log_crash(what, error, _owner(host, error))

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and args.exc_type is not SystemExit:
            name = args.thread.name if args.thread is not None else ""
            log_crash(f"thread {name!r}", args.exc_value, _owner(host, args.exc_value))

    loop.set_exception_handler(task_failed)
    threading.excepthook = thread_failed
    try:
        yield
    finally:
        threading.excepthook = thread_before
        loop.set_exception_handler(before)


def _owner(host: Host, error: BaseException) -> CodeOwner | None:
    """The provider of the innermost frame that belongs to one."""
    owners = code_owners(host)
    names = [str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame, _ in walk_tb(error.__traceback__)]
    return next((owners[name] for name in reversed(names) if name in owners), None)


def code_owners(host: Host) -> Mapping[str, CodeOwner]:
    """The owner of each package whose provider runs."""
    running = host.registry.running().values() if host.entered else ()
    return {generation.entry.package: generation.entry.owner for generation in running}


def code_keys(host: Host) -> Mapping[str, str]:
    """The provider of each package, for the watchdog."""
    return {package: owner.key for package, owner in code_owners(host).items()}
