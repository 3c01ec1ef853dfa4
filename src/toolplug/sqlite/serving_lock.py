"""A lock that keeps a second process from serving a store that is not shared; it is released when the process ends.

Records that may be lost, such as which process holds a stream, are in the memory of the process then, so that a second
one on the same file would give wrong answers. Several processes that all share the store hold the lock together. Other
processes may read the store.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any

from toolplug.errors import StoreInUse
from toolplug.sqlite.errors import real_path, told_as_store_errors

_POLL_S = 0.1
_LOCKED_BYTE = 1 << 30
"""On Windows nobody can read what is locked: a byte behind those that say who holds the lock."""
_LOG = logging.getLogger("toolplug.stores")


def lock_file(store: Path) -> Path:
    """Return the path of the file that the serving process locks; it holds the process's id and host name."""
    real = real_path(store)
    return real.with_name(f"{real.name}.lock")


@asynccontextmanager
async def serving_lock(store: Path, *, shared: bool, wait_s: float) -> AsyncGenerator[None]:
    """Hold the lock of the store while the context is open, alone or together with others that share the store.

    Raises `StoreInUse` if another process holds it after `wait_s`, `StoreUnavailable` if it cannot be written.
    """
    with told_as_store_errors(store):
        file = open_lock(lock_file(store))
    with file:
        await _lock(file, store, wait_s, shared=shared)
        with told_as_store_errors(store):
            # After the lock is held: before that the file says who holds it.
            file.truncate()
            file.write(f"{0 if shared else os.getpid()} {socket.gethostname()}\n".encode())
        yield


def is_served_shared(store: Path) -> bool:
    """Return whether processes that share the store serve it now."""
    path = lock_file(store)
    if not path.exists():
        return False
    with told_as_store_errors(store), open_lock(path) as file:
        return _FCNTL is not None and not try_lock(file) and try_lock(file, shared=True)


def _module(name: str) -> Any:
    """Return a module that only some systems have; None on the others."""
    try:
        return import_module(name)
    except ImportError:
        return None


_FCNTL = _module("fcntl")
_MSVCRT = _module("msvcrt")
CAN_SHARE: bool = _FCNTL is not None
"""False on Windows, whose locks are of one process only."""


def try_lock(file: FileIO, *, shared: bool = False) -> bool:
    """Take the lock if nobody else prevents it, alone or together with others; return whether it was taken.

    Python has no shared locks on Windows: there each lock is of one process. Where there are no locks, the log says so.
    """
    try:
        if _FCNTL is not None:
            # `flock`, not `lockf`: a POSIX lock goes as soon as any descriptor of the file is closed in the process.
            _FCNTL.flock(file, (_FCNTL.LOCK_SH if shared else _FCNTL.LOCK_EX) | _FCNTL.LOCK_NB)
        elif _MSVCRT is not None:
            file.seek(_LOCKED_BYTE)
            _MSVCRT.locking(file.fileno(), _MSVCRT.LK_NBLCK, 1)
            file.seek(0)
        else:
            _LOG.warning("this system has no locks of files: see that one process at a time serves %s", file.name)
    except (BlockingIOError, PermissionError):  # the latter is Windows' own
        return False
    return True


def open_lock(path: Path) -> FileIO:
    """Open a file to lock it, make it and its folder where they are missing, and close it in each forked child."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = FileIO(str(path), "r+", opener=_open_own)
    # A process that a provider forks shares the lock, and would keep it after the end of this one.
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=partial(_close, weakref.ref(file)))
    return file


def _open_own(path: str, flags: int) -> int:
    """Open a file that only its owner can read, and that programs started by this one do not inherit."""
    return os.open(path, flags | os.O_CREAT, 0o600)


def _close(file: weakref.ref[FileIO]) -> None:
    found = file()
    if found is not None:
        found.close()


async def _lock(file: FileIO, store: Path, wait_s: float, *, shared: bool) -> None:
    loop = asyncio.get_running_loop()
    give_up_at, has_warned = loop.time() + wait_s, False
    while True:
        with told_as_store_errors(store):
            if try_lock(file, shared=shared):
                return
        if loop.time() >= give_up_at:
            raise StoreInUse(store, *_holder(store))
        if not has_warned:
            has_warned = True
            what = StoreInUse(store, *_holder(store)).what
            _LOG.warning("%s; waiting up to %g s for its end (`?shared=true` lets several serve it)", what, wait_s)
        await asyncio.sleep(_POLL_S)


def _holder(store: Path) -> tuple[int, str]:
    """Return the id of the process that holds the lock, 0 if several do, and the name of its machine or container."""
    pid, _, name = lock_file(store).read_text().strip().partition(" ")
    return int(pid or 0), name


def warn_of_workers() -> None:
    """Log a warning if this process is one of several workers of a server: each has its own store in memory."""
    is_gunicorn = os.environ.get("SERVER_SOFTWARE", "").startswith("gunicorn")
    # A child of multiprocessing has imported it; no other process has to.
    multiprocessing = sys.modules.get("multiprocessing")
    is_child = multiprocessing is not None and multiprocessing.parent_process() is not None
    if not (is_child or is_gunicorn) or not _has_siblings():
        return
    _LOG.warning(
        "store: memory:// in one of several workers: a session, an approval or a stored response is known to one of"
        " them only; run one worker, or write store: sqlite:///./state.db?shared=true"
    )


def _has_siblings() -> bool:
    """Return whether the parent has started other processes like this one; True where the system does not say so."""
    try:
        # Children are listed for each thread of the parent, as a worker may be forked by any of them.
        threads = [path.read_text() for path in Path(f"/proc/{os.getppid()}/task").glob("*/children")]
        children = {int(pid) for text in threads for pid in text.split()}
        others = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children - {os.getpid()}]
    except OSError:
        return True
    # multiprocessing has a process of its own next to the workers.
    return not children or any(b"resource_tracker" not in command for command in others)
