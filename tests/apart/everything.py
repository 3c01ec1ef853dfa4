"""A provider with everything that a provider can have; it runs in the process of a test or in one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal

from prometheus_client import Counter, Histogram
from pydantic import BaseModel, SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from toolplug import (
    CallContext,
    FunctionProvider,
    Prompt,
    PromptArgument,
    ProviderContext,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolResult,
    ToolUnavailable,
    prompt,
    resource,
    route,
    tool,
)
from toolplug.catalog.call import current_tenant
from toolplug.hookspecs import hookimpl

DEEP = 10**30
"""An integer over 64 bits."""


class Inner(BaseModel):
    """An argument with fields."""

    size: int
    tags: list[str] = []


class Everything(FunctionProvider):
    """Everything."""

    class Config(BaseModel):
        """Settings."""

        word: str = "milk"
        key: SecretStr = SecretStr("none")

    config: Config

    async def start(self, site: ProviderContext) -> None:
        self.site = site
        self.calls = Counter("everything_calls", "Calls.", ["tool"], registry=None)
        self.took = Histogram("everything_seconds", "Seconds.", registry=None, buckets=(1, 2))
        print("everything is started")
        self.log.warning("with the key %s", self.config.key.get_secret_value())

    async def aclose(self) -> None:
        if hasattr(self, "site"):
            (self.site.state_dir / "closed").write_text("yes")

    @tool(read_only=True, title="Echo it", timeout=5)
    async def echo(self, value: str | int | float | list[int] | dict[str, Any] | None = None) -> Any:
        "Return the value."
        self.calls.labels("echo").inc()
        self.took.observe(0.5)
        return value

    @tool
    def blocking(self, seconds: float = 0.0) -> str:
        "Sleep in a thread."
        time.sleep(seconds)
        return current_tenant()

    @tool
    async def nested(self, inner: Inner) -> Inner:
        "Return the argument."
        return inner

    @tool
    async def who(self, context: CallContext) -> dict[str, Any]:
        "Say who calls, with what."
        left = None if context.deadline is None else context.deadline - asyncio.get_running_loop().time()
        return {
            "subject": context.principal.subject,
            "tenant": context.principal.tenant,
            "current": current_tenant(),
            "scopes": sorted(context.principal.scopes),
            "session": context.session,
            "request_id": context.request_id,
            "key": context.idempotency_key,
            "trace": dict(context.trace_context),
            "credentials": dict(context.credentials),
            "left": left is not None and 0 < left <= 600,
            "pid": os.getpid(),
            "environment": sorted(os.environ),
            "argv": " ".join(sys.argv),
        }

    @tool
    async def rich(self) -> ToolResult:
        "Return everything that a result can have."
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        return ToolResult(output="text", structured={"big": DEEP}, parts=(image,), metadata={"source": "list"})

    @tool
    async def fail(self, how: Literal["tool_error", "unavailable", "crash", "exit"]) -> str:
        "Fail."
        if how == "tool_error":
            raise ToolError("there is none", metadata={"code": "none"}, retry_after_s=3)
        if how == "unavailable":
            raise ToolUnavailable("closed", code="closed", retry_after_s=60)
        if how == "exit":
            raise SystemExit(3)
        raise ValueError("a text with a secret")

    @tool
    async def note(self, context: CallContext, text: str) -> list[str]:
        "Write a note of the caller's tenant, and list all."
        store = self.site.store(context.principal)
        record = await store.read("notes")
        notes = [*json.loads(record.value if record else b"[]"), text]
        await store.commit("notes", json.dumps(notes).encode(), expected=record.revision if record else 0)
        assert await store.keys() == ["notes"]
        return notes

    @tool
    async def ask(self, context: CallContext) -> str:
        "Ask the user, and report."
        context.report(1, 2, "asked")
        answer = await context.ask("how many?", {"type": "object", "properties": {}})
        context.report(2, 2, "answered")  # and no pause before the result
        return f"{answer.action} {answer.content}"

    @tool
    async def chain(self, context: CallContext, depth: int) -> str:
        "Call itself through the tools of the caller."
        if depth:
            return (await context.tools.call("chain", {"depth": depth - 1}, context)).output
        return context.principal.tenant

    @tool
    async def hang(self, how: Literal["wait", "deaf", "block"] = "wait", mark: str = "") -> str:
        "Never return; make an empty file first."
        if mark:
            open(mark, "x").close()
        if how == "block":
            time.sleep(60)
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if how == "wait":
                    raise

    @tool
    async def die(self, code: int = 3) -> str:
        "End the process."
        os._exit(code)

    @tool
    async def large(self, size: int) -> str:
        "Return a long text."
        return "x" * size

    @tool
    async def data(self, size: int) -> list[int]:
        "Return long data."
        return [0] * size

    @route("GET", "/v1/things/{number:int}", scope="things:read")
    async def thing(self, request: Request) -> dict[str, Any]:
        "Return what the request has."
        return {
            "number": request.path_params["number"],
            "tenant": request.state.tenant,
            "subject": request.state.principal.subject,
            "query": dict(request.query_params),
            "authorization": request.headers.get("authorization"),
            "current": current_tenant(),
        }

    @route("POST", "/v1/open", public=True)
    async def upload(self, request: Request) -> Response:
        "Count what is sent."
        size = 0
        async for piece in request.stream():
            size += len(piece)
        return JSONResponse({"size": size, "authorization": request.headers.get("authorization")}, 201)

    @route("GET", "/v1/stream")
    async def stream(self, request: Request) -> Response:
        "Send a long stream."
        size = int(request.query_params.get("size", 100))

        async def pieces() -> AsyncGenerator[bytes]:
            try:
                for _ in range(size):
                    yield b"x" * 10_000
            finally:
                (self.site.state_dir / "stream").write_text("ended")

        return StreamingResponse(pieces(), media_type="text/plain")

    @route("GET", "/v1/broken")
    async def broken(self, request: Request) -> object:
        "Fail in the way that is asked for."
        if request.query_params.get("how") == "json":
            return {"x": object()}
        if request.query_params.get("how") == "crash":
            raise ValueError("broken")
        return {}

    @route("GET", "/v1/events")
    async def events(self, request: Request) -> Response:
        "Send events until the provider is closed."

        async def lines() -> AsyncGenerator[str]:
            yield "data: 1\n\n"
            await self.site.closing.wait()
            yield "data: end\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    def routes(self) -> Sequence[Route]:
        async def plain(request: Request) -> Response:
            "Say a word."
            return Response(self.config.word)

        return [Route("/v1/word", plain)]

    def collectors(self) -> Sequence[Any]:
        return [self.calls, self.took]

    @prompt
    async def praise(self, name: Literal["tea", "milk"]) -> str:
        "Praise it."
        return f"{name} is good"

    def prompts(self) -> Sequence[Prompt]:
        async def get(arguments: Mapping[str, object], context: CallContext) -> object:
            return [{"role": "assistant", "content": f"{arguments['who']} of {context.principal.tenant}"}]

        def names(typed: str) -> list[str]:
            return [f"{typed}-{current_tenant()}"]

        argument = PromptArgument("who", "the guest", required=True)
        return [
            *super().prompts(),
            Prompt(
                name="greet",
                get=get,
                title="Greet",
                description="A greeting.",
                arguments=(argument,),
                completions={"who": names},
            ),
        ]

    @resource("things://{name}")
    async def described(self, name: str) -> object:
        "Describe a thing."
        return {"name": name, "big": DEEP} if name != "text" else "only text"

    @resource("things://picture", mime_type="image/png")
    async def picture(self) -> bytes:
        "A picture."
        return b"\x89PNG"

    async def diagnose(self) -> Sequence[str]:
        return ["the shop is closed"]

    def can_execute(self, name: str) -> bool:
        return name != "hidden" and super().can_execute(name)


class Around(FunctionProvider):
    """Hooks around calls."""

    async def start(self, site: ProviderContext) -> None:
        self.site = site
        self.seen: list[str] = []

    async def before_call(self, call: ToolCall, context: CallContext, tool: ToolDefinition) -> str | None:
        assert call.name == tool.name or tool.name
        return f"not for {context.principal.tenant}" if "forbidden" in str(call.arguments) else None

    def change_result(self, call: ToolCall, context: CallContext, result: ToolResult) -> ToolResult | str | None:
        return result._replace(metadata={**result.metadata, "changed": call.id}) if call.name == "rich" else None

    async def after_call(self, call: ToolCall, context: CallContext, result: ToolResult, duration_s: float) -> None:
        self.seen.append(f"{call.name} {result.status} {duration_s >= 0}")

    async def provider_changed(self, record: Any) -> None:
        self.seen.append(f"{record.key} {record.state}")

    @tool
    async def list_seen(self) -> list[str]:
        "List what the hooks were told."
        return self.seen


class Tracer(FunctionProvider):
    """What cannot run apart."""

    def call_tracers(self) -> Sequence[Any]:
        return ()


class UsesService(FunctionProvider):
    """What needs a service of the host."""

    async def start(self, site: ProviderContext) -> None:
        site.service(str)


class Wraps(FunctionProvider):
    """A wrapper around the hooks of others."""

    @hookimpl(wrapper=True)
    def before_call(self, call: ToolCall, context: CallContext) -> Any:
        return (yield)
