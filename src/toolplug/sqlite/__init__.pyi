"""The store in a SQLite file, for one process or for several that share it. `toolplug.stores.open` loads it by name."""

from toolplug.sqlite.store import SqliteStore
from toolplug.sqlite.write_ahead import turn_on_write_ahead

__all__ = [
    "SqliteStore",
    "turn_on_write_ahead",
]
