"""The store in a SQLite file, for one process or for several that share it. `toolplug.stores.open` loads it by name."""

from toolplug.exports import loader, make_lister

HOMES = {
    "SqliteStore": "toolplug.sqlite.store",
    "turn_on_write_ahead": "toolplug.sqlite.write_ahead",
}
__getattr__ = loader("toolplug.sqlite", HOMES)
__dir__ = make_lister("toolplug.sqlite", HOMES)
