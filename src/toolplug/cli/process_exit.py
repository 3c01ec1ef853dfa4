"""The end of the process, even if a thread, a task or a signal of the wrong moment is in the way."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection
from types import FrameType

from toolplug.cli.standard_output import answers

GRACE_S = 1.0
"""Seconds for cancelled tasks to end, and then for threads of `to_thread`."""

_LOG = logging.getLogger("toolplug.cli")


class LastStep:
    """Ends the process after all functions of `atexit`, with the exit code `code`; without one Python ends it.

    Python itself would collect all garbage once more: that is no use to a process that has closed everything, takes
    seconds after a long service, and runs finalizers of libraries that no longer expect it.

    Make it before anything else is imported, as `atexit` calls the first function last.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.code is None:
            return
        try:
            leave_now(self.code)
        except OSError:  # the reader of the output has gone: Python reports it
            return


def leave_now(code: int) -> None:
    """Flush the output, and end the process without waiting for anything else."""
    answers().flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end_at_signals() -> None:
    """Let SIGTERM and SIGINT end the process with exit code 0, and ignore SIGHUP, which asks for a reload.

    For a server that is still being imported and has nothing to close; it replaces these handlers when it starts.
    """
    if hasattr(signal, "SIGHUP"):  # not on Windows
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


def bound_exit(before: Collection[threading.Thread], code: int) -> None:
    """End the process with that code after `GRACE_S` seconds, unless it ends by itself before.

    At exit Python joins all threads that are not daemons, those of a `ThreadPoolExecutor` included, so one that hangs
    would keep the process alive. Threads that existed `before` do not count.
    """
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    if not left:
        return
    guard = threading.Timer(GRACE_S, _give_up, (left, code))
    # Python would wait for the guard as well.
    guard.daemon = True
    try:
        guard.start()
    except RuntimeError:  # the process can have no more threads
        _give_up(left, code)


def _give_up(left: Collection[threading.Thread], code: int) -> None:
    names = ", ".join(thread.name for thread in left if thread.is_alive())
    _LOG.warning("threads that a provider left do not end (%s); leaving them", names)
    leave_now(code)
