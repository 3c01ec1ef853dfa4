"""Where providers keep things: a state directory for each, and its own part of the store for each tenant."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self
from urllib.parse import quote

from toolplug.catalog.call import Principal
from toolplug.providers.entry import ProviderEntry
from toolplug.providers.site import ProviderStore, Services, Site, no_services
from toolplug.stores.store import Record, Store

_HERE = Path()

SiteFor = Callable[[ProviderEntry], Site]


class TenantRecords:
    """The records of one provider for one tenant; a key of it can address no other's."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    async def read(self, key: str) -> Record | None:
        """Return the live record, or `None`."""
        return await self._store.read(self._prefix + key)

    async def commit(
        self, key: str, value: bytes | None, *, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        """Write the record (`None` deletes it) and return its new revision."""
        return await self._store.commit(self._prefix + key, value, expected=expected, ttl_s=ttl_s)

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the keys of live records that begin with `prefix` and come after `after`, in code-point order."""
        start = self._prefix + after if after else ""
        found = await self._store.keys(self._prefix + prefix, after=start, limit=limit)
        return [key[len(self._prefix) :] for key in found]


def stored_sites(
    store: Callable[[], Store],
    root: Callable[[], Path],
    config_dir: Path = _HERE,
    service: Services = no_services,
) -> SiteFor:
    """Sites in a store and below a directory; both are asked for only when a provider wants something of them."""

    def site_for(entry: ProviderEntry) -> Site:
        state_dir = root() / "providers" / entry.key
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)

        def records(principal: Principal) -> ProviderStore:
            return TenantRecords(store(), f"provider/{entry.key}/{quote(principal.tenant, safe='')}/")

        return Site(key=entry.key, state_dir=state_dir, store=records, config_dir=config_dir, service=service)

    return site_for


class TemporaryRoot:
    """The state of a registry that nobody gave a directory: made when first asked for, removed at the end."""

    def __init__(self) -> None:
        self._made: tempfile.TemporaryDirectory[str] | None = None

    def __call__(self) -> Path:
        """The directory."""
        if self._made is None:
            self._made = tempfile.TemporaryDirectory(prefix="toolplug-", ignore_cleanup_errors=True)
        return Path(self._made.name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.cleanup()
