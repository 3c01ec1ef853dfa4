"""Toolsets of MCP servers that the host's own code registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toolplug.errors import ConfigError
from toolplug.host.file.configuration import document_of
from toolplug.host.file.server_entries import SECTION, ServerEntries
from toolplug.host.file.toolset_settings import MCP, Scope
from toolplug.mcp.server import Server
from toolplug.toolsets.toolset import Made, PerSession, Toolset


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedMcp:
    """One registration: `server` is what the code describes itself, None where it names one of the configuration.

    `source` says which, as the configuration would. `agents` may use the toolset beside what the configuration says.
    """

    id: str
    prefix: str
    source: str
    scope: Scope
    agents: tuple[str, ...]
    server: Server | None

    @property
    def placeholder(self) -> Toolset:
        """The toolset while no host is entered; raises `InvalidDefinition` for an illegal id or prefix."""
        return Toolset(id=self.id, prefix=self.prefix, source=PerSession(factory=_not_entered, tools=()))


def coded_mcp(
    name: str,
    prefix: str,
    server: str | Mapping[str, object],
    agents: Iterable[str],
    scope: Scope,
    environ: Mapping[str, str],
) -> CodedMcp:
    """A registration of a server of the configuration by its id, or of one that is described like an entry of it.

    Raises `ConfigError` for a description that is wrong.
    """
    described = None
    if not isinstance(server, str):
        entries = ServerEntries.read(document_of({SECTION: {name: dict(server)}}), None, environ)
        if entries.problems:
            raise ConfigError(entries.problems)
        described = entries.servers[name]
    source = f"{MCP}{server if isinstance(server, str) else name}"
    return CodedMcp(id=name, prefix=prefix, source=source, scope=scope, agents=tuple(agents), server=described)


def _not_entered() -> Made:
    raise RuntimeError("a toolset of an MCP server has no tools before its host is entered")
