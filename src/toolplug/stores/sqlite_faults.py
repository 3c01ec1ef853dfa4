"""What an error of SQLite or of the file system means to who uses the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from toolplug.errors import StoreError, StoreRefused, StoreUnavailable

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds a lock, so that the same statement may work in a moment."""
    return _primary_code(error) in _BUSY


def is_corrupt(error: sqlite3.Error) -> bool:
    """Whether the file's own bytes are wrong."""
    return _primary_code(error) in _CORRUPT


def store_error(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """Return the error of the tree that says the same, naming the file."""
    if isinstance(error, sqlite3.Error) and is_corrupt(error):
        return StoreRefused(f"{path} is corrupt ({error}); move it away or restore a copy")
    if isinstance(error, OSError):
        why = f"{error.strerror}: {error.filename}"
        return StoreUnavailable(f"{path} cannot be opened ({why}); name a place in `store` that can be written to")
    return StoreUnavailable(f"{path}: {error}")


@contextmanager
def told_as_store_errors(path: Path) -> Generator[None]:
    """Raise what SQLite and the file system raise inside as errors of the tree."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise store_error(error, path) from error


def _primary_code(error: sqlite3.Error) -> int:
    # Errors of the Python module itself ("Cannot operate on a closed database") carry no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
