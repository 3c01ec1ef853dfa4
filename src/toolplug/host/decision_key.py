"""The key with which a person decides on calls over HTTP where no credentials tell a person from a caller."""

from __future__ import annotations

import logging
import os
import re
import stat
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe
from typing import NamedTuple, Self

FILE = "decide.key"
"""In the state folder of the host, readable for its user alone."""

HEADER = "X-Toolplug-Decide"
"""The header of a request that decides."""

_BYTES = 32
# 32 bytes in URL-safe Base64 without padding.
_TEXT = re.compile(r"[A-Za-z0-9_-]{43}")
_LOG = logging.getLogger("toolplug.host")


class DecisionKey(NamedTuple):
    """The key as text, and the file that holds it; None for a host without files, whose key is in memory only."""

    text: str
    file: Path | None

    @classmethod
    def open(cls, folder: Path | None) -> Self:
        """Return the key of the file in this folder, which is made if there is no valid one; blocks.

        The processes of one folder have the same key. If the file cannot be written, it is in memory, with a warning.
        """
        made = token_urlsafe(_BYTES)
        if folder is None:
            return cls(made, None)
        file = folder / FILE
        try:
            return cls(_read(file) or _write(file, made), file)
        except OSError as error:
            _LOG.warning("the decision key is kept in memory only, as %s cannot be written: %s", file, error)
            return cls(made, None)

    @property
    def header(self) -> str:
        """The line to send with a decision."""
        return f"{HEADER}: {self.text}"

    def matches(self, given: bytes | None) -> bool:
        """Return whether this is the key; takes the same time for every wrong one of its length."""
        return given is not None and compare_digest(self.text.encode(), given)


def _read(file: Path) -> str | None:
    """Return the text of the file; None unless it is a regular file that nobody else could have read or written."""
    try:
        # A link could lead to a file of somebody else, and opening a pipe waits for its other end.
        descriptor = os.open(file, os.O_RDONLY | _AS_IT_IS)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        state = os.fstat(descriptor)
        # Asked of the open descriptor: the name could stand for another file by now.
        private = stat.S_ISREG(state.st_mode) and _is_own(state)
        text = opened.read(100).decode("latin-1").strip() if private else ""
    return text if _TEXT.fullmatch(text) else None


_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Neither where a link leads, nor waiting for a pipe. Windows has neither flag, and asks for a right to make links."""


def _is_own(state: os.stat_result) -> bool:
    """Return whether nobody else can read or write the file. Windows says so in lists of its own, not in the mode."""
    return not hasattr(os, "geteuid") or (state.st_uid == os.geteuid() and not state.st_mode & 0o077)


def _write(file: Path, text: str) -> str:
    """Write the file, and return its key: that of another process which was faster. Raises `OSError`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    own = file.with_name(f"{FILE}.{token_urlsafe(6)}")
    try:
        with os.fdopen(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text + "\n")
        for _ in range(2):
            with suppress(FileExistsError):
                # A link, not a rename: of several processes that start at once exactly one succeeds, and no key is
                # replaced that another has printed already.
                os.link(own, file)
                return text
            if (other := _read(file)) is not None:
                return other
            file.unlink(missing_ok=True)
    finally:
        own.unlink(missing_ok=True)
    raise FileExistsError(f"{file} is not a file of this user alone")
