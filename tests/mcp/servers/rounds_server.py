"""A server of 2026-07-28 on standard input and output whose calls end with questions, made with the SDK."""

from __future__ import annotations

import json
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequest,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    SamplingMessage,
    TextContent,
    Tool,
)

Context = ServerRequestContext[Any, Any]

SEATS = {"type": "object", "properties": {"seats": {"type": "integer", "description": "How many\u202e seats?"}}}
NAMES = ["book", "twice", "endless", "later", "think", "visit", "many", "bad", "offered", "approved"]


def form(message: str) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=SEATS))


def required(state: str | None, **requests: InputRequest) -> InputRequiredResult:
    return InputRequiredResult(input_requests=requests or None, request_state=state)


async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    return ListToolsResult(tools=[Tool(name=name, input_schema=schema) for name in NAMES])


async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
    """Ask, or say what the call has brought."""
    what = (params.arguments or {}).get("what", "")
    brought = [params.request_state, {key: item.model_dump() for key, item in (params.input_responses or {}).items()}]
    match params.name:
        case "book" | "twice" | "approved" if params.request_state is None:
            return required(f"first {what}", one=form("How many\u202e seats?"))
        case "twice" if params.request_state == "first ":
            return required("second", two=form("Where?"), three=form("When?"))
        case "endless":
            return required(f"{params.request_state}+", one=form("Once more?"))
        case "later" if params.request_state is None:
            return required("soon")
        case "think":
            message = SamplingMessage(role="user", content=TextContent(text="Hello"))
            asked = CreateMessageRequestParams(messages=[message], max_tokens=10)
            return required(None, one=CreateMessageRequest(params=asked))
        case "visit":
            page = ElicitRequestURLParams(message="Sign in", url="https://example.com/", elicitation_id="one")
            return required(None, one=ElicitRequest(params=page))
        case "many":
            return required(None, **{f"q{number}": form("?") for number in range(9)})
        case "bad":
            return required("x" * 70_000, one=form("How many?"))
        case "offered":
            capabilities = context.session.client_capabilities
            assert capabilities is not None
            return said(capabilities.model_dump_json(exclude_none=True))
        case _:
            return said(json.dumps(brought))


def said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])


async def list_prompts(context: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
    return ListPromptsResult(prompts=[Prompt(name="ask")])


async def get_prompt(context: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
    return required("prompt", one=form("How many?"))


async def list_resources(context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(resources=[Resource(uri="ask://it", name="it")])


async def read_resource(
    context: Context, params: ReadResourceRequestParams
) -> ReadResourceResult | InputRequiredResult:
    return required("resource", one=form("How many?"))


async def serve() -> None:
    server: Server[Any] = Server(
        "rounds",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(serve)
