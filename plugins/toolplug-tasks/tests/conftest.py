"""A host with tasks and slow tools."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from toolplug import Principal

_SCOPES = frozenset({"tools:read", "tools:call"})
ANN = Principal(subject="ann", tenant="t1", scopes=_SCOPES)
BOB = Principal(subject="bob", tenant="t1", scopes=_SCOPES)
BOSS = Principal(subject="boss", tenant="t1", scopes=_SCOPES | {"approvals:write"})
FAR = Principal(subject="ann", tenant="t2", scopes=_SCOPES)

TOOLS = """
    import asyncio
    from pathlib import Path
    from toolplug import CallContext, ToolError, tool

    @tool
    async def wait_for(file: str, context: CallContext) -> str:
        "Wait for a file."
        context.report(1, 3, "looking")
        while not Path(file).exists():
            await asyncio.sleep(0.01)
        return "it is there"

    @tool
    async def pause() -> str:
        "Rest for a moment, within the drain of any provider."
        await asyncio.sleep(0.3)
        return "rested"

    @tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    @tool
    async def fail_after(file: str) -> str:
        "Fail once a file is there."
        while not Path(file).exists():
            await asyncio.sleep(0.01)
        raise ToolError("it cannot be done")

    @tool
    async def book(context: CallContext) -> str:
        "Ask for a number of seats, and book them."
        schema = {"type": "object", "properties": {"seats": {"type": "integer"}}}
        answer = await context.ask("How many seats?", schema)
        return f"{answer.action}: {answer.content.get('seats')}"
"""


Serve = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def serve(in_process_host: Any, tmp_path: Path) -> Serve:
    """Opens a host with these settings of tasks; again, it is the same one restarted."""
    (tmp_path / "tools.py").write_text(textwrap.dedent(TOOLS), "utf-8")

    def open_it(host: Mapping[str, object] = MappingProxyType({}), **settings: object) -> Any:
        whole = {
            "tasks": {"tasks_after": "50ms", **settings},
            "limits": {"drain": "0s"},  # most tests leave a call that would run on
            "providers": {"own": {"type": "./tools.py", "enabled": True, "tools": {"add": "ask"}}},
            **host,
        }
        return in_process_host(json.loads(json.dumps(whole)), principals=[ANN, BOB, BOSS])

    return open_it


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
