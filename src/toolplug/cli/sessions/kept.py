"""The sessions that a configuration's host keeps in its store, also while it runs."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from toolplug.errors import ConfigError, Problem
from toolplug.host.configuration import read_settings
from toolplug.sessions.stored import StoredSessions
from toolplug.stores.open import open_store, store_folder
from toolplug.stores.store import Store


@asynccontextmanager
async def kept_sessions(config: Path, tenant: str) -> AsyncGenerator[StoredSessions]:
    """The sessions of one tenant. Raises `StoreError`, and `ConfigError` where they are in the host's own memory."""
    async with _store(config) as store:
        yield StoredSessions(store, tenant)


def _store(config: Path) -> Store:
    url, folder = read_settings(config, os.environ).store, config.absolute().parent
    if store_folder(url, folder=folder) is None:
        raise ConfigError([_in_memory(config)])
    return open_store(url, folder=folder)


def _in_memory(config: Path) -> Problem:
    return Problem(
        code="store_in_memory",
        message="its sessions live in the memory of the process that serves them, and nobody else can see them",
        file=str(config),
        path="store",
        hint="ask that process: GET /api/sessions and GET /api/sessions/CODE/events; or keep them in a file with"
        " store: sqlite:///./.toolplug/state.db",
    )
