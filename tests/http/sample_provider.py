"""A provider package for the tests of HTTP: tools and routes of every manner."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Annotated, Any

from prometheus_client import Counter
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from toolplug import CallContext, FunctionProvider, ToolError, ToolResult, ToolStatus, current_tenant, route, tool
from toolplug.errors import StoreUnavailable

LANGUAGE: ContextVar[str] = ContextVar("language", default="en")


class Options(BaseModel):
    """What the stub `sample` may carry."""

    depth: int = Field(1, ge=1)


class Sample(FunctionProvider):
    """Answers, fails and waits as it is told."""

    class Config(BaseModel):
        """How it starts."""

        fails: bool = False

    async def start(self, site: object) -> None:
        if self.config.fails:
            raise RuntimeError("told to fail")
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.shown = Counter("sample_shown", "How often a sample was shown", registry=None)

    def collectors(self) -> list[Counter]:
        return [self.shown]

    @tool(idempotent=True)
    async def echo(self, text: Annotated[str, Field(max_length=100_000)]) -> str:
        """Say it again."""
        return text

    @tool(read_only=True, stub="sample", stub_options=Options)
    async def whoami(self, context: CallContext) -> dict[str, object]:
        """Say who calls."""
        principal = context.principal
        return {
            "subject": principal.subject,
            "tenant": principal.tenant,
            "current": current_tenant(),
            "options": dict(context.options),
            "trace": context.request_id,
            "key": context.idempotency_key,
        }

    @tool
    async def language(self) -> str:
        """Say what the caller's context says."""
        return LANGUAGE.get()

    @tool
    async def context(self, context: CallContext) -> str:
        """Show everything that a tool is told."""
        return repr(context)

    @tool
    async def fails(self) -> str:
        """Fail on purpose."""
        raise ToolError("not today", retry_after_s=2.5, metadata={"reason": "weather"})

    @tool
    async def panics(self, secret: str) -> str:
        """Fail by accident."""
        raise RuntimeError(secret)

    @tool
    async def exits(self) -> str:
        """Leave the process."""
        raise SystemExit(3)

    @tool
    async def waits(self) -> str:
        """Wait until it is told to go on."""
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "went on"

    @tool
    async def waits_after_report(self, context: CallContext) -> str:
        """Report once, then wait until it is told to go on."""
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

    @tool
    def counts_in_a_thread(self, upto: int, context: CallContext) -> int:
        """Report each number from a thread."""
        for number in range(1, upto + 1):
            context.report(number)
        return upto

    @tool
    async def unavailable(self) -> ToolResult:
        """Say that what it needs is away."""
        return ToolResult(output="away", status=ToolStatus.UNAVAILABLE, metadata={"code": "idempotency_key_reused"})

    @tool
    async def big_numbers(self) -> dict[str, int]:
        """Give a number of more than 64 bits."""
        return {"n": 2**70}

    @route("GET", "/v1/samples")
    async def list_samples(self, request: Request) -> dict[str, object]:
        self.shown.inc()
        return {"tenant": request.state.tenant, "current": current_tenant(), "id": request.state.request_id}

    @route("GET", "/v1/language")
    async def say_language(self, request: Request) -> str:
        return LANGUAGE.get()

    @route("POST", "/v1/samples")
    async def add_sample(self, request: Request) -> Response:
        body = await request.body()
        return PlainTextResponse(str(len(body)), status_code=201)

    @route("GET", "/v1/samples/{name}")
    async def read_sample(self, request: Request) -> dict[str, Any]:
        return {"name": request.path_params["name"]}

    @route("GET", "/v1/samples/latest")
    async def latest_sample(self, request: Request) -> str:
        return "latest"

    @route("DELETE", "/v1/samples/{number:int}", scope="samples:write")
    async def remove_sample(self, request: Request) -> int:
        return request.path_params["number"] + 1

    @route("GET", "/v1/open", public=True)
    async def open_to_all(self, request: Request) -> str:
        return request.state.tenant

    @route("POST", "/v1/samples/files")
    async def upload(self, request: Request) -> int:
        return len(await request.body())

    @route("GET", "/v1/broken/{how}")
    async def broken(self, request: Request) -> Response:
        raise BREAKAGES[request.path_params["how"]]

    @route("GET", "/v1/half")
    async def half(self, request: Request) -> Response:
        async def chunks() -> Any:
            yield b"first"
            raise RuntimeError("the rest is lost")

        return StreamingResponse(chunks())

    @route("GET", "/v1/not-json")
    async def not_json(self, request: Request) -> object:
        return object()

    def routes(self) -> list[Route]:
        return [Route("/v1/plain/{rest:path}", _plain, methods=["GET", "PUT"])]

    async def aclose(self) -> None:
        self.closed_at = time.monotonic()


async def _plain(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.method} {request.path_params['rest']}")


BREAKAGES: dict[str, BaseException] = {
    "raises": RuntimeError("the secret of the handler"),
    "exits": SystemExit(7),
    "interrupts": KeyboardInterrupt(),
    "cancels": asyncio.CancelledError(),
    "gone": HTTPException(410, "it was here"),
    "busy": HTTPException(429, "later"),
    "patient": HTTPException(429, "later", headers={"Retry-After": "7"}),
    "store": StoreUnavailable("the disk is full"),
}
