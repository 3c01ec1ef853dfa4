"""A server whose tools are to be known: everything that discovery needs of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple


class ServerName(NamedTuple):
    """Which server. `tenant` is None for one of the operator's file, which every tenant has."""

    id: str
    tenant: str | None = None


class ListingFailed(Exception):
    """A server could not be asked, or gave no list of tools; the text is for the operator and holds no secret."""


class KnownServer(NamedTuple):
    """One server as it is configured now.

    `config_hash` is equal for configurations that start the same server. `listing()` starts or reaches it, gives the
    tools of every page as it sent them (JSON values, which may be anything), and leaves nothing behind; it raises
    `ListingFailed`. `timeout_s` bounds it from outside. With `pin` a tool whose definition has changed is quarantined
    until somebody accepts it.
    """

    name: ServerName
    config_hash: str
    listing: Callable[[], Awaitable[Sequence[object]]]
    timeout_s: float = 30.0
    pin: bool = False
