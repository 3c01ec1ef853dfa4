"""What is asked of the MCP servers over HTTP, and whether it can be."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from toolplug.config.nearest import name_hint
from toolplug.discovery.known_server import ServerName
from toolplug.errors import McpServerRefused
from toolplug.execution.egress import Egress
from toolplug.execution.tool_rule import Policy, ToolRule
from toolplug.host.file.sent_header import is_header
from toolplug.host.file.server_entries import SERVER_RULE, is_server_id
from toolplug.host.servers.records import ServerRecord
from toolplug.mcp.server import Server
from toolplug.mcp.transport import Endpoint

DEFAULT_DISCOVERY_S = 30.0

_OF_THE_REQUEST = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer")
)
"""Headers that say where a request goes and where it ends: whoever sends it writes these."""
_MAX_URL = 2048


class NewServer(NamedTuple):
    """A server as it is asked for: only by its address, since commands stand in the operator's file."""

    id: str
    url: str
    headers: Mapping[str, str] = {}
    enabled: bool = True
    policy: Policy = "ask"
    tools: Mapping[str, ToolRule] = {}
    discovery_timeout_s: float = DEFAULT_DISCOVERY_S


class ServerChange(NamedTuple):
    """What is to be different; None stays as it is. Of a server of the file only `enabled` and `tools` can be."""

    url: str | None = None
    headers: Mapping[str, str] | None = None
    enabled: bool | None = None
    policy: Policy | None = None
    tools: Mapping[str, ToolRule] | None = None
    discovery_timeout_s: float | None = None

    @property
    def of_file(self) -> bool:
        """Could a server of the file be changed so."""
        return self == ServerChange(enabled=self.enabled, tools=self.tools)


def check_id(name: str) -> None:
    """Raise `McpServerRefused` for what no server can be called."""
    if not is_server_id(name):
        message = f"{name[:80]!r} is no server id; {SERVER_RULE} are allowed"
        raise McpServerRefused("invalid_server_id", message, param="id")


def check_address(url: str, headers: Mapping[str, str], egress: Egress) -> None:
    """Raise `McpServerRefused` for what is no address of a server, or one that may not be asked, and for no header.

    A host's name is looked up by whoever connects, which is when it counts.
    """
    try:
        parts = urlsplit(url)
        legal = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and len(url) <= _MAX_URL
    except ValueError as error:
        raise McpServerRefused("invalid_url", f"url cannot be read: {error}", param="url") from None
    if not legal or not parts.hostname:
        raise McpServerRefused("invalid_url", "url must be an http or https address", param="url")
    if parts.username is not None or parts.password is not None:
        raise McpServerRefused("invalid_url", "url must not hold credentials; send them as headers", param="url")
    if not _permitted(egress, parts.hostname):
        message = f"{parts.hostname!r} is not public; the operator can allow it under egress.allow"
        raise McpServerRefused("address_refused", message, param="url")
    for name, value in headers.items():
        if not is_header(name, value):
            raise McpServerRefused("invalid_header", f"{name[:80]!r} is no header that can be sent", param="headers")
        if name.lower() in _OF_THE_REQUEST:
            raise McpServerRefused("invalid_header", f"{name!r} belongs to the request itself", param="headers")


def _permitted(egress: Egress, host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return egress.permits(host, IPv4Address("127.0.0.1"))
    try:
        return egress.permits(host, ip_address(host))
    except ValueError:
        return True


def not_found(name: str, known: Mapping[str, object]) -> McpServerRefused:
    """There is no such server for this tenant."""
    hint = name_hint(name, known)
    return McpServerRefused("server_not_found", "no such MCP server" + (f" ({hint})" if hint else ""), param="id")


def new_record(wanted: NewServer, tenant: str, by: str) -> ServerRecord:
    """The record of a server that is added."""
    return ServerRecord(
        id=wanted.id,
        tenant=tenant,
        url=wanted.url,
        headers=dict(wanted.headers),
        enabled=wanted.enabled,
        policy=wanted.policy,
        tools=dict(wanted.tools),
        discovery_timeout_s=wanted.discovery_timeout_s,
        by=by,
    )


def changed_record(record: ServerRecord, change: ServerChange, by: str) -> ServerRecord:
    """The record after a change."""
    given = {key: value for key, value in change._asdict().items() if value is not None}
    return record.model_copy(update={**given, "by": by})


def added_server(record: ServerRecord) -> Server:
    """The server that a record of a tenant describes."""
    shown = f"POST /api/mcp-servers by {record.by}"
    return Server(
        name=ServerName(record.id, record.tenant),
        transport=Endpoint(url=record.url or "", headers=record.headers),
        enabled=record.enabled is not False,
        discovery_timeout_s=record.discovery_timeout_s or DEFAULT_DISCOVERY_S,
        policy=record.policy or "ask",
        tools=record.tools or {},
        origin=lambda *_: shown,
    )
