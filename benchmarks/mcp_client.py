"""Calls of an MCP server's tool: CPU time of the process that calls, beside the SDK's client in the same era."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path

from mcp.client.stdio import StdioServerParameters

from benchmarks.calling import repeated
from benchmarks.frame import Batch, Row, timed
from benchmarks.process import started
from mcp import Client
from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug.parts.credentials.records import UserConnection, UserTokens, user_key
from toolplug.parts.credentials.running import RunningCredentials
from toolplug.parts.credentials.service import tokens_of

ARGUMENTS = {"name": "World"}
OPERATOR = Principal(subject="olga", tenant="t1", scopes=frozenset({"admin", "operator"}))

_FOUND_S = 30.0
_PIPES = ("-m", "benchmarks.applications.mcp_pipes")
_HERE = str(Path(__file__).parent.parent)

Entry = Mapping[str, object]
"""A server as an entry of `mcp_servers:`."""


@contextmanager
def pipes() -> Generator[Entry]:
    """A server that whoever connects starts."""
    yield {"command": sys.executable, "args": list(_PIPES), "cwd": _HERE}


@contextmanager
def http() -> Generator[Entry]:
    """A server that runs on the servers' processor."""
    with started("benchmarks.server", "mcp_bare") as served:
        yield {"url": f"http://127.0.0.1:{served.port}/mcp"}


def _settings(entry: Entry) -> dict[str, object]:
    return {
        "store": "memory://",
        "mcp_servers": {"bench": entry},
        "toolsets": {"bench": {"prefix": "bench", "from": "mcp:bench"}},
        "agents": {"caller": {"toolsets": ["bench"]}},
    }


Reached = Callable[[], AbstractContextManager[Entry]]


@asynccontextmanager
async def through_a_host(reached: Reached) -> AsyncGenerator[Batch]:
    """The tool of an agent's toolset, with every default knob on."""
    with reached() as entry:
        async with open_host(_settings(entry), environ={}) as host:
            await host.servers.loaded.discover("bench", by=OPERATOR, wait_s=_FOUND_S, request_id="")
            executor = host.executor_for(OPERATOR, agent="caller")
            yield await repeated(executor, ToolCall(id="c1", name="bench.hello", arguments=ARGUMENTS))


@asynccontextmanager
async def with_headers(*, signed_in: bool) -> AsyncGenerator[Batch]:
    """The tool with a header of the file, or with the token of a caller who has signed in."""
    with http() as entry:
        issuer = "https://login.example"
        server: dict[str, object] = {**entry, "headers": {"Authorization": "Bearer of-the-list"}}
        if signed_in:
            server["user_auth"] = {"oauth": {"issuer": issuer}}
        async with open_host(_settings(server), environ={}) as host:
            await host.servers.loaded.discover("bench", by=OPERATOR, wait_s=_FOUND_S, request_id="")
            if signed_in:
                part = host.part(RunningCredentials)
                assert part is not None, "it is always on"
                owner, _ = part.entries()["bench"]
                known = UserConnection(
                    tenant=OPERATOR.tenant,
                    subject=OPERATOR.subject,
                    kind=owner.kind,
                    key=owner.key,
                    issuer=issuer,
                    connected_at=0.0,
                )
                records, token = tokens_of(part).oauth.records, UserTokens(access="of-olga")
                await records.write(user_key(owner, OPERATOR), owner, known, token, expected=0)
            executor, context = host.executor_for(OPERATOR, agent="caller"), CallContext(OPERATOR, agent="caller")
            call = ToolCall(id="c1", name="bench.hello", arguments=ARGUMENTS)
            result = await executor.execute(call, context)
            assert not result.is_error, result.output

            async def run(n: int) -> None:
                for _ in repeat(None, n):
                    await executor.execute(call, context)

            yield timed(run)


@asynccontextmanager
async def through_the_sdk(reached: Reached) -> AsyncGenerator[Batch]:
    """MCP Python SDK, "Clients": `Client.call_tool`."""
    with reached() as entry:
        async with Client(_known_to_the_sdk(entry)) as client:
            await client.call_tool("hello", ARGUMENTS)

            async def run(n: int) -> None:
                for _ in repeat(None, n):
                    await client.call_tool("hello", ARGUMENTS)

            yield timed(run)


def _known_to_the_sdk(entry: Entry) -> StdioServerParameters | str:
    if "url" in entry:
        return str(entry["url"])
    return StdioServerParameters(command=sys.executable, args=list(_PIPES), cwd=_HERE)


def _row(name: str, reached: Reached) -> Row:
    return Row(
        name=name,
        ours=partial(through_a_host, reached),
        other=partial(through_the_sdk, reached),
        against="MCP SDK client",
        hold=1.3,
        aim=1.1,
        pairs=31,
        batch_s=0.05,
    )


ROWS = (
    _row("call of an MCP tool over stdio", pipes),
    _row("call of an MCP tool over HTTP", http),
    Row(
        name="call of an MCP tool over HTTP with the token of its caller",
        ours=partial(with_headers, signed_in=True),
        other=partial(with_headers, signed_in=False),
        against="a header of the file",
        hold=1.1,
        aim=1.05,
        pairs=10,
        batch_s=0.3,
    ),
)
