"""The store in a SQLite file, for one process or for several that share it. `toolplug.stores.open` loads it by name."""
