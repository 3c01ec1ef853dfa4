"""Servers that answer a call by a task, with a host that drives it to its end."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.http.served import served
from tests.mcp.task_client import FORMS, with_tasks

from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug.http import create_app

Near = Callable[..., AbstractAsyncContextManager[Any]]

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("I39-tasks-servers")]

OPS = Principal(subject="ops", tenant="t1", scopes=frozenset({"admin", "operator"}))
ANN = Principal(subject="ann", tenant="t1", scopes=frozenset({"tools:read", "tools:call"}))
FAR_TOOLS = """
    import asyncio
    from pathlib import Path
    from toolplug import CallContext, tool

    @tool
    async def wait_for(file: str, context: CallContext) -> str:
        "Wait for a file; leave another one when the call is ended."
        context.report(1, 3, "looking")
        try:
            while not Path(file).exists():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            Path(file + ".ended").touch()
            raise
        return "it is there"

    @tool
    async def book(context: CallContext) -> str:
        "Ask for a number of seats, and book them."
        schema = {"type": "object", "properties": {"seats": {"type": "integer"}}}
        answer = await context.ask("How many seats?", schema)
        return f"{answer.action}: {answer.content.get('seats')}"
"""


@pytest.fixture
def far(tmp_path: Path) -> Iterator[str]:
    """The URL of a host that answers calls of these tools by tasks."""
    folder = tmp_path / "far"
    folder.mkdir()
    (folder / "tools.py").write_text(textwrap.dedent(FAR_TOOLS), "utf-8")
    (folder / "providers.yaml").write_text(
        "tasks: {tasks_after: 50ms}\nproviders: {own: {type: ./tools.py, enabled: true}}\nstore: memory://\n", "utf-8"
    )
    host = open_host(folder / "providers.yaml", environ={})
    with served(host, create_app(host)) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture
def near(far: str, in_process_host: Any) -> Near:
    """Opens a host in front of that one, which has discovered its tools."""

    @asynccontextmanager
    async def opened(**server: object) -> AsyncGenerator[Any]:
        entry = {"url": far, "prefix": "far", **server}
        whole = {"tasks": {"tasks_after": "1h"}, "mcp_servers": {"far": entry}}
        async with in_process_host(whole, principals=[ANN, OPS]) as here:
            found = await here.callers["ops"].client.post("/api/mcp-servers/far/discover?wait=30s", timeout=60)
            assert found.json()["status"] == "success"
            yield here

    return opened


async def test_the_task_of_a_server_is_driven_to_its_end_with_its_progress(near: Near, tmp_path: Path) -> None:
    heard: list[tuple[object, ...]] = []

    def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        heard.append((progress, total, message))
        if message == "1 of 3: looking":
            (tmp_path / "a").touch()

    async with near() as here:
        call = ToolCall("1", "far.wait_for", {"file": str(tmp_path / "a")})
        result = await here.host.executor_for(ANN).execute(call, CallContext(ANN, report=report))
        assert (result.status, result.output) == ("success", "it is there")
        assert heard[-1][2] == "1 of 3: looking"


async def test_a_call_that_ends_before_its_task_cancels_it(near: Near, tmp_path: Path) -> None:
    async with near(limits={"timeout": "2s"}) as here:
        result = await here.callers["ann"].call("far.wait_for", file=str(tmp_path / "a"))
        assert result.status == "timeout"
        async with asyncio.timeout(20):
            while not (tmp_path / "a.ended").exists():  # noqa: ASYNC110  the server is another host
                await asyncio.sleep(0.02)


async def test_a_question_of_a_task_goes_to_the_user_of_the_caller(near: Near) -> None:
    async with near() as here:
        ann = with_tasks(here.callers["ann"].client, **FORMS)
        task = await ann.call("far__book")
        asks = await ann.ended(task["taskId"], until=lambda each: each["status"] == "input_required")
        ((name, request),) = asks["inputRequests"].items()
        assert request["params"]["message"] == 'The MCP server "far" asks, for the tool "book":\n\nHow many seats?'
        answer = {name: {"action": "accept", "content": {"seats": 3}}}
        await ann.send("tasks/update", taskId=task["taskId"], inputResponses=answer)
        done = await ann.ended(task["taskId"])
        assert done["result"]["content"][0]["text"] == "accept: 3"
