"""Crash files for `toolplug why`, and the logging of crashes in tasks and threads that providers leave running.

`toolplug call`, `serve --reload` on a terminal and `--debug` keep the last 100 crashes in `.toolplug/crashes` next to
the configuration, readable by their owner only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from traceback import walk_tb
from typing import Any

from toolplug.config.units import timestamp
from toolplug.crashes import CodeOwner, Crash, log_crash
from toolplug.host.host import Host

FOLDER = Path(".toolplug", "crashes")
KEPT = 100


class CrashFiles(logging.Handler):
    """A log handler that writes each crash to a file of its own, and removes all but the last 100 files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._written = count()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the crash of the record, if it has one."""
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
        file = self._folder / f"{created:.6f}-{os.getpid()}-{next(self._written):06d}.json"
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            json.dump(fields, stream, ensure_ascii=False)
        for old in sorted(self._folder.glob("*.json"))[:-KEPT]:
            old.unlink(missing_ok=True)


def kept_crash(folder: Path, wanted: str) -> Mapping[str, str] | None:
    """Return the newest crash in the folder with this call id or request id, or None.

    Of the crashes of one call it is that of the tool: a hook that fails after it is not what its author looks for.
    """
    newest: tuple[str, Mapping[str, str]] | None = None
    for file in sorted(folder.glob("*.json"), reverse=True):
        with suppress(OSError, ValueError):  # another process has just removed it, or is writing it
            crash = json.loads(file.read_text("utf-8"))
            # Ids of calls are those of callers: two processes may have the same ones.
            process = file.name.split("-")[1]
            if wanted not in (crash["call_id"], crash["request_id"]):
                continue
            newest = newest or (process, crash)
            of_one_call = process == newest[0] and all(
                crash[key] == newest[1][key] for key in ("call_id", "request_id")
            )
            if of_one_call and not crash["line"].startswith("hook "):
                return crash
    return newest[1] if newest else None


@contextmanager
def left_running(host: Host) -> Generator[None]:
    """Log crashes of background tasks, callbacks and threads, with the provider that owns the code."""
    loop = asyncio.get_running_loop()
    before, thread_before = loop.get_exception_handler(), threading.excepthook

    def task_failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, BaseException):
            # Asyncio also reports what is no exception, such as a task that was destroyed while it waited.
            loop.default_exception_handler(context)
            return
        task = context.get("task") or context.get("future")
        what = f"background task {task.get_name()!r}" if isinstance(task, asyncio.Task) else "a callback"
        log_crash(what, error, _owner(host, error))

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        # As Python's own hook, which takes `SystemExit` for the usual end of a thread.
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
    """Return the owner of the innermost frame that is a provider's."""
    owners = code_owners(host)
    names = [str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame, _ in walk_tb(error.__traceback__)]
    return next((owners[name] for name in reversed(names) if name in owners), None)


def code_owners(host: Host) -> Mapping[str, CodeOwner]:
    """Return the owners of code by the package of each running provider."""
    running = host.registry.running().values() if host.entered else ()
    return {generation.entry.package: generation.entry.owner for generation in running}


def code_keys(host: Host) -> Mapping[str, str]:
    """Return the key of each running provider by its package."""
    return {package: owner.key for package, owner in code_owners(host).items()}
