"""Calls that no request waits for, when the host closes: they drain, and what waits for them gets their results."""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.responses.backend.script import Call, calls, says
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.serving import serving

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TOOLS = """
    import asyncio
    from pathlib import Path
    from toolplug import hookimpl, tool

    @hookimpl
    async def after_call(call, context, result):
        "Take a moment after the tool itself has ended: its result is not there yet."
        await asyncio.sleep(0.2)

    @tool
    async def pause(file: str) -> str:
        "Rest for a moment, once the file is there."
        Path(file).touch()
        await asyncio.sleep(0.3)
        return "rested"
"""

Serve = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
async def backend() -> AsyncIterator[tuple[ScriptedBackend, str]]:
    """A scripted model and its URL."""
    script = ScriptedBackend()
    async with serving(script) as url:
        yield script, url


@pytest.fixture
def serve(in_process_host: Any, tmp_path: Path, backend: tuple[ScriptedBackend, str]) -> Serve:
    """Opens a host with the tool; again, it is the same one restarted."""
    (tmp_path / "tools.py").write_text(textwrap.dedent(TOOLS), "utf-8")

    def open_it(drain: str = "30s") -> Any:
        return in_process_host(
            {
                "limits": {"drain": drain},
                "providers": {"own": {"type": "./tools.py", "enabled": True}},
                "toolsets": {"own": {"prefix": "own", "from": "provider:own", "scope": "shared"}},
                "sessions": {"default_toolset": "own"},
                "responses": {"backend": {"base_url": f"{backend[1]}/v1", "api_key": "-", "model": "scripted"}},
            }
        )

    return open_it


async def begin_queued(client: Any, file: Path) -> str:
    """Queue a call in a session and return its place."""
    code = (await client.post("/api/sessions", json={})).json()["code"]
    body = {"tool": "own.pause", "arguments": {"file": str(file)}, "wait": False}
    taken = await client.post(f"/api/sessions/{code}/tool-calls", json=body)
    assert taken.status_code == 202, taken.text
    return f"/api/sessions/{code}/tool-calls/{taken.json()['id']}"


async def until_there(file: Path) -> None:
    """Wait for a file that a tool makes."""
    while not file.exists():
        await asyncio.sleep(0.005)


async def place_of(answer: Any) -> str:
    """Return the place of a response, from the first of its answer that has its id."""
    text = ""
    async for part in answer.aiter_text():
        text += part
        if found := re.search(r"resp_[0-9a-f]{32}", text):
            return f"/v1/responses/{found[0]}"
    raise AssertionError(text)


@pytest.mark.parametrize(("drain", "status"), [("30s", "success"), ("0s", "timeout")])
async def test_a_queued_call_keeps_its_result(serve: Serve, tmp_path: Path, drain: str, status: str) -> None:
    began = tmp_path / "began"
    async with serve(drain) as served:
        place = await begin_queued(served.nobody, began)
        await until_there(began)
    async with serve() as served:
        found = (await served.nobody.get(place)).json()
        assert (found["status"], found["result"]["status"]) == ("done", status)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_response_in_the_background_is_completed(
    serve: Serve, tmp_path: Path, backend: tuple[ScriptedBackend, str], streamed: bool
) -> None:
    began = tmp_path / "began"
    backend[0].plays(calls(Call("pause", f'{{"file": "{began.as_posix()}"}}', "call_1")), says("Done."))
    async with serve() as served:
        body = {"input": "Rest.", "background": True, "stream": streamed}
        async with served.nobody.stream("POST", "/v1/responses", json=body) as answer:
            place = await place_of(answer)
        await until_there(began)
    async with serve() as served:
        found = (await served.nobody.get(place)).json()
        assert found["status"] == "completed"
        [call, message] = [item for item in found["output"] if item["type"] != "mcp_list_tools"]
        assert (call["type"], call["output"], message["content"][0]["text"]) == ("mcp_call", "rested", "Done.")
