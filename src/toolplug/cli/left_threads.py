"""Threads that a command's providers made themselves and that do not end: they keep no process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from toolplug.cli.event_loop import GRACE_S, leave_now

_LOG = logging.getLogger("toolplug.cli")


def bound_exit(before: Collection[threading.Thread], code: int) -> None:
    """End the process with that code soon, if it does not end by itself.

    Python joins every thread that is no daemon at its exit, those of a `ThreadPoolExecutor` among them. Idle ones end
    there; one that hangs would keep the process for ever. Where nothing was left that was not there `before`, nothing
    is done.
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
