"""An MCP server as operators see it: without its secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from toolplug.catalog.text import counted
from toolplug.config.masking import MASK, holds_credentials, masked, named_arguments
from toolplug.discovery.record import DiscoveryRecord
from toolplug.execution.plans import Policy
from toolplug.mcp.server_config import Command, Transport
from toolplug.mcp.server_tools import ServerTools

Source = Literal["file", "api"]


class ServerView(NamedTuple):
    """One server and what is known of it. `transport` is how it is reached; what could be a secret is `***`.

    `tools` are the policies that rules give, by the server's own names, `unmatched` the names of rules that the server
    has no tool for. `origin` is the line, or the request, that
    configured it.
    """

    id: str
    source: Source
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
