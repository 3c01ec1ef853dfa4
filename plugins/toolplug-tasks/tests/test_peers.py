"""The client and the server of `fastmcp-tasks`, which nobody here wrote, with the server and the client of a host."""

from __future__ import annotations

import asyncio
import json
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.clients.environments import PROGRAMS, environment
from tests.http.served import served
from tests.kept_port import kept_port
from tests.mcp.task_client import FORMS, with_tasks

from toolplug import Principal, open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.judge, pytest.mark.anyio, pytest.mark.requirement("I39-tasks-peers")]

PEER = "fastmcp_tasks"
OPS = Principal(subject="ops", tenant="t1", scopes=frozenset({"admin", "operator", "tools:call"}))
WAIT_S = 120
TOOLS = """
    import asyncio
    from pathlib import Path
    from toolplug import CallContext, ToolError, tool

    @tool
    async def wait_for(file: str) -> str:
        "Wait for a file."
        while not Path(file).exists():
            await asyncio.sleep(0.01)
        return "it is there"

    @tool
    async def book(context: CallContext) -> str:
        "Ask for a number of seats, and book them."
        schema = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
        answer = await context.ask("How many seats?", schema)
        return f"{answer.action}: {answer.content.get('seats')}"

    @tool
    async def fail_late() -> str:
        "Fail after a moment."
        await asyncio.sleep(0.5)
        raise ToolError("it cannot be done")
"""
SAID = {
    "first": "working",
    "waited": "it is there",
    "asked": "accept: 3",
    "cancelled": "cancelled",
    "failed": "it cannot be done",
}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    """The URL of a host with tasks."""
    (tmp_path / "tools.py").write_text(textwrap.dedent(TOOLS), "utf-8")
    (tmp_path / "providers.yaml").write_text(
        "tasks: {tasks_after: 50ms}\nproviders: {own: {type: ./tools.py, enabled: true}}\nstore: memory://\n", "utf-8"
    )
    opened = open_host(tmp_path / "providers.yaml", environ={})
    with served(opened, create_app(opened)) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[str]:
    """The URL of the peer's server."""
    program = [environment(PEER) / "bin" / "python", PROGRAMS / "serve_fastmcp_tasks.py"]
    with kept_port() as port, (tmp_path / "peer.log").open("w") as log:
        process = subprocess.Popen([*program, str(port)], stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
            process.wait()


def use(url: str, file: Path) -> dict[str, Any]:
    """What the client of the peer gets of a server."""
    program = [environment(PEER) / "bin" / "python", PROGRAMS / "use_fastmcp_tasks.py", url, file]
    done = subprocess.run(program, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_their_client_drives_tasks_of_a_host(host: str, tmp_path: Path) -> None:
    assert use(host, tmp_path / "a") == SAID


async def test_a_host_drives_tasks_of_their_server(peer: str, in_process_host: Any, tmp_path: Path) -> None:
    whole = {"tasks": {"tasks_after": "1h"}, "mcp_servers": {"far": {"url": peer, "prefix": "far"}}}
    async with in_process_host(whole, principals=[OPS]) as here:
        caller = here.callers["ops"]
        until = monotonic() + WAIT_S
        while True:
            found = await caller.client.post("/api/mcp-servers/far/discover?wait=30s", timeout=60)
            if found.json()["status"] == "success":
                break
            assert monotonic() < until, found.text  # generous: the server of the peer starts in seconds
            await asyncio.sleep(0.2)
        waiting = asyncio.create_task(caller.call("far.wait_for", file=str(tmp_path / "a")))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        (tmp_path / "a").touch()
        assert (await waiting).output == "it is there"
        failed = await caller.call("far.fail_late")
        assert (failed.status, failed.output) == ("tool_error", "it cannot be done")
        user = with_tasks(caller.client, **FORMS)
        task = await user.call("far__book")
        asks = await user.ended(task["taskId"], until=lambda each: each["status"] == "input_required")
        ((name, request),) = asks["inputRequests"].items()
        assert request["params"]["message"] == 'The MCP server "far" asks, for the tool "book":\n\nHow many seats?'
        answer = {name: {"action": "accept", "content": {"seats": 3}}}
        await user.send("tasks/update", taskId=task["taskId"], inputResponses=answer)
        done = await user.ended(task["taskId"])
        assert done["result"]["content"][0]["text"] == "accept: 3"
