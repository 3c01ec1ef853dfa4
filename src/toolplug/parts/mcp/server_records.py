"""MCP servers in requests, in the store, and in answers, with the checks of requests."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, ip_address
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from toolplug.catalog.definition import Offer
from toolplug.catalog.text import pluralize
from toolplug.config.masking import MASK, mask_secrets, without_credentials, without_secrets
from toolplug.config.nearest import name_hint
from toolplug.config.units import FileMapping
from toolplug.errors import ApiError
from toolplug.execution.plans import Policy, ToolRule
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.settings import rule
from toolplug.net.egress import Egress
from toolplug.parts.mcp.client.server_config import Command, Endpoint, Server, Transport
from toolplug.parts.mcp.client.server_tools import ServerTools
from toolplug.parts.mcp.discovery.record import DiscoveryRecord, ServerName
from toolplug.parts.mcp.settings import SERVER_RULE, ServerEntries, is_header, is_server_id

Rules = dict[str, Annotated[ToolRule, BeforeValidator(rule)]]


class ServerRecord(FileMapping):
    """A server in a request and in the store; None is not set.

    With a `tenant` it is a server of that tenant, which has an address, since only the operator's file defines
    commands; without, it is a change of the file's server of this id. `McpServers` sets `tenant` and `by`.
    """

    id: str
    tenant: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    enabled: bool | None = None
    policy: Policy | None = None
    offer: Offer | None = None
    tools: Rules | None = None
    discovery_timeout_s: float | None = None
    by: str = ""

    @property
    def name(self) -> ServerName:
        return ServerName(self.id, self.tenant)

    @property
    def is_for_file(self) -> bool:
        """Whether it sets only what can be changed of a server of the file: `enabled` and `tools`."""
        others = (self.url, self.headers, self.policy, self.offer, self.discovery_timeout_s)
        return all(value is None for value in others)


DEFAULT_DISCOVERY_S = 30.0

_OF_THE_REQUEST = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer")
)
"""Headers of routing and framing, which the HTTP client sets itself."""
_MAX_URL = 2048
MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * 1024
"""Of the names and values of all headers for one server. Few servers accept more."""


def entries_of(configuration: Configuration) -> ServerEntries:
    return configuration.servers if isinstance(configuration.servers, ServerEntries) else ServerEntries()


def egress_of(configuration: Configuration) -> Egress:
    """Return the addresses that a configuration allows."""
    return Egress(configuration.settings.egress.allow)


def check_id(name: str) -> None:
    """Raise `ApiError` for an invalid server id."""
    if not is_server_id(name):
        message = f"{name[:80]!r} is no server id; {SERVER_RULE} are allowed"
        raise ApiError("invalid_server_id", message, param="id")


def check_address(url: str, headers: Mapping[str, str], egress: Egress) -> None:
    """Raise `ApiError` for an invalid or forbidden address, and for a header that cannot be sent.

    Only literal addresses are compared with `egress` here; a host name is resolved and checked on connecting.
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
    if not _permits(egress, parts.hostname):
        message = f"{parts.hostname!r} is not public; the operator can allow it under egress.allow"
        raise ApiError("address_refused", message, param="url")
    size = sum(len(name) + len(value) for name, value in headers.items())
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        allowed = f"{MAX_HEADERS} of {MAX_HEADER_BYTES} bytes together are allowed"
        raise ApiError("invalid_header", f"{len(headers)} headers of {size} bytes; {allowed}", param="headers")
    for name, value in headers.items():
        if not is_header(name, value):
            raise ApiError("invalid_header", f"{name[:80]!r} is no header that can be sent", param="headers")
        if name.lower() in _OF_THE_REQUEST:
            raise ApiError("invalid_header", f"{name!r} belongs to the request itself", param="headers")


def _permits(egress: Egress, host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return egress.permits(host, IPv4Address("127.0.0.1"))
    try:
        return egress.permits(host, ip_address(host))
    except ValueError:
        return True


def not_found(name: str, known: Mapping[str, object]) -> ApiError:
    """Return the error for a server that the tenant does not have, with the nearest id."""
    hint = name_hint(name, known)
    return ApiError("server_not_found", "no such MCP server" + (f" ({hint})" if hint else ""), param="id")


def changed_record(record: ServerRecord, change: ServerRecord) -> ServerRecord:
    """Return the record with the values that a change sets; `id` and `tenant` stay."""
    given = {key: value for key, value in change if value is not None}
    return record.model_copy(update={**given, "id": record.id, "tenant": record.tenant})


def added_server(record: ServerRecord) -> Server:
    """Return the server that a tenant's record describes."""
    shown = f"POST /api/mcp-servers by {record.by}"
    return Server(
        name=ServerName(record.id, record.tenant),
        transport=Endpoint(url=record.url or "", headers=record.headers or {}),
        enabled=record.enabled is not False,
        discovery_timeout_s=record.discovery_timeout_s or DEFAULT_DISCOVERY_S,
        policy=record.policy or "ask",
        offer=record.offer or "always",
        tools=record.tools or {},
        origin=lambda *_: shown,
    )


ServerSource = Literal["file", "api"]

ServerState = Literal["disabled", "never", "discovering", "up", "stale", "quarantined", "failed"]
"""What an operator is shown of a server; the status of its record is that of the last discovery."""


class ServerView(NamedTuple):
    """One server and its discovery record. `transport` shows `***` for every value that could be a secret.

    `tools` maps the server's own tool names to the policies of rules; `unmatched` are the names in rules for which the
    server has no tool. `origin` is the line, or the request, that configured it.
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
    def state(self) -> ServerState:
        """The state of the server; `quarantined`: none of its tools can be called until someone accepts them."""
        record = self.record
        if not self.enabled:
            return "disabled"
        if record.stale:
            return "stale"
        if record.status == "success":
            return "quarantined" if record.tools and self._quarantined_count == len(record.tools) else "up"
        return record.status

    @property
    def summary(self) -> str:
        """The state in a few words, such as `up, 1 of 2 tools in quarantine`."""
        record, tools = self.record, pluralize(len(self.record.tools), "tool")
        first = {"never": "its tools were never listed", "discovering": "its tools are being listed"}
        if not record.tools and record.error is None and self.state in first:
            return first[self.state]
        known = f"{self._quarantined_count} of {tools} in quarantine" if self._quarantined_count else tools
        text = f"{self.state if self.state != 'quarantined' else 'up'}, {known}"
        return text if record.error is None else f"{text} ({record.error})"

    @property
    def _quarantined_count(self) -> int:
        return sum(tool.quarantined for tool in self.record.tools)


def server_view(tools: ServerTools, record: DiscoveryRecord, withheld: frozenset[str]) -> ServerView:
    """Return the view of a server; `withheld` texts, from the environment or secret files, are masked."""
    server = tools.server
    return ServerView(
        id=server.name.id,
        source="file" if server.name.tenant is None else "api",
        enabled=server.enabled,
        policy=server.policy,
        pin=server.pin,
        transport=_show(server.transport, withheld),
        tools={name: rule.policy for name, rule in server.tools.items() if rule.policy is not None},
        unmatched=tools.unmatched_rules,
        origin=server.origin(),
        record=record,
    )


def _show(transport: Transport, withheld: frozenset[str]) -> Mapping[str, object]:
    if isinstance(transport, Command):
        args = [mask_secrets(arg, withheld) for arg in without_secrets(transport.args)]
        shown: dict[str, object] = {"command": transport.command, "args": args}
        if transport.env:
            shown["env"] = dict.fromkeys(transport.env, MASK)
        return shown
    shown = {"url": mask_secrets(without_credentials(transport.url), withheld)}
    if transport.headers:
        shown["headers"] = dict.fromkeys(transport.headers, MASK)
    if transport.oauth is not None:
        shown["oauth"] = {"client_id": transport.oauth.client_id, "client_secret": MASK}
    return shown
