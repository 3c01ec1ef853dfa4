"""Stored records of tenants' allowlists and toolsets, and the checks of requests that change them.

`allowlist/<tenant and agent>`  the toolsets of an agent
`toolset/<tenant and id>`       a toolset
`agent-changes`                 no value, but a log: the keys of records that have changed, for every process
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection
from typing import Literal, NamedTuple, TypeVar

from toolplug.config.nearest import name_hint
from toolplug.errors import ApiError
from toolplug.host.file.settings import MCP, PROVIDER, Part, Scope, split_source
from toolplug.host.file.toolset_entries import AGENT_RULE, is_agent_id
from toolplug.stores.store import Store
from toolplug.toolsets.registered import Allowlist


class Binding(NamedTuple):
    """A toolset as it is asked for over HTTP; `source` as in the configuration: `provider:KEY` or `mcp:ID`."""

    prefix: str
    source: str
    scope: Scope = "shared"


def check_agent(agent: str) -> None:
    """Raise `ApiError` for what no agent can be called."""
    if not is_agent_id(agent):
        raise ApiError("invalid_agent", f"{agent!r} is no agent id; {AGENT_RULE} are allowed", param="id")


def check_toolsets(toolsets: Collection[str], known: Collection[str]) -> None:
    """Raise `ApiError` for a toolset that is not known, with the nearest."""
    for index, name in enumerate(toolsets):
        if name not in known:
            hint = name_hint(name, known)
            message = f"there is no toolset {name!r}" + (f" ({hint})" if hint else "")
            raise ApiError("unknown_toolset", message, param=f"toolsets[{index}]")


def check_source(binding: Binding, providers: Collection[str], servers: Collection[str]) -> None:
    """Raise `ApiError` for a source that is none of these, or a scope that it cannot have."""
    kind, key = split_source(binding.source) or ("", binding.source)
    if kind == MCP:
        if key not in servers:
            raise ApiError("unknown_server", no_such("MCP server", key, servers), param="from")
        return
    if kind != PROVIDER:
        message = f"from should be {PROVIDER} and the key of a provider or {MCP} and the id of an MCP server"
        raise ApiError("unknown_provider", message, param="from")
    if key not in providers:
        raise ApiError("unknown_provider", no_such("provider", key, providers), param="from")
    if binding.scope != "shared":
        message = "scope must be shared: a provider runs once, for every session"
        raise ApiError("provider_is_shared", message, param="scope")


def no_such(what: str, name: str, known: Collection[str]) -> str:
    """That there is none, with the nearest that there is."""
    hint = name_hint(name, known)
    return f"there is no {what} {name!r}" + (f" ({hint})" if hint else "")


CHANGES = "agent-changes"

_ALLOWLIST = "allowlist/"
_BINDING = "toolset/"
_PAGE = 1000

Way = Literal["http", "cli"]
_WAYS: dict[Way, str] = {"http": "PUT /api/agents/{}/toolsets by {}", "cli": "toolplug agents ({}) by {}"}


class AllowlistRecord(Part):
    """The toolsets of a tenant's agent, and who put them there in which way."""

    tenant: str
    agent: str
    toolsets: list[str]
    by: str
    way: Way = "http"

    @property
    def allowlist(self) -> Allowlist:
        """The same as executors go by it."""
        return Allowlist(tuple(self.toolsets), _WAYS[self.way].format(self.agent, self.by))


class BindingRecord(Part):
    """A toolset of one tenant; `source` is written as in the configuration."""

    tenant: str
    id: str
    prefix: str
    source: str
    scope: Scope = "shared"
    by: str


class KeptAllowlist(NamedTuple):
    """An agent's record and its revision; None and 0 where there is none."""

    record: AllowlistRecord | None
    revision: int


_Record = TypeVar("_Record", bound=Part)


class ToolsetRecords:
    """Reads and writes them; every method may raise `StoreError`. Those that write give the key that has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def allowlists(self, tenant: str | None = None) -> list[AllowlistRecord]:
        """Those of a tenant, None: of every tenant."""
        every = self._every(_ALLOWLIST, AllowlistRecord)
        return [record async for record in every if tenant in (None, record.tenant)]

    async def bindings(self, tenant: str | None = None) -> list[BindingRecord]:
        """Those of a tenant, None: of every tenant."""
        return [record async for record in self._every(_BINDING, BindingRecord) if tenant in (None, record.tenant)]

    async def allowlist(self, tenant: str, agent: str) -> KeptAllowlist:
        """That of one agent."""
        kept = await self._store.read(_key(_ALLOWLIST, tenant, agent))
        if kept is None:
            return KeptAllowlist(None, 0)
        return KeptAllowlist(AllowlistRecord.model_validate_json(kept.value), kept.revision)

    async def changed(self, change: bytes) -> AllowlistRecord | BindingRecord | None:
        """What is at a key that the log of changes names; None where nothing is."""
        key = change.decode()
        kept = await self._store.read(key)
        if kept is None:
            return None
        model = AllowlistRecord if key.startswith(_ALLOWLIST) else BindingRecord
        return model.model_validate_json(kept.value)

    async def keep_allowlist(self, record: AllowlistRecord, *, expected: int | None = None) -> bytes:
        """Keep it in place of the agent's last one. Raises `StoreConflict` where that is not of this revision."""
        key = _key(_ALLOWLIST, record.tenant, record.agent)
        await self._store.commit(key, _bytes(record), expected=expected)
        return key.encode()

    async def keep_binding(self, record: BindingRecord) -> bytes:
        """Keep it in place of the last one of its id."""
        key = _key(_BINDING, record.tenant, record.id)
        await self._store.commit(key, _bytes(record))
        return key.encode()

    async def _every(self, prefix: str, model: type[_Record]) -> AsyncIterator[_Record]:
        after = ""
        while keys := await self._store.keys(prefix, after=after, limit=_PAGE):
            for key in keys:
                record = await self._store.read(key)
                if record is not None:
                    yield model.model_validate_json(record.value)
            after = keys[-1]


def _key(kind: str, tenant: str, name: str) -> str:
    """A tenant may be called anything; its name stands in the record."""
    return kind + hashlib.sha256(ascii((tenant, name)).encode()).hexdigest()


def _bytes(record: Part) -> bytes:
    return record.model_dump_json().encode()
