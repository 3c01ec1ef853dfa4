"""The catalog that a host listed last, in the store: a restart does not lose the tools of a host that is down."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel

from toolplug import Principal, ProviderStore, StoreError, ToolsetLink
from toolplug_remote.catalog_reader import in_turns, read_catalog

Tool: TypeAlias = Mapping[str, Any]
"""A tool as the other host lists it."""

OWN = Principal("toolplug-remote")
"""Whose records these are: the host's own."""
KEPT_S = 30 * 86_400.0
"""How long the catalog of a host is kept that was not seen again."""


class Catalog(BaseModel):
    """The id of a host, its tools, and the hosts on the way to them."""

    host: str
    tools: Sequence[Tool]
    via: Mapping[str, Sequence[str]]


class KeptCatalog:
    """The record of one toolset. Another address or key is another record."""

    def __init__(self, store: ProviderStore, link: ToolsetLink, log: logging.Logger) -> None:
        secret = "" if link.api_key is None else link.api_key.get_secret_value()
        self._key = f"catalog/{link.toolset}/{hashlib.sha256(f'{link.address} {secret}'.encode()).hexdigest()}"
        self._toolset = link.toolset
        self._store = store
        self._log = log

    async def read(self) -> Catalog | None:
        """Return the catalog; None if there is none, or the store cannot give it."""
        try:
            record = await self._store.read(self._key)
            return None if record is None else Catalog.model_validate(await read_catalog(record.value.decode()))
        except (StoreError, ValueError) as error:
            self._log.warning("toolset %r: its last catalog cannot be read: %s", self._toolset, type(error).__name__)
            return None

    async def write(self, host: str, tools: Iterable[Tool], via: Mapping[str, Sequence[str]]) -> None:
        """Keep the catalog; if the store cannot, a restart has none or an older one."""
        texts = [json.dumps(tool, ensure_ascii=False, separators=(",", ":")) async for tool in in_turns(tools)]
        value = f'{{"host":{json.dumps(host)},"via":{json.dumps(via)},"tools":[{",".join(texts)}]}}'
        try:
            await self._store.commit(self._key, value.encode(), ttl_s=KEPT_S)
        except StoreError as error:
            self._log.warning("toolset %r: its catalog cannot be kept: %s", self._toolset, error)
