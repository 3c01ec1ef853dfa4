"""An MCP server as it is configured: how it is reached, and the rules around its tools."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType

from toolplug.discovery.known_server import ServerName
from toolplug.execution.knobs import DEFAULT_ORIGIN, NO_LIMITS, Limits
from toolplug.execution.tool_rule import DEFAULT_POLICY, NO_RULE, Policy, ToolRule
from toolplug.mcp.transport import Command, Transport
from toolplug.signatures.values import canonical

_NO_RULES: Mapping[str, ToolRule] = MappingProxyType({})


def _nowhere(*_path: str) -> str:
    return DEFAULT_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Server:
    """One server. `policy` and `limits` hold for all its tools, `tools` are rules of some, by the server's own names.

    `discovery_timeout_s` bounds what it takes to start it and to list its tools. `origin` gives the place of a key of
    the entry, by its path: `origin("tools", "get_time", "policy")`.
    """

    name: ServerName
    transport: Transport
    enabled: bool = True
    discovery_timeout_s: float = 30.0
    pin: bool = False
    policy: Policy = DEFAULT_POLICY
    tools: Mapping[str, ToolRule] = field(default_factory=lambda: _NO_RULES)
    limits: Limits = NO_LIMITS
    origin: Callable[..., str] = _nowhere

    def rule(self, tool: str) -> ToolRule:
        """What is said of one tool."""
        return self.tools.get(tool, NO_RULE)

    def policy_of(self, tool: str) -> Policy:
        """The policy in effect for one tool."""
        return self.rule(tool).policy or self.policy

    def origin_of(self, tool: str, key: str) -> str:
        """The place of a key of one tool's rule; for a policy that no rule gives, that of the server's."""
        if key == "policy" and self.rule(tool).policy is None:
            return self.origin(key)
        return self.origin("tools", tool, key)


def config_hash(server: Server, key: bytes) -> str:
    """Equal for configurations that start or reach the same server; tells nothing of their secrets without the key.

    The order of variables and headers makes no difference, nor do rules, limits, timeouts and whether it is enabled
    (CONTRACT.md section 8).
    """
    transport = server.transport
    if isinstance(transport, Command):
        cwd = None if transport.cwd is None else str(transport.cwd)
        reached: list[object] = ["stdio", transport.command, list(transport.args), dict(transport.env), cwd]
    else:
        headers = {name.lower(): value for name, value in transport.headers.items()}
        oauth = None if transport.oauth is None else asdict(transport.oauth)
        reached = ["http", transport.url, headers, oauth]
    return hmac.digest(key, canonical(reached), "sha256").hex()
