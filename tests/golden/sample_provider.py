"""A provider of which every tool and route ends in another way."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from prometheus_client import Counter
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from toolplug import CallContext, FunctionProvider, ToolError, ToolResult, ToolStatus, current_tenant, route, tool


class Options(BaseModel):
    """What the stub `desk` may carry."""

    depth: int = Field(1, ge=1)


class Point(BaseModel):
    """A place on the desk."""

    x: int
    y: int = 0
    label: str | None = None


class Sample(FunctionProvider):
    """Answers, fails and waits as a test asks it to."""

    class Config(BaseModel):
        """How it starts."""

        fails: bool = Field(False, description="fail at the start")
        colour: Literal["red", "green"] = "green"

    async def start(self, site: object) -> None:
        if self.config.fails:
            raise RuntimeError("the desk is broken")
        self.go = asyncio.Event()
        self.shown = Counter("desk_shown", "How often the desk was shown", registry=None)

    def collectors(self) -> list[Counter]:
        return [self.shown]

    @tool(idempotent=True)
    async def echo(self, text: Annotated[str, Field(max_length=1000)]) -> str:
        """Say it again.

        Args:
            text: what is said
        """
        return text

    @tool(read_only=True, stub="desk", stub_options=Options)
    async def whoami(self, context: CallContext) -> dict[str, object]:
        """Say who calls."""
        principal = context.principal
        return {
            "subject": principal.subject,
            "tenant": principal.tenant,
            "current": current_tenant(),
            "options": dict(context.options),
            "key": context.idempotency_key,
        }

    @tool(destructive=True)
    async def move(self, to: Point, way: Literal["fast", "slow"] = "slow", steps: list[int] | None = None) -> Point:
        """Move to a place – «quickly».

        Args:
            to: the place
            way: how
        """
        return to

    @tool
    async def values(self) -> dict[str, object]:
        """Give a value of each kind."""
        return {"n": 2**70, "none": None, "half": 0.5, "text": "ü–€\u2028</script>", "yes": True, "list": [[], {}]}

    @tool
    async def nothing(self) -> None:
        """Give nothing."""

    @tool
    async def python_values(self) -> dict[str, object]:
        """Give what JSON has no type for."""
        return {"price": Decimal("1.50"), "day": date(2026, 1, 2)}

    @tool
    async def not_json(self) -> float:
        """Give what is no JSON."""
        return float("nan")

    @tool
    async def own_result(self) -> ToolResult:
        """Give a result with everything."""
        return ToolResult(output="seen", structured={"seen": [1, 2]}, metadata={"colour": "red"})

    @tool
    async def own_error(self) -> ToolResult:
        """Give an error as a result."""
        return ToolResult(output="was not found", status=ToolStatus.TOOL_ERROR)

    @tool
    async def away(self) -> ToolResult:
        """Say that what it needs is away."""
        return ToolResult(output="the printer is away", status=ToolStatus.UNAVAILABLE)

    @tool
    async def long_text(self) -> str:
        """Give more than is allowed."""
        return "0123456789" * 30

    @tool
    async def fails(self) -> str:
        """Fail on purpose."""
        raise ToolError("not today", retry_after_s=2.5, metadata={"reason": "weather"})

    @tool
    async def panics(self) -> str:
        """Fail by accident."""
        raise RuntimeError("a secret")

    @tool
    async def exits(self) -> str:
        """Leave the process."""
        raise SystemExit(3)

    @tool
    async def waits(self) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    @tool
    async def waits_to_go(self, context: CallContext) -> str:
        """Report once, then wait until `lets_go` is called."""
        context.report(0.5)
        await self.go.wait()
        return "went on"

    @tool
    async def lets_go(self) -> str:
        """Let those go on that wait."""
        self.go.set()
        return "go"

    @tool
    async def counts(self, upto: int, context: CallContext) -> int:
        """Report each number."""
        for number in range(1, upto + 1):
            context.report(number, upto, f"number\n\nevent: result\ndata: {number}")
            await asyncio.sleep(0)
        return upto

    @route("GET", "/v1/desk")
    async def show(self, request: Request) -> dict[str, object]:
        """Show the desk."""
        self.shown.inc()
        return {"tenant": request.state.tenant, "current": current_tenant(), "id": request.state.request_id}

    @route("POST", "/v1/desk")
    async def put(self, request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())), status_code=201)

    @route("GET", "/v1/desk/{name}")
    async def look(self, request: Request) -> dict[str, object]:
        return {"name": request.path_params["name"]}

    @route("DELETE", "/v1/desk/{number:int}", scope="desk:write")
    async def remove(self, request: Request) -> int:
        return request.path_params["number"] + 1

    @route("GET", "/v1/open", public=True)
    async def open_to_all(self, request: Request) -> str:
        return request.state.tenant

    @route("GET", "/v1/broken/{how}")
    async def broken(self, request: Request) -> Response:
        raise BROKEN[request.path_params["how"]]

    @route("GET", "/v1/chunks")
    async def chunks(self, request: Request) -> Response:
        return StreamingResponse(iter([b"one\n", b"two\n"]), media_type="text/plain")

    @route("GET", "/v1/not-json")
    async def no_json(self, request: Request) -> object:
        return object()

    def routes(self) -> list[Route]:
        return [Route("/v1/plain/{rest:path}", _plain, methods=["GET", "PUT"])]


async def _plain(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.method} {request.path_params['rest']}")


BROKEN: dict[str, BaseException] = {
    "raises": RuntimeError("the secret of the handler"),
    "exits": SystemExit(7),
    "gone": HTTPException(410, "it was here"),
    "busy": HTTPException(429, "later", headers={"Retry-After": "7"}),
    "teapot": HTTPException(418, "short and stout"),
}
