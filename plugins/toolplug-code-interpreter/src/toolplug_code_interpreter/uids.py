"""User ids for containers where toolplug runs as root: each has one that no user and no other container has."""

from __future__ import annotations

import fcntl
import os
import pwd
from pathlib import Path

from toolplug_code_interpreter.interpreter import Unavailable

COUNT = 1000

_LOCKS = Path("/run/toolplug-code-interpreter")
"""A lock ends with the process that holds it, so that several hosts on a machine can share the ids."""


class Uids:
    """Hands out user ids, from `first` on; None where toolplug does not run as root."""

    def __init__(self, first: int) -> None:
        self._range = range(first, first + COUNT)
        self._held: dict[int, int] = {}

    def take(self) -> int | None:
        """Return a user id for one container. Blocks for a moment. Raises `Unavailable` if none is left."""
        if os.geteuid() != 0:
            return None
        try:
            _LOCKS.mkdir(mode=0o700, exist_ok=True)
            for uid in self._range:
                if uid not in self._held and not _is_user(uid) and self._lock(uid):
                    return uid
        except OSError as error:
            raise Unavailable(f"user ids for containers cannot be reserved in {_LOCKS}: {error}") from None
        raise Unavailable(f"no user id from {self._range[0]} to {self._range[-1]} is left (first_uid)")

    def give_back(self, uid: int | None) -> None:
        """Let another container have the user id; all processes with it have ended."""
        if uid is not None:
            os.close(self._held.pop(uid))

    def _lock(self, uid: int) -> bool:
        file = os.open(_LOCKS / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._held[uid] = file
        return True


def _is_user(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
