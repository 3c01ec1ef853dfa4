"""Ends the process, even if a thread or task that a provider started does not end."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Collection

from toolplug.cli.standard_output import answers

GRACE_S = 1.0
"""Seconds for cancelled tasks to end, and then for threads of `to_thread`."""

_LOG = logging.getLogger("toolplug.cli")


def leave_now(code: int) -> None:
    """Flush the output, and end the process without waiting for anything else."""
    answers().flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def bound_exit(before: Collection[threading.Thread], code: int) -> None:
    """End the process with that code after `GRACE_S` seconds, unless it ends by itself before.

    At exit Python joins all threads that are not daemons, those of a `ThreadPoolExecutor` included, so one that hangs
    would keep the process alive. Threads that existed `before` do not count.
    """
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    if not left:
        return
    guard = threading.Timer(GRACE_S, _give_up, (left, code))
    guard.daemon = True
    try:
        guard.start()
    except RuntimeError:  # the process can have no more threads
        _give_up(left, code)


def _give_up(left: Collection[threading.Thread], code: int) -> None:
    names = ", ".join(thread.name for thread in left if thread.is_alive())
    _LOG.warning("threads that a provider left do not end (%s); leaving them", names)
    leave_now(code)
