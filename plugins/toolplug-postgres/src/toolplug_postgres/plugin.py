"""The plugin: it opens the stores of `store: postgresql://…`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolplug import hookimpl
from toolplug.stores import StoreOpener
from toolplug_postgres.server import parse_url
from toolplug_postgres.store import PostgresStore


@hookimpl
def stores() -> Mapping[str, StoreOpener]:
    """Return the function for both schemes of PostgreSQL's URLs."""
    return {"postgresql": _open, "postgres": _open}


def _open(url: str, *, folder: Path) -> PostgresStore:
    return PostgresStore(parse_url(url, folder=folder))
