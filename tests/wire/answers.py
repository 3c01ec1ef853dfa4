"""Questions that the tests of several files ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

ROUNDS = 6
"""So many requests reach every process of a deployment."""


def error_of(answer: httpx2.Response) -> tuple[int, str]:
    """The status and the code."""
    return answer.status_code, answer.json()["error"]["code"]


async def call(
    client: httpx2.AsyncClient, name: str, agent: str | None = None, /, **arguments: object
) -> dict[str, Any]:
    """The answer to a call."""
    body = {"name": name, "arguments": arguments, **({} if agent is None else {"agent": agent})}
    answer = await client.post("/v1/tool-calls", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def status_of(client: httpx2.AsyncClient, name: str, agent: str | None = None) -> str:
    """How a call without arguments ends."""
    return (await call(client, name, agent))["status"]


async def listed(client: httpx2.AsyncClient, agent: str) -> list[str]:
    """The names of an agent's tools, without the one that reads artifacts."""
    tools = (await client.get(f"/v1/tools?format=mcp&agent={agent}")).json()["tools"]
    return [each["name"] for each in tools if each["name"] != "read_result"]


async def everywhere(ask: Callable[[], Awaitable[object]], expected: object) -> None:
    """Check that every process gives this answer."""
    assert [await ask() for _ in range(ROUNDS)] == [expected] * ROUNDS
