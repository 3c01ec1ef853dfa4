"""The sessions that a configuration's host keeps in its store, also while it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from toolplug.cli.kept_store import kept_store
from toolplug.host.file.config_files import ConfigFiles
from toolplug.sessions.stored import StoredSessions

_INSTEAD = "GET /api/sessions and GET /api/sessions/CODE/events"


@asynccontextmanager
async def kept_sessions(config: ConfigFiles, tenant: str) -> AsyncGenerator[StoredSessions]:
    """The sessions of one tenant. Raises `StoreError`, and `ConfigError` where they are in the host's own memory."""
    async with kept_store(config, "sessions", _INSTEAD) as store:
        yield StoredSessions(store, tenant)
