"""The store of a configuration's host, also while it runs."""

from __future__ import annotations

import os

from toolplug.errors import ConfigError, Problem
from toolplug.host.file.config_files import ConfigFiles
from toolplug.host.file.configuration import read_settings
from toolplug.stores.open import open_store, store_folder
from toolplug.stores.store import Store


def kept_store(config: ConfigFiles, what: str, instead: str) -> Store:
    """The store, to be entered. Raises `ConfigError` where it is in the host's own memory.

    `what` is looked for there; `instead` says whom to ask where it is in memory.
    """
    url, folder = read_settings(config, os.environ).store, config.file.absolute().parent
    if store_folder(url, folder=folder) is None:
        raise ConfigError(
            [
                Problem(
                    code="store_in_memory",
                    message=f"its {what} live in the memory of the process that serves them, and nobody else can see"
                    " them",
                    file=str(config),
                    path="store",
                    hint=f"ask that process: {instead}; or keep them in a file with"
                    " store: sqlite:///./.toolplug/state.db",
                )
            ]
        )
    return open_store(url, folder=folder)
