"""The provider of the wire tests. `times` is shared by all processes: a file in the folder that they run in."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolplug import CallContext, FunctionProvider, ToolError, ToolResult, prompt, resource, route, tool

BOARD = Path("board")


def ran(name: str) -> int:
    """Count a run under this name; gives how many there have been in all processes."""
    BOARD.mkdir(exist_ok=True)
    with (BOARD / name).open("ab", buffering=0) as file:
        file.write(b".")
        return os.fstat(file.fileno()).st_size


class Depth(BaseModel):
    """What the stub `look_up` may carry."""

    depth: int = Field(1, ge=1)


class WireTools(FunctionProvider):
    """Tools that answer, fail, wait and count."""

    @tool(idempotent=True)
    async def echo(self, text: str) -> str:
        """Say it again."""
        return text

    @tool
    async def plus(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @tool(read_only=True)
    async def whoami(self, context: CallContext) -> dict[str, object]:
        """Say who calls."""
        me = context.principal
        return {"subject": me.subject, "tenant": me.tenant, "agent": context.agent, "session": context.session}

    @tool
    async def times(self, name: str) -> int:
        """Say how often this has been run with this name."""
        return ran(name)

    @tool
    async def first(self, name: str) -> int:
        """Do what must be approved."""
        return ran(name)

    @tool
    async def never(self) -> str:
        """Do what is not allowed."""
        return "done"

    @tool
    async def unseen(self) -> str:
        """Do what is switched off."""
        return "done"

    @tool
    async def fails(self, why: str) -> str:
        """Fail on purpose."""
        raise ToolError(why, metadata={"reason": why})

    @tool
    async def panics(self, secret: str) -> str:
        """Fail by accident."""
        raise RuntimeError(secret)

    @tool(timeout=0.3)
    async def waits(self, seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "waited"

    @tool
    async def naps(self, seconds: float, name: str) -> str:
        """Wait, and count what was waited for."""
        await asyncio.sleep(seconds)
        return f"run {ran(name)}"

    @tool
    async def reports(self, upto: int, context: CallContext) -> int:
        """Report each number."""
        for number in range(1, upto + 1):
            context.report(number, upto, f"number {number}")
            await asyncio.sleep(0)
        return upto

    @tool
    async def draws(self) -> ToolResult:
        """Draw a picture."""
        return ToolResult(output="here", parts=({"type": "image", "data": "UE5H", "mimeType": "image/png"},))

    @tool
    async def gives(self, value: Any) -> Any:
        """Give a value back."""
        return value

    @tool
    async def long(self, characters: int) -> str:
        """Write a long text."""
        return "x" * characters

    @tool(stub="look_up", stub_options=Depth)
    async def look_up(self, word: str, context: CallContext) -> str:
        """Look a word up."""
        return f"{word} at depth {context.options.get('depth', 1)}"

    @prompt
    async def greeting(self, name: str) -> str:
        """Greet."""
        return f"Say hello to {name}."

    @resource("wire://drawer", mime_type="text/plain")
    async def drawer(self) -> str:
        """What the drawer has."""
        return "a pen"

    @route("GET", "/v1/wire/{name}")
    async def read_name(self, request: Request) -> dict[str, object]:
        return {"name": request.path_params["name"], "tenant": request.state.tenant}

    @route("POST", "/v1/wire", scope="wire:write")
    async def write_body(self, request: Request) -> Response:
        return JSONResponse({"length": len(await request.body())}, status_code=201)

    @route("GET", "/v1/wire-broken")
    async def broken(self, request: Request) -> Response:
        raise RuntimeError("the secret of the handler")


class Spare(FunctionProvider):
    """Is switched off and on."""

    @tool
    async def comes(self) -> str:
        """Be there."""
        return "there"
