"""Servers that misbehave at their prompts and resources behind a host: what others offer goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpx2 import Client as HttpClient
from mcp_types import PromptReference
from tests.http.conftest import KEYS, ROOT, with_agents_of_keys
from tests.http.served import served
from tests.mcp.client import hostile
from tests.mcp.conftest import Opened
from tests.mcp.forking import Forked
from tests.mcp.servers import offering_server
from tests.mcp.test_passed_through import WAIT_S, refusal, texts
from tests.mcp.test_tools import text_of

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.mcp, pytest.mark.anyio, pytest.mark.requirement("I14-5-passed-through", "H-mcp-floods")]

MODES = {"mute": "offers and is mute", "flood": "offers a flood", "dying": "offers and dies", "big": "offers 10 MB"}


@pytest.fixture(scope="module")
def url(forked: Forked) -> Iterator[str]:
    """Where a host with each of them and a sane server is served, after it has discovered and started all."""
    script = Path(hostile.__file__)
    servers = {
        name: {
            "command": sys.executable,
            "args": [script.name, mode],
            "cwd": str(script.parent),
            "prefix": name,
            "limits": {"timeout": "1s" if name == "mute" else "30s"},
            "tools": {"echo": {"limits": {"timeout": "30s"}}},  # it starts the server
        }
        for name, mode in MODES.items()
    }
    command, *arguments = forked(offering_server.__file__, "stdio")
    library = {"command": command, "args": arguments, "prefix": "library"}
    whole = {"store": "memory://", "auth": KEYS, "mcp_servers": {**servers, "library": library}}
    host = open_host(with_agents_of_keys(whole), environ={})
    with (
        served(host, create_app(host)) as port,
        HttpClient(base_url=f"http://127.0.0.1:{port}", headers=ROOT, timeout=2 * WAIT_S) as http,
    ):
        for name in (*MODES, "library"):
            assert http.post(f"/api/mcp-servers/{name}/discover?wait=30s").json()["status"] == "success"
        for call in ({"name": "library.touch", "arguments": {"uri": "a:b"}}, {"name": "mute.echo"}):
            assert http.post("/v1/tool-calls", json=call).json()["status"] == "success"
        yield f"http://127.0.0.1:{port}"


@pytest.mark.leaves("process")
async def test_their_requests_fail_in_words_and_no_other(opened: Opened) -> None:
    async with asyncio.timeout(2 * WAIT_S), opened() as client:
        assert len((await client.list_prompts()).prompts) == len(MODES) + 2
        asked = PromptReference(name="mute__ask")
        refused, sane, completed = await asyncio.gather(
            asyncio.gather(*(refusal(client.get_prompt(f"{name}__ask")) for name in MODES)),
            asyncio.gather(*(client.get_prompt("library.summarize", {"book": f"{n}"}) for n in range(10))),
            refusal(client.complete(asked, {"name": "what", "value": ""})),
        )
        assert [texts(prompt) for prompt in sane] == [[f"Summarize {n}."] for n in range(10)]
        assert refused == [
            (-32603, 'prompt "mute__ask" timed out after 1 s'),
            (-32603, "prompt \"flood__ask\" is unavailable: its server 'flood' is down"),
            (-32603, "prompt \"dying__ask\" is unavailable: its server 'dying' is down"),
            (-32603, "prompt \"big__ask\" is unavailable: its server 'big' is down"),
        ]
        assert completed == refused[0]
        assert text_of(await client.call_tool("mute__echo", {"a": 1})) == '{"a": 1}'
