"""Open WebUI makes the calls itself: the host is a tool server of it, by its OpenAPI document or over MCP."""

from __future__ import annotations

import pytest
from tests.clients.environments import chosen_clients
from tests.clients.test_matrix import NEWEST_MODEL, Program, running
from tests.responses.backend.script import Call, calls, says
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.harness import Harness
from tests.responses.serving import serving

CLIENT = "open_webui chat"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.timeout(900),
    pytest.mark.leaves("task", "thread", "process"),
    pytest.mark.requirement("I32-open-webui"),
    pytest.mark.skipif(CLIENT not in chosen_clients(), reason="too large: it runs in make judge-many"),
]

WAYS = {
    "openapi": ("add", {"type": "openapi", "path": "openapi.json"}),
    "mcp": ("desk_add", {"type": "mcp", "path": "mcp"}),
}
"""The wire name that the model is offered, and what the page says of the tool server."""


async def call_a_tool(program: Program, harness: Harness, way: str) -> None:
    name, server = WAYS[way]
    backend = ScriptedBackend()
    backend.plays(calls(Call(name, '{"a": 1, "b": 2}')), says("3"))
    mcp = way == "mcp"
    desk = {
        **server,
        "url": f"{harness.url}/mcp" if mcp else harness.url,
        "auth_type": "bearer",
        "key": "alice-key",
        "config": {"enable": True},
        "info": {"id": "desk", "name": "desk", "description": ""},
    }
    async with serving(backend) as model:
        job = {
            "url": f"{model}/v1",
            "key": "none",
            "model": NEWEST_MODEL,
            "prompts": ["Go"],
            "stream": True,
            "own": False,
        }
        own = {"servers": [desk], "tools": ["server:mcp:desk" if mcp else "server:desk"]}
        assert await program.do({**job, **own}) == {"texts": ["3"]}
    assert harness.board.log == ["add 1 2"]
    assert "3" in str(backend.asked[-1].messages[-1]["content"])
    harness.board.clear()


async def test_a_model_of_open_webui_calls_tools_of_the_host(shared_stage: Harness) -> None:
    async with running(CLIENT) as program:
        for way in WAYS:
            await call_a_tool(program, shared_stage, way)
