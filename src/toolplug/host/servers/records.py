"""MCP servers as callers send them, as the store keeps them, and as they are shown; and the checks of requests.

`mcp-server/<hash of tenant and id>`  a server of one tenant, or a change of one of the file, which holds for everybody
`mcp-server-changes`                  no value, but a log: the keys of records that have changed, for every process
`mcp-hash-key`                        32 random bytes, with which values are hashed that must not be guessed
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, ip_address
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from pydantic import BeforeValidator

from toolplug.catalog.text import counted
from toolplug.config.masking import MASK, holds_credentials, masked, named_arguments
from toolplug.config.nearest import name_hint
from toolplug.discovery.record import DiscoveryRecord, ServerName
from toolplug.errors import ApiError, StoreConflict
from toolplug.execution.egress import Egress
from toolplug.execution.plans import Policy, ToolRule
from toolplug.host.file.server_entries import SERVER_RULE, is_header, is_server_id
from toolplug.host.file.settings import Part, rule
from toolplug.mcp.server_config import Command, Endpoint, Server, Transport
from toolplug.mcp.server_tools import ServerTools
from toolplug.stores.store import Store

CHANGES = "mcp-server-changes"

_HASH_KEY = "mcp-hash-key"
_SERVER = "mcp-server/"
_PAGE = 1000
_KEY_BYTES = 32

Rules = dict[str, Annotated[ToolRule, BeforeValidator(rule)]]


class ServerRecord(Part):
    """What a caller sends of a server, and what the store keeps; None is not set.

    With a `tenant` it is a server of that tenant, only by its address, since commands are defined in the operator's
    file; else it is a change of the file's server of this id. `McpServers` sets `tenant` and `by` from the caller.
    """

    id: str
    tenant: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    enabled: bool | None = None
    policy: Policy | None = None
    tools: Rules | None = None
    discovery_timeout_s: float | None = None
    by: str = ""

    @property
    def name(self) -> ServerName:
        """The name of its server."""
        return ServerName(self.id, self.tenant)

    @property
    def is_for_file(self) -> bool:
        """Whether it sets only what can be changed of a server of the file: `enabled` and `tools`."""
        return all(value is None for value in (self.url, self.headers, self.policy, self.discovery_timeout_s))


class ServerRecords:
    """Reads and writes them; every method may raise `StoreError`. Those that write give the key that has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def every(self) -> list[ServerRecord]:
        """Every record, of all tenants."""
        records: list[ServerRecord] = []
        after = ""
        while keys := await self._store.keys(_SERVER, after=after, limit=_PAGE):
            records += [record for key in keys if (record := await self.changed(key.encode())) is not None]
            after = keys[-1]
        return records

    async def changed(self, change: bytes) -> ServerRecord | None:
        """What is at a key that the log of changes names; None where nothing is any more."""
        kept = await self._store.read(change.decode())
        return None if kept is None else ServerRecord.model_validate_json(kept.value)

    async def keep(self, record: ServerRecord) -> bytes:
        """Keep it in place of the last one of its server."""
        key = key_of(record.name)
        await self._store.commit(key, record.model_dump_json(exclude_defaults=True).encode())
        return key.encode()

    async def drop(self, name: ServerName) -> bytes:
        """Delete the record of a server."""
        key = key_of(name)
        await self._store.commit(key, None)
        return key.encode()

    async def hash_key(self) -> bytes:
        """The key of this store; made by whoever asks first."""
        with suppress(StoreConflict):
            await self._store.commit(_HASH_KEY, secrets.token_bytes(_KEY_BYTES), expected=0)
        kept = await self._store.read(_HASH_KEY)
        assert kept is not None, "this record is never deleted"
        return kept.value


def key_of(name: ServerName) -> str:
    """Where the record of a server is; a tenant may be called anything, so that its name stands in the record."""
    return _SERVER + hashlib.sha256(ascii(tuple(name)).encode()).hexdigest()


DEFAULT_DISCOVERY_S = 30.0

_OF_THE_REQUEST = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer")
)
"""Headers that say where a request goes and where it ends: whoever sends it writes these."""
_MAX_URL = 2048
MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * 1024
"""Of the headers for one server: names and values together. Few servers take more."""


def check_id(name: str) -> None:
    """Raise `ApiError` for what no server can be called."""
    if not is_server_id(name):
        message = f"{name[:80]!r} is no server id; {SERVER_RULE} are allowed"
        raise ApiError("invalid_server_id", message, param="id")


def check_address(url: str, headers: Mapping[str, str], egress: Egress) -> None:
    """Raise `ApiError` for what is no address of a server, or one that may not be asked, and for no header.

    A host's name is looked up by whoever connects, which is when it counts.
    """
    try:
        parts = urlsplit(url)
        legal = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and len(url) <= _MAX_URL
    except ValueError as error:
        raise ApiError("invalid_url", f"url cannot be read: {error}", param="url") from None
    if not legal or not parts.hostname:
        raise ApiError("invalid_url", "url must be an http or https address", param="url")
    if parts.username is not None or parts.password is not None:
        raise ApiError("invalid_url", "url must not hold credentials; send them as headers", param="url")
    if not _permitted(egress, parts.hostname):
        message = f"{parts.hostname!r} is not public; the operator can allow it under egress.allow"
        raise ApiError("address_refused", message, param="url")
    size = sum(len(name) + len(value) for name, value in headers.items())
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        found = (
            f"{len(headers)} headers of {size} bytes; {MAX_HEADERS} of {MAX_HEADER_BYTES} bytes together are allowed"
        )
        raise ApiError("invalid_header", found, param="headers")
    for name, value in headers.items():
        if not is_header(name, value):
            raise ApiError("invalid_header", f"{name[:80]!r} is no header that can be sent", param="headers")
        if name.lower() in _OF_THE_REQUEST:
            raise ApiError("invalid_header", f"{name!r} belongs to the request itself", param="headers")


def _permitted(egress: Egress, host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return egress.permits(host, IPv4Address("127.0.0.1"))
    try:
        return egress.permits(host, ip_address(host))
    except ValueError:
        return True


def not_found(name: str, known: Mapping[str, object]) -> ApiError:
    """There is no such server for this tenant."""
    hint = name_hint(name, known)
    return ApiError("server_not_found", "no such MCP server" + (f" ({hint})" if hint else ""), param="id")


def changed_record(record: ServerRecord, change: ServerRecord) -> ServerRecord:
    """The record after a change; it stays that of the same server."""
    given = {key: value for key, value in change if value is not None}
    return record.model_copy(update={**given, "id": record.id, "tenant": record.tenant})


def added_server(record: ServerRecord) -> Server:
    """The server that a record of a tenant describes."""
    shown = f"POST /api/mcp-servers by {record.by}"
    return Server(
        name=ServerName(record.id, record.tenant),
        transport=Endpoint(url=record.url or "", headers=record.headers or {}),
        enabled=record.enabled is not False,
        discovery_timeout_s=record.discovery_timeout_s or DEFAULT_DISCOVERY_S,
        policy=record.policy or "ask",
        tools=record.tools or {},
        origin=lambda *_: shown,
    )


ServerSource = Literal["file", "api"]


class ServerView(NamedTuple):
    """One server and what is known of it. `transport` is how it is reached; what could be a secret is `***`.

    `tools` are the policies that rules give, by the server's own names, `unmatched` the names of rules that the server
    has no tool for. `origin` is the line, or the request, that
    configured it.
    """

    id: str
    source: ServerSource
    enabled: bool
    policy: Policy
    pin: bool
    transport: Mapping[str, object]
    tools: Mapping[str, Policy]
    unmatched: tuple[str, ...]
    origin: str
    record: DiscoveryRecord

    @property
    def state(self) -> str:
        """Where it stands, in a few words for the log."""
        if not self.enabled:
            return "off"
        record = self.record
        known = f"{record.status}, {counted(len(record.tools), 'stale tool' if record.stale else 'tool')}"
        return known if record.error is None else f"{known} ({record.error})"


def server_view(tools: ServerTools, record: DiscoveryRecord, withheld: frozenset[str]) -> ServerView:
    """What may be shown of a server; `withheld` are texts that came from the environment or from secret files."""
    server = tools.server
    return ServerView(
        id=server.name.id,
        source="file" if server.name.tenant is None else "api",
        enabled=server.enabled,
        policy=server.policy,
        pin=server.pin,
        transport=_shown(server.transport, withheld),
        tools={name: rule.policy for name, rule in server.tools.items() if rule.policy is not None},
        unmatched=tools.unmatched_rules,
        origin=server.origin(),
        record=record,
    )


def _shown(transport: Transport, withheld: frozenset[str]) -> Mapping[str, object]:
    if isinstance(transport, Command):
        args = [masked(arg, withheld) for arg in _without_secrets(transport.args)]
        shown: dict[str, object] = {"command": transport.command, "args": args}
        if transport.env:
            shown["env"] = dict.fromkeys(transport.env, MASK)
        return shown
    shown = {"url": masked(_without_credentials(transport.url), withheld)}
    if transport.headers:
        shown["headers"] = dict.fromkeys(transport.headers, MASK)
    if transport.oauth is not None:
        shown["oauth"] = {"client_id": transport.oauth.client_id, "client_secret": MASK}
    return shown


def _without_secrets(args: Sequence[str]) -> Iterator[str]:
    """Arguments without what is called like a secret, and without addresses' passwords."""
    for argument in named_arguments(args):
        if argument.secret:
            yield f"{argument.before}{MASK}"
        else:
            value = argument.value
            yield f"{argument.before}{_without_credentials(value) if '://' in value else value}"


def _without_credentials(url: str) -> str:
    """An address without user, password and the values of its query."""
    if not holds_credentials(url) and "?" not in url:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host[2]}" if host[1] else parts.netloc
    return urlunsplit(parts._replace(netloc=netloc, query=MASK if parts.query else ""))
