"""Small files with secrets of the host, which nobody but its user can read, made once by whichever process is first."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes, token_urlsafe

_BYTES = 32
# 32 bytes in URL-safe Base64 without padding.
KEY_TEXT = re.compile(r"[A-Za-z0-9_-]{43}")
_MOST_BYTES = 4096
"""More than any of these files has: somebody else's file is not read whole."""


def new_key() -> str:
    """Return 32 random bytes as URL-safe Base64, which is 43 characters."""
    return token_urlsafe(_BYTES)


def read_private(file: Path, valid: re.Pattern[str]) -> str | None:
    """Return the text of the file; None unless it is valid, in a regular file that nobody else could read or write."""
    try:
        # A link could lead to a file of somebody else, and opening a pipe waits for its other end.
        descriptor = os.open(file, os.O_RDONLY | _AS_IT_IS)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        state = os.fstat(descriptor)
        # Asked of the open descriptor: the name could stand for another file by now.
        private = stat.S_ISREG(state.st_mode) and _is_own(state)
        text = opened.read(_MOST_BYTES).decode("latin-1").strip() if private else ""
    return text if valid.fullmatch(text) else None


_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Neither where a link leads, nor waiting for a pipe. Windows has neither flag, and asks for a right to make links."""


def _is_own(state: os.stat_result) -> bool:
    """Return whether nobody else can read or write the file. Windows says so in lists of its own, not in the mode."""
    return not hasattr(os, "geteuid") or (state.st_uid == os.geteuid() and not state.st_mode & 0o077)


def make_private(file: Path, text: str, valid: re.Pattern[str]) -> str:
    """Write the file, and return its text: that of another process which was faster. Raises `OSError`."""
    own = _write_beside(file, text)
    try:
        for _ in range(2):
            with suppress(FileExistsError):
                # A link, not a rename: of several processes that start at once exactly one succeeds, and no text is
                # replaced that another has used already.
                os.link(own, file)
                return text
            if (other := read_private(file, valid)) is not None:
                return other
            file.unlink(missing_ok=True)
    finally:
        own.unlink(missing_ok=True)
    raise FileExistsError(f"{file} is not a file of this user alone")


def replace_private(file: Path, text: str) -> None:
    """Write the file in place of what it is; a reader finds the one or the other. Raises `OSError`."""
    own = _write_beside(file, text)
    try:
        own.replace(file)
    finally:
        own.unlink(missing_ok=True)


def _write_beside(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    own = file.with_name(f"{file.name}.{token_bytes(6).hex()}")
    with os.fdopen(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(f"{text}\n".encode())
    return own
