"""A host with its HTTP face in the test's own process, and callers who reach it both ways.

    async with in_process_host({"providers": {"notes": {"enabled": True}}}) as served:
        assert (await served.call("add_note", text="milk")).output == "1"
        assert (await served.client.get("/v1/notes")).json() == ["milk"]

Needs the extra `testing`.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.types import ASGIApp

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.host.host import Host, open_host
from toolplug.http.app import create_app
from toolplug.http.routing import EVERY_SCOPE

try:
    import httpx2
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError("in_process_host needs httpx2: pip install 'toolplug[testing]'") from _missing

BASE_URL = "http://127.0.0.1"
ANYBODY = Principal(scopes=EVERY_SCOPE)
"""The caller of a host without `auth`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One principal's two ways in: `client` over HTTP, with its key, and `call` in process."""

    principal: Principal
    client: httpx2.AsyncClient
    host: Host

    async def call(self, tool: str, /, **arguments: object) -> ToolResult:
        """The result of one call of a tool."""
        executor = self.host.executor_for(self.principal)
        return await executor.execute(ToolCall("call", tool, arguments), CallContext(principal=self.principal))


@dataclass(frozen=True, slots=True)
class InProcessHost:
    """An entered host; its callers by subject, the first of whom `client` and `call` belong to.

    `nobody` is a client without credentials.
    """

    host: Host
    app: ASGIApp
    callers: Mapping[str, Caller]
    nobody: httpx2.AsyncClient

    @property
    def client(self) -> httpx2.AsyncClient:
        """The first caller's HTTP client."""
        return next(iter(self.callers.values())).client

    async def call(self, tool: str, /, **arguments: object) -> ToolResult:
        """The result of one call by the first caller."""
        return await next(iter(self.callers.values())).call(tool, **arguments)


@asynccontextmanager
async def in_process_host(
    config: Mapping[str, object],
    *,
    principals: Sequence[Principal] = (),
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncGenerator[InProcessHost]:
    """A host for this configuration, entered, served without a socket.

    `principals` each get an API key; without any, the configuration's own `auth` holds, or everybody is anonymous and
    may do everything. State is kept in `folder`: opened again there, it is the same host restarted. Without a folder
    it is a temporary one. Raises what entering a host raises.
    """
    keys = {principal.subject: secrets.token_urlsafe(32) for principal in principals}
    async with AsyncExitStack() as stack:
        place = folder or Path(stack.enter_context(TemporaryDirectory(prefix="toolplug-")))
        path = _written(config, place, principals, keys)
        host = await stack.enter_async_context(open_host(path, environ=os.environ if environ is None else environ))
        app = create_app(host)
        nobody = await stack.enter_async_context(_client(app))
        callers = {"anonymous": Caller(ANYBODY, nobody, host)}
        if principals:
            callers = {
                principal.subject: Caller(
                    principal, await stack.enter_async_context(_client(app, keys[principal.subject])), host
                )
                for principal in principals
            }
        yield InProcessHost(host, app, callers, nobody)


def _written(
    config: Mapping[str, object], folder: Path, principals: Sequence[Principal], keys: Mapping[str, str]
) -> Path:
    """The configuration as a file in the folder, with a store there unless it names one, and the principals' keys."""
    document: dict[str, object] = {"store": f"sqlite:///{folder.absolute().as_posix()}/.toolplug/state.db", **config}
    if principals:
        document["auth"] = {"api_keys": [_api_key(principal, keys[principal.subject]) for principal in principals]}
    path = folder / "providers.yaml"
    path.write_text(json.dumps(document), "utf-8")
    return path


def _api_key(principal: Principal, key: str) -> dict[str, object]:
    entry: dict[str, object] = {
        "key": key,
        "subject": principal.subject,
        "tenant": principal.tenant,
        "scopes": sorted(principal.scopes),
    }
    return entry if principal.agents is None else {**entry, "agents": sorted(principal.agents)}


def _client(app: ASGIApp, key: str | None = None) -> httpx2.AsyncClient:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE_URL, headers=headers)
