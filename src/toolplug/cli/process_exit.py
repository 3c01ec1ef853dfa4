"""The end of the process, even where a thread or a task that a provider started does not end."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Collection

GRACE_S = 1.0
"""How long tasks that are left may take to end once they are cancelled; then how long threads of `to_thread` may."""

_LOG = logging.getLogger("toolplug.cli")


def leave_now(code: int) -> None:
    """End the process without waiting for anything but what has been written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def bound_exit(before: Collection[threading.Thread], code: int) -> None:
    """End the process with that code after `GRACE_S`, if it does not end by itself.

    At its exit Python joins every thread that is not a daemon, those of a `ThreadPoolExecutor` included: an idle one
    ends, one that hangs would keep the process alive forever. Does nothing where every such thread was there `before`.
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
