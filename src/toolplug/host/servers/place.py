"""Where toolsets find the tools of an MCP server, whether the server is there or not."""

from __future__ import annotations

from toolplug.catalog.plan import Series
from toolplug.execution.live import Joint, LiveCatalog
from toolplug.host.file.toolset_settings import Scope
from toolplug.mcp.server_tools import ServerTools
from toolplug.toolsets.toolset import OnDemand, SessionExecutor, Shared, Source


class ServerPlace:
    """One server's place: a server of the same name that comes later stands in it again."""

    def __init__(self, unknown: Series) -> None:
        self._unknown = unknown
        self._tools: ServerTools | None = None
        self._live = Joint(unknown)
        self._lone = Joint(unknown)
        self._sources: dict[Scope, Source] = {
            "shared": Shared(executor=self._live),
            "session": OnDemand(lone=self._lone, make=self._made),
        }

    def put(self, tools: ServerTools | None) -> None:
        """Have these tools here from now on, None: none."""
        self._tools = tools
        self._live.join(*(() if tools is None else (tools.live,)))
        self._lone.join(*(() if tools is None else (tools.lone,)))

    def source(self, scope: Scope) -> Source:
        """The source of a toolset; the same object each time."""
        return self._sources[scope]

    def _made(self) -> SessionExecutor:
        return _Nothing(self._unknown) if self._tools is None else self._tools.per_session()


class _Nothing(LiveCatalog):
    """What a session has of a server that was not there when the session began to use it."""

    async def aclose(self) -> None:
        """There is nothing to end."""
