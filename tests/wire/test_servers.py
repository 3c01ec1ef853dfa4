"""MCP servers that are added over HTTP: known, changed and removed at every process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.wire.answers import ROUNDS, call, error_of, everywhere, listed, status_of
from tests.wire.callers import Deployment, new_name

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]


async def field_of(admin: httpx2.AsyncClient, name: str, field: str) -> object:
    """A field of a server's record; None if there is no server."""
    return (await admin.get(f"/api/mcp-servers/{name}")).json().get(field)


async def bind(admin: httpx2.AsyncClient, name: str) -> None:
    """Give the tools of the server to the agent `mine`, under the prefix `far`."""
    binding = {"prefix": "far", "from": f"mcp:{name}", "scope": "shared"}
    assert (await admin.put("/api/toolset-bindings/far", json=binding)).status_code == 200

    async def allow() -> int:
        return (await admin.put("/api/agents/mine/toolsets", json={"toolsets": ["far"]})).status_code

    await everywhere(allow, 200)
    await everywhere(lambda: listed(admin, "mine"), ["far__hello"])


@asynccontextmanager
async def server(admin: httpx2.AsyncClient, deployment: Deployment, **body: object) -> AsyncIterator[str]:
    """An MCP server of the tenant, whose tools are known."""
    name = new_name("far")
    given = {"id": name, "url": f"{deployment.far}/mcp", "policy": "allow", **body}
    answer = await admin.post("/api/mcp-servers?wait=20", json=given)
    assert answer.status_code == 202, answer.text
    yield name
    await admin.delete(f"/api/mcp-servers/{name}")


async def test_a_server_is_shown_everywhere(
    admin: httpx2.AsyncClient, stranger: httpx2.AsyncClient, deployment: Deployment
) -> None:
    async with server(admin, deployment) as name:
        await everywhere(lambda: field_of(admin, name, "status"), "success")
        for _ in range(ROUNDS):
            shown = (await admin.get(f"/api/mcp-servers/{name}")).json()
            assert (shown["id"], shown["source"], shown["enabled"]) == (name, "api", True)
            assert [each["name"] for each in shown["tools"]] == ["hello"]
            assert name in [each["id"] for each in (await admin.get("/api/mcp-servers")).json()["servers"]]
            assert (await stranger.get(f"/api/mcp-servers/{name}")).status_code == 404
    await everywhere(lambda: field_of(admin, name, "status"), None)


async def test_its_tools_are_in_the_catalog_and_can_be_bound_and_called(
    admin: httpx2.AsyncClient, client: httpx2.AsyncClient, deployment: Deployment
) -> None:
    async with server(admin, deployment) as name:

        async def callable_() -> object:
            tools = {each["name"]: each for each in (await client.get("/api/catalog")).json()["tools"]}
            return tools.get(f"{name}/hello", {}).get("callable")

        await everywhere(callable_, False)
        await bind(admin, name)
        for _ in range(ROUNDS):
            called = await call(client, "far.hello", "mine", name="Ada")
            assert (called["status"], called["output"]) == ("success", "Hello, Ada!")


async def test_a_change_acts_at_once(
    admin: httpx2.AsyncClient, client: httpx2.AsyncClient, deployment: Deployment
) -> None:
    async with server(admin, deployment) as name:
        await bind(admin, name)
        expected = {"deny": "denied", "allow": "success", "disable": "unknown_tool"}
        for policy, status in [*expected.items(), ("allow", "success")]:
            changed = await admin.patch(f"/api/mcp-servers/{name}", json={"tools": {"hello": policy}})
            assert changed.status_code == 200, changed.text
            await everywhere(lambda: status_of(client, "far.hello", "mine"), status)
        for enabled in (False, True):
            await admin.patch(f"/api/mcp-servers/{name}", json={"enabled": enabled})
            await everywhere(lambda: field_of(admin, name, "enabled"), enabled)


async def test_a_discovery_on_demand_is_seen_everywhere(admin: httpx2.AsyncClient, deployment: Deployment) -> None:
    async with server(admin, deployment) as name:
        before = (await admin.get(f"/api/mcp-servers/{name}")).json()["lastDiscovery"]
        answer = await admin.post(f"/api/mcp-servers/{name}/discover?wait=20")
        assert (answer.status_code, answer.json()["status"]) == (200, "success")
        found = answer.json()["lastDiscovery"]
        assert found != before
        await everywhere(lambda: field_of(admin, name, "lastDiscovery"), found)


async def test_a_name_is_used_once(admin: httpx2.AsyncClient, deployment: Deployment) -> None:
    async with server(admin, deployment) as name:
        await everywhere(lambda: field_of(admin, name, "id"), name)
        for _ in range(3):
            answer = await admin.post("/api/mcp-servers", json={"id": name, "url": f"{deployment.far}/mcp"})
            assert answer.status_code == 409


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"id": "bad id", "url": "https://far.example/mcp"}, 422),
        ({"id": "no-url"}, 400),
        ({"id": "command", "command": "uvx", "args": []}, 403),
        ({"id": "file", "url": "file:///etc/passwd"}, 422),
        ({"id": "private", "url": "http://10.0.0.1/mcp"}, 422),
    ],
    ids=["bad id", "no url", "command", "file", "private"],
)
async def test_a_wrong_server_is_refused(admin: httpx2.AsyncClient, body: dict[str, object], status: int) -> None:
    answer = await admin.post("/api/mcp-servers", json=body)
    assert answer.status_code == status, answer.text
    assert (await admin.get(f"/api/mcp-servers/{body['id']}")).status_code == 404


async def test_a_server_of_the_file_is_not_changed_over_http(admin: httpx2.AsyncClient) -> None:
    shown = (await admin.get("/api/mcp-servers/infile")).json()
    assert shown["source"] == "file"
    answer = await admin.patch("/api/mcp-servers/infile", json={"url": "https://far.example/mcp"})
    assert error_of(answer) == (409, "in_file")
    assert error_of(await admin.delete("/api/mcp-servers/infile")) == (409, "in_file")


async def test_a_server_that_nobody_reaches_says_why(admin: httpx2.AsyncClient) -> None:
    body = {"id": new_name("dead"), "url": "http://127.0.0.1:9/mcp"}
    answer = await admin.post("/api/mcp-servers?wait=20", json=body)
    assert answer.status_code == 202
    shown: dict[str, Any] = {"status": "discovering"}
    async with asyncio.timeout(30):  # it is tried again, whether anybody asks or not
        while shown["status"] == "discovering":
            shown = (await admin.get(f"/api/mcp-servers/{body['id']}")).json()
    assert (shown["status"], bool(shown["error"])) == ("failed", True)
    await admin.delete(f"/api/mcp-servers/{body['id']}")
