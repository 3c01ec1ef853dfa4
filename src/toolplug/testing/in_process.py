"""A host in the process of a test, and callers that use it over HTTP and directly.

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
from typing import cast

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
    """A principal that calls over HTTP, with its key, through `client`, and directly through `call`.

    ```python
    import asyncio

    from toolplug import Principal
    from toolplug.testing.in_process import Caller, in_process_host

    READER = Principal("ada", tenant="acme", scopes=frozenset({"tools:read"}))

    async def main():
        async with in_process_host({}, principals=[READER]) as served:
            ada: Caller = served.callers["ada"]
            assert (await ada.client.get("/v1/tools")).status_code == 200
            assert (await served.nobody.get("/v1/tools")).status_code == 401

    asyncio.run(main())
    ```
    """

    principal: Principal
    client: httpx2.AsyncClient
    host: Host

    async def call(self, tool: str, /, **arguments: object) -> ToolResult:
        """Call a tool."""
        executor = self.host.executor_for(self.principal)
        return await executor.execute(ToolCall("call", tool, arguments), CallContext(principal=self.principal))


@dataclass(frozen=True, slots=True)
class InProcessHost:
    """An entered host, with its callers by subject and `nobody`, a client without credentials.

    ```python
    import asyncio

    from toolplug.testing.in_process import InProcessHost, in_process_host

    async def main():
        async with in_process_host({}) as served:
            assert isinstance(served, InProcessHost)
            assert (await served.client.get("/v1/tools")).status_code == 200
            assert (await served.call("nothing")).status == "unknown_tool"

    asyncio.run(main())
    ```
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
        """Call a tool as the first caller."""
        return await next(iter(self.callers.values())).call(tool, **arguments)


@asynccontextmanager
async def in_process_host(
    config: Mapping[str, object],
    *,
    principals: Sequence[Principal] = (),
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncGenerator[InProcessHost]:
    """Open a host with this configuration, served without a socket. Raises what entering a host raises.

    `principals` each get an API key; without any, the `auth` of the configuration applies, or every caller is anonymous
    and has all scopes. State is kept in `folder`, by default a temporary one: opened again there, it is the same host.
    """
    keys = {principal.subject: secrets.token_urlsafe(32) for principal in principals}
    async with AsyncExitStack() as stack:
        place = folder or Path(stack.enter_context(TemporaryDirectory(prefix="toolplug-")))
        path = _write_configuration(config, place, principals, keys)
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


def _write_configuration(
    config: Mapping[str, object], folder: Path, principals: Sequence[Principal], keys: Mapping[str, str]
) -> Path:
    """Write the configuration to the folder, with the keys and, unless it names one, a store there."""
    document: dict[str, object] = {"store": f"sqlite:///{folder.absolute().as_posix()}/.toolplug/state.db", **config}
    if principals:
        document["auth"] = {"api_keys": [_api_key(principal, keys[principal.subject]) for principal in principals]}
        # An agent of a key must be configured; one of which the configuration says nothing has no toolsets.
        agents = sorted({agent for principal in principals for agent in principal.agents or ()})
        named: dict[str, object] = {agent: {"toolsets": ()} for agent in agents}
        if named:
            document["agents"] = {**named, **cast("Mapping[str, object]", config.get("agents", {}))}
    path = folder / "providers.yaml"
    path.write_text(json.dumps(document), "utf-8", newline="\n")
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
