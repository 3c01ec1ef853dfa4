"""Allowlists of agents and bindings of toolsets, changed over HTTP: they act at once, at every process."""

from __future__ import annotations

import httpx2
import pytest
from tests.wire.answers import error_of, everywhere, listed, status_of
from tests.wire.callers import Caller

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]


async def allowed(client: httpx2.AsyncClient, agent: str) -> list[str]:
    """The toolsets of an agent."""
    return (await client.get(f"/api/agents/{agent}/toolsets")).json()["toolsets"]


async def greetings_of(client: httpx2.AsyncClient) -> list[str]:
    """The tools of one toolset among those of the agent."""
    return [name for name in await listed(client, "mine") if name.startswith("greet")]


async def test_an_allowlist_acts_at_once(client: httpx2.AsyncClient, admin: httpx2.AsyncClient) -> None:
    for toolsets in (["greetings"], [], ["greetings", "wires"], ["wires"]) * 2:
        answer = await admin.put("/api/agents/mine/toolsets", json={"toolsets": toolsets})
        assert (answer.status_code, answer.json()["toolsets"]) == (200, toolsets)
        await everywhere(lambda: allowed(admin, "mine"), toolsets)
        names = {"greetings": ["greet__hello"], "wires": []}
        greetings = [name for toolset in toolsets for name in names[toolset]]
        await everywhere(lambda: greetings_of(client), greetings)
        await everywhere(lambda: status_of(client, "greet.hello", "mine"), "success" if greetings else "unknown_tool")


async def test_an_allowlist_is_that_of_its_tenant(admin: httpx2.AsyncClient, caller: Caller) -> None:
    other = await caller(scope="tools:read tools:call admin")
    await admin.put("/api/agents/greeter/toolsets", json={"toolsets": []})
    await everywhere(lambda: allowed(admin, "greeter"), [])
    await everywhere(lambda: allowed(other, "greeter"), ["greetings"])


async def test_an_unknown_toolset_changes_nothing(admin: httpx2.AsyncClient) -> None:
    await admin.put("/api/agents/mine/toolsets", json={"toolsets": ["greetings"]})
    answer = await admin.put("/api/agents/mine/toolsets", json={"toolsets": ["wires", "nothing"]})
    assert error_of(answer) == (422, "unknown_toolset")
    await everywhere(lambda: allowed(admin, "mine"), ["greetings"])


@pytest.mark.parametrize("body", [{}, {"toolsets": "greetings"}, {"toolsets": [1]}, {"toolsets": [], "x": 1}])
async def test_a_wrong_body_is_refused(admin: httpx2.AsyncClient, body: dict[str, object]) -> None:
    answer = await admin.put("/api/agents/mine/toolsets", json=body)
    assert error_of(answer) == (400, "invalid_request")


async def test_an_agent_of_nobody_has_nothing(admin: httpx2.AsyncClient) -> None:
    assert (await admin.get("/api/agents/nobody/toolsets")).json()["toolsets"] == []
    assert await listed(admin, "nobody") == []


async def test_a_binding_acts_at_once(client: httpx2.AsyncClient, admin: httpx2.AsyncClient) -> None:
    for number in range(4):
        binding = {"prefix": f"p{number}", "from": "provider:hello", "scope": "shared"}
        answer = await admin.put("/api/toolset-bindings/mine", json=binding)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"id": "mine", **binding}
        if number == 0:

            async def allow() -> int:
                return (await admin.put("/api/agents/mine/toolsets", json={"toolsets": ["mine"]})).status_code

            await everywhere(allow, 200)
        await everywhere(lambda: listed(client, "mine"), [f"p{number}__hello"])
        assert await status_of(client, f"p{number}.hello", "mine") == "success"
        if number:
            assert await status_of(client, f"p{number - 1}.hello", "mine") == "unknown_tool"


@pytest.mark.parametrize(
    ("binding", "status"),
    [
        ({"prefix": "greet", "from": "provider:hello"}, 409),
        ({"prefix": "a.b", "from": "provider:hello"}, 422),
        ({"prefix": "", "from": "provider:hello"}, 422),
        ({"prefix": "mine", "from": "provider:nothing"}, 422),
        ({"prefix": "mine", "from": "mcp:nothing"}, 422),
        ({"prefix": "mine", "from": "nothing"}, 422),
        ({"prefix": "mine"}, 400),
    ],
)
async def test_a_wrong_binding_is_refused(admin: httpx2.AsyncClient, binding: dict[str, str], status: int) -> None:
    answer = await admin.put("/api/toolset-bindings/other", json=binding)
    assert answer.status_code == status, answer.text
    answer = await admin.put("/api/agents/mine/toolsets", json={"toolsets": ["other"]})
    assert error_of(answer) == (422, "unknown_toolset")
