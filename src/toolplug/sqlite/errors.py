"""The meaning of SQLite's errors, and the path of a file. A host on another store uses it too: it needs no package."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from toolplug.errors import StoreError, StoreRefused, StoreUnavailable

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection holds a lock, so that the same statement may soon succeed."""
    return _primary_code(error) in _BUSY


def is_corrupt(error: sqlite3.Error) -> bool:
    """Return whether the error means that the file is damaged."""
    return _primary_code(error) in _CORRUPT


def store_error(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """Return the `StoreError` for an error of SQLite or the file system, naming the file."""
    if isinstance(error, sqlite3.Error) and is_corrupt(error):
        return StoreRefused(f"{path} is corrupt ({error}); move it away or restore a copy")
    if isinstance(error, OSError):
        why = f"{error.strerror}: {error.filename}"
        return StoreUnavailable(f"{path} cannot be opened ({why}); name a place in `store` that can be written to")
    return StoreUnavailable(f"{path}: {error}")


@contextmanager
def told_as_store_errors(path: Path) -> Generator[None]:
    """Turn errors of SQLite and the file system inside the context into `StoreError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise store_error(error, path) from error


def real_path(path: Path) -> Path:
    """Return the path to which symbolic links lead, so that a file has one lock and one log under all of its names."""
    return Path(os.path.realpath(path))


def _primary_code(error: sqlite3.Error) -> int:
    # Errors of the Python module itself ("Cannot operate on a closed database") carry no code.
    # The low byte is the primary code; the others say more of it (`SQLITE_BUSY_SNAPSHOT`).
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
