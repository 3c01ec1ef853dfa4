"""Extensions of Model Context Protocol, as a plugin describes them: for our clients, and for the servers that we call.

    client ── tools/call ──▶ `McpExtension.call_tool` ──▶ the host's own answer
           ── a method ────▶ `McpExtension.methods`
    host ──── tools/call ──▶ server; a result of one of `result_types` ──▶ `McpExtension.finish`

An extension is offered to, and asked of, peers of 2026-07-28 and later: earlier ones have none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple, Protocol

from toolplug import library_types
from toolplug.catalog.call import EMPTY, Ask, CallContext, Principal, Report, TaskDeadline, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.offering import Offering

__all__ = [
    "AcceptedCall",
    "Ask",
    "ExtendedCall",
    "ExtensionMethod",
    "ExtensionRefused",
    "ExtensionRequest",
    "ExtensionServer",
    "Fields",
    "McpExtension",
    "Report",
    "TaskDeadline",
    "result_fields",
]

Fields = Mapping[str, object]
"""A JSON object as the protocol has it."""


class ExtensionRefused(Exception):
    """The answer to a request is this error of JSON-RPC; `data` is sent with it.

    ```python
    from collections.abc import Mapping

    from toolplug.mcp_extensions import ExtensionRefused, ExtensionRequest

    async def read_receipt(request: ExtensionRequest) -> Mapping[str, object]:
        raise ExtensionRefused(-32602, "id: there is no such receipt")
    ```
    """

    def __init__(self, code: int, message: str, data: Fields = EMPTY) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


class ExtensionRequest(NamedTuple):
    """A request for a method of an extension, of a client that can have it.

    `scope` is that of the credentials that the client brings, empty for none: what is kept for a principal is kept for
    its scope too, as an application may have one API key for all its users. `offering` returns the prompts and
    resources that the caller has.

    ```python
    import asyncio
    from collections.abc import Mapping

    from toolplug import Principal
    from toolplug.mcp_extensions import ExtensionRequest

    async def name_tenant(request: ExtensionRequest) -> Mapping[str, object]:
        return {"tenant": request.principal.tenant}

    asked = ExtensionRequest({}, Principal("ada", tenant="acme"))
    assert asyncio.run(name_tenant(asked)) == {"tenant": "acme"}
    ```
    """

    params: Fields
    principal: Principal
    scope: str = ""
    offering: Callable[[], Offering] = Offering


ExtensionMethod = Callable[[ExtensionRequest], Awaitable[Fields]]
"""Returns the result; raises `ExtensionRefused`."""


class AcceptedCall(NamedTuple):
    """A call that is answered later: its record as JSON, and the path where the record is.

    ```python
    from toolplug import McpExtension
    from toolplug.mcp_extensions import AcceptedCall

    class Later(McpExtension):
        name = "com.example/later"

        async def accept_call(self, executor, call, context):
            return AcceptedCall({"id": call.id, "status": "working"}, f"/v1/later/{call.id}")
    ```
    """

    record: Fields
    path: str


class ExtendedCall(Protocol):
    """One `tools/call` of a client, before it runs.

    `declared` is what the client says of the extension, None if it does not name it; `timeout_s` are the seconds that
    the tool has by itself.

    ```python
    from collections.abc import Mapping

    from toolplug import McpExtension
    from toolplug.mcp_extensions import ExtendedCall

    class Timed(McpExtension):
        name = "com.example/timed"

        async def call_tool(self, call: ExtendedCall) -> Mapping[str, object]:
            result = await call.run(call.context)
            return {**result, "_meta": {self.name: call.timeout_s}}
    ```
    """

    call: ToolCall
    context: CallContext
    declared: Fields | None
    timeout_s: float

    async def run(
        self, context: CallContext, *, during: Ask | None = None, responses: Fields = EMPTY, state: str | None = None
    ) -> Fields:
        """Run the call with this context, and return the result of `tools/call`, perhaps one that asks something.

        `during` asks the user while the call runs, if its client can be asked at all. `responses` and `state` repeat a
        call that has asked. It may go on after `call_tool` has returned. Raises `ExtensionRefused`.
        """
        ...


class ExtensionServer(Protocol):
    """The server whose call has ended with a result of the extension, for the length of that call.

    ```python
    from collections.abc import Mapping

    from toolplug import McpExtension
    from toolplug.mcp_extensions import ExtensionServer

    class Later(McpExtension):
        name = "com.example/later"
        result_types = frozenset({"later"})

        async def finish(self, result: Mapping[str, object], server: ExtensionServer) -> Mapping[str, object]:
            return await server.request("later/wait", {"id": result["id"]})
    ```
    """

    report: Report

    async def request(self, method: str, params: Fields, name: str = "") -> Fields:
        """Send a request and return its result. `name` is what the header `Mcp-Name` says.

        Raises `ExtensionRefused`, and what ends the call.
        """
        ...

    async def ask(self, requests: Fields) -> Fields:
        """Return the answers of the caller's user to the server's `inputRequests`. Raises `CannotAsk`."""
        ...


class McpExtension:
    """An extension of Model Context Protocol; a subclass has a `name` and overrides what it needs.

    * `name`: the identifier, such as `com.example/receipts`
    * `since`: the version of the protocol from which on it is offered
    * `capabilities`: what is said of it to clients and servers that can have it
    * `methods`: further methods for clients that have declared it
    * `for_all_clients`: whether the methods are for clients too that have not declared it
    * `name_params`: by method, the parameter that the header `Mcp-Name` repeats over HTTP
    * `result_types`: what `resultType` says of results that `finish` completes; servers are told of the extension only
      if there are any

    ```python
    from toolplug import FunctionProvider, McpExtension

    class Receipts(McpExtension):
        name = "com.example/receipts"

        async def call_tool(self, call):
            result = await call.run(call.context)
            return result if call.declared is None else {**result, "_meta": {self.name: call.call.id}}

    class Shop(FunctionProvider):
        receipts = Receipts()

        def mcp_extensions(self):
            return [self.receipts]
    ```
    """

    name: str
    since: str = "2026-07-28"
    capabilities: Fields = EMPTY
    methods: Mapping[str, ExtensionMethod] = MappingProxyType({})
    for_all_clients: bool = False
    name_params: Mapping[str, str] = MappingProxyType({})
    result_types: frozenset[str] = frozenset()

    def join(self, others: Sequence[McpExtension]) -> McpExtension:
        """Return one extension for this and others of its class and name, of other entries: by default this alone."""
        return self

    async def call_tool(self, call: ExtendedCall) -> Fields:
        """Return the result of a client's call, by default that of the host. Raises `ExtensionRefused`."""
        return await call.run(call.context)

    async def accept_call(
        self, executor: library_types.ToolExecutor, call: ToolCall, context: CallContext
    ) -> AcceptedCall | None:
        """Begin a call of `POST /v1/tool-calls` with `Prefer: respond-async`; None to leave it. Raises `ApiError`."""
        return None

    async def finish(self, result: Fields, server: ExtensionServer) -> Fields:
        """Return the result of `tools/call` in place of a server's one of `result_types`. Raises `ExtensionRefused`."""
        raise LookupError(result.get("resultType"))  # it has no result types


def result_fields(result: ToolResult, tool: ToolDefinition | None) -> Fields:
    """Return the result of `tools/call` that says how a call has ended, as clients of this host get it.

    `tool`: the one that was called, None for an unknown name. Needs the extra `mcp`.

    ```python
    from toolplug import ToolResult
    from toolplug.mcp_extensions import result_fields

    assert result_fields(ToolResult("c1", "four o'clock"), None)["isError"] is False
    ```
    """
    import_module("mcp")  # whole: another thread may be importing it
    is_block = import_module("toolplug.parts.mcp.sdk.readable_results").is_block
    content_of = import_module("toolplug.parts.mcp.content").content_of
    fields: Fields = content_of(result, is_block, None if tool is None else tool.output_schema)
    return fields
