"""Answering clients: how the SDK reads what they send, and what it is given to answer with.

The SDK reads, validates and answers every method, in both eras. Ours is what it answers with: a caller's tools
and their calls; `offering_handlers` adds prompts and resources. A page of tools passes the SDK as the bytes that the
catalog keeps, since encoding a thousand tools takes it 25 ms.

    transport → `SdkServerEndpoint.answer` → `ServerRunner` → `_pages` → `_list_tools`, `_call_tool`, `_listen`
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any, TextIO, cast

import anyio
import mcp_types as types
import orjson
from mcp.server.caching import CacheHint
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.runner import ServerRunner
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.transport_context import TransportContext
from mcp_types import REQUEST_TIMEOUT
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from toolplug.catalog.call import Ask, CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.definition import CALL_TOOL, SEARCH_TOOLS
from toolplug.catalog.exact_json import as_object, load_json
from toolplug.catalog.trace_context import TRACEPARENT, TRACESTATE, trace_context
from toolplug.errors import InvalidJson, ToolplugError
from toolplug.parts.mcp.content import APPROVAL, RisingProgress, content_of, page
from toolplug.parts.mcp.sdk.elicitation import asking, call_with_approval
from toolplug.parts.mcp.sdk.extensions import (
    UNKNOWN_TIMEOUT_S,
    RunTool,
    answer_extensions,
    call_extended,
    name_mismatch,
    offered_extensions,
    report_progress,
)
from toolplug.parts.mcp.sdk.line_streams import ExactLines, LineAnswers, own_stdin
from toolplug.parts.mcp.sdk.offering_handlers import (
    add_offering_handlers,
    add_subscription_handlers,
    changes_of,
    follow_resources,
    honored_of,
    options_with_instructions,
)
from toolplug.parts.mcp.sdk.readable_results import is_block
from toolplug.parts.mcp.serving.server_endpoint import (
    INITIALIZE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LIST_TTL_MS,
    PARSE_ERROR,
    Client,
    ClientAnswer,
    Headers,
    McpCaller,
    Message,
    Notify,
    Questions,
    Reply,
    RequestId,
    refusal,
)
from toolplug.search.tools import FoundTools, found_names
from toolplug.signatures.values import encode_value

MAX_CLIENT_BYTES = 16 * 1024
"""What a client says of itself, which is kept as long as its session."""

_LOG = logging.getLogger("toolplug.mcp")

_LIST = "tools/list"
_CALL = "tools/call"
_INITIALIZED = "notifications/initialized"
_HEADER_HINT = b"x-mcp-header"
_OK = 200
_HTTP = TransportContext(kind="streamable-http", can_send_request=False)

_Context = ServerRequestContext[McpCaller, Any]


class SdkServerEndpoint:
    """MCP for any number of clients; it keeps no state of them."""

    def __init__(self) -> None:
        # A fragment passes through the encoder as it is; over pipes the SDK encodes by itself, and gets the value.
        self._server = _server(orjson.Fragment)
        self._options = self._server.create_initialization_options(
            NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        )

    def read(self, body: bytes) -> Message | ClientAnswer | Reply:
        """Return the message, or the refusal if it is not JSON or is a batch."""
        try:
            # Ours and not the SDK's: it keeps large integers exact, and refuses duplicate keys.
            value = load_json(body)
        except InvalidJson as error:
            return refusal(400, PARSE_ERROR, f"Parse error: {error}")
        # Looked at by hand first, as a union of all message types would report every alternative that does not fit.
        if isinstance(value, dict) and "method" in value:
            try:
                if "id" in value:
                    request = types.JSONRPCRequest.model_validate(value)
                    return Message(request.id, request.method, request.params)
                notification = types.JSONRPCNotification.model_validate(value)
                return Message(None, notification.method, notification.params)
            except ValidationError:
                pass
        elif isinstance(value, dict) and ("result" in value or "error" in value):
            try:
                answer = types.jsonrpc_message_adapter.validate_python(value, by_name=False)
            except ValidationError:
                answer = None
            if isinstance(answer, types.JSONRPCResponse):
                return ClientAnswer(answer.id, answer.result)
            if isinstance(answer, types.JSONRPCError) and answer.id is not None:
                return ClientAnswer(answer.id, None)
        return refusal(400, INVALID_REQUEST, "Body must be a single JSON-RPC request or notification object")

    def is_stateless(self, message: Message, version: str | None) -> bool:
        """Return whether the message is of the era without a handshake: by its header, without one by its content."""
        if version is None:
            return message.method != INITIALIZE and _meta_of(message).get(types.PROTOCOL_VERSION_META_KEY) is not None
        return version not in HANDSHAKE_PROTOCOL_VERSIONS

    def stateless_client(self, message: Message, headers: Headers) -> Client | Reply:
        """Return the client; refused if headers and message differ, or the version is not supported."""
        texts = _texts(headers)
        if (doubled := find_duplicated_routing_header(texts)) is not None:
            return refusal(400, types.HEADER_MISMATCH, f"{doubled} header appears more than once", message.id)
        given = dict(texts)
        if message.id is None:
            spoken = given.get("mcp-protocol-version", "")
            unspoken = unsupported_protocol_version_rejection(spoken)
            return Client(spoken, None, None) if unspoken is None else _reject(unspoken, None)
        found = classify_inbound_request(message._asdict(), headers=given)
        if isinstance(found, InboundLadderRejection):
            return _reject(found, message.id)
        return Client(found.protocol_version, found.client_info, found.client_capabilities)

    async def initialize(self, message: Message, caller: McpCaller) -> tuple[Reply, Client | None]:
        params = message.params or {}
        about = {key: params.get(key) for key in ("clientInfo", "capabilities")}
        # Checked before the SDK sees it, since the record of the handshake keeps it.
        if len(_encode(about)) > MAX_CLIENT_BYTES:
            too_long = f"clientInfo and capabilities have over {MAX_CLIENT_BYTES} bytes"
            return refusal(400, INVALID_PARAMS, too_long, message.id), None
        # A connection for each request: the endpoint keeps no state of its clients, `McpSessions` does.
        connection = Connection.from_envelope(LATEST_HANDSHAKE_VERSION, None, None)
        reply, done = await self._answer(message, connection, caller, _Channel(message))
        if not done:
            return reply, None
        return reply, Client(connection.protocol_version, about["clientInfo"], about["capabilities"])

    async def answer(
        self,
        message: Message,
        client: Client,
        caller: McpCaller,
        notify: Notify,
        headers: Headers = (),
        questions: Questions | None = None,
    ) -> Reply:
        """Answer a request of an initialized or stateless client."""
        if headers:
            mismatch = _mismatch(message, caller, headers) or name_mismatch(message, caller, dict(_texts(headers)))
            if mismatch is not None:
                return _reject(mismatch, message.id)
        connection = Connection.from_envelope(client.version, client.info, client.capabilities)
        reply, _ = await self._answer(message, connection, caller, _Channel(message, notify, questions))
        # Clients of the older era take any status but 200 for a broken transport, and do not read the error.
        return reply._replace(status=_OK) if client.version in HANDSHAKE_PROTOCOL_VERSIONS else reply

    async def serve_stdio(self, caller: McpCaller, out: TextIO) -> None:
        """Serve one client on standard input and `out` until it closes its end and has the answers it waits for.

        An older client is notified of changes after it has initialized.
        """
        # One server for the one client, which keeps what its searches have found.
        server = _server(orjson.loads, caller._replace(found=FoundTools()))
        async with asyncio.TaskGroup() as group:
            telling: set[asyncio.Task[None]] = set()

            async def begin_to_tell(ctx: _Context, params: types.NotificationParams) -> None:
                telling.add(group.create_task(_tell(ctx)))

            server.add_notification_handler(_INITIALIZED, types.NotificationParams, begin_to_tell)
            with own_stdin() as stdin:
                lines = ExactLines(stdin)
                stdout = anyio.wrap_file(out)
                async with stdio_server(cast("anyio.AsyncFile[str]", lines), stdout) as (read, write):
                    lines.answers = answers = LineAnswers(write)
                    await server.run(read, answers, options_with_instructions(self._options, caller))
            # They wait for changes without end, and would keep the group open after the client has left.
            for task in telling:
                task.cancel()

    async def _answer(
        self, message: Message, connection: Connection, caller: McpCaller, channel: _Channel
    ) -> tuple[Reply, bool]:
        is_first = message.method == INITIALIZE
        options = options_with_instructions(self._options, caller) if is_first else self._options
        runner = ServerRunner(self._server, connection, caller, init_options=options)
        try:
            result = await runner.on_request(channel, message.method, message.params)
        except (MCPError, ValidationError) as error:
            return _make_failure(handler_exception_to_error_data(error), message.id), False
        return Reply(_OK, _encode({"jsonrpc": "2.0", "id": message.id, "result": result})), True


class _Channel:
    """The `mcp.shared.dispatcher.DispatchContext` of a request over HTTP.

    Notifications are sent on the response stream, and so are requests to the client (`questions`): only clients of the
    older era that take a stream can answer these. The newer era has no such requests.
    """

    message_metadata = None

    def __init__(self, message: Message, notify: Notify | None = None, questions: Questions | None = None) -> None:
        self.request_id: RequestId | None = message.id
        self.transport: TransportContext = _HTTP
        self.cancel_requested: anyio.Event = anyio.Event()
        self._notify = notify
        self._questions = questions
        self._token = progress_token_from_params(message.params)

    @property
    def can_send_request(self) -> bool:
        """True if the client can answer requests while its own is being answered."""
        return self._questions is not None and self._notify is not None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send the client a request on the response stream. Raises `NoBackChannelError`; `MCPError` on timeout."""
        questions, notify = self._questions, self._notify
        if questions is None or notify is None:
            raise NoBackChannelError(method)

        async def send(question: str) -> None:
            await notify(_encode({"jsonrpc": "2.0", "id": question, "method": method, "params": params or {}}))

        try:
            async with asyncio.timeout((opts or {}).get("timeout")):
                result = await questions.ask(send)
        except TimeoutError:
            raise MCPError(REQUEST_TIMEOUT, f"no answer to {method}") from None
        if result is None:
            raise MCPError(INVALID_REQUEST, f"the client refuses {method}")
        return dict(result)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send one notification on the response stream."""
        if self._notify is not None:
            await self._notify(_encode({"jsonrpc": "2.0", "method": method, "params": params or {}}))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send progress if the client has asked for it."""
        if self._token is not None:
            fields = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
            told = {name: value for name, value in fields.items() if value is not None}
            await self.notify("notifications/progress", told)


@dataclass(slots=True)
class _Listing:
    """A page of tools that bypasses the SDK's models."""

    tools: bytes = b"[]"


def _server(as_value: Callable[[bytes], object], caller: McpCaller | None = None) -> Server[McpCaller]:
    """Return a server with our methods; `as_value` converts JSON for the transport, `caller` is its only caller."""

    @asynccontextmanager
    async def alone(_: Server[McpCaller]) -> AsyncGenerator[McpCaller]:
        if caller is None:
            raise RuntimeError("the caller comes with each request")
        yield caller

    async def pages(ctx: _Context, call_next: CallNext) -> HandlerResult:
        if ctx.method != _LIST:
            return await call_next(ctx)
        listing = _Listing()
        result = await call_next(replace(ctx, request=listing))
        return {**cast("dict[str, object]", result), "tools": as_value(listing.tools)}  # the SDK's own wire form

    hint = CacheHint(ttl_ms=LIST_TTL_MS, scope="private")
    server = Server(
        "toolplug",
        version=version("toolplug"),
        lifespan=alone,
        cache_hints={_LIST: hint},
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_subscriptions_listen=_listen,
    )
    own = [answer_extensions, pages]
    server.middleware[:] = own if caller is None else [without_details, *own]
    add_offering_handlers(server, hint)
    add_subscription_handlers(server)
    return server


async def without_details(ctx: _Context, call_next: CallNext) -> HandlerResult:
    """Answer a fault of ours on pipes as an internal error; over HTTP the host does so.

    The SDK would send the text of the exception.
    """
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except ToolplugError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from None
    except Exception:  # noqa: BLE001  the SDK's own boundary is behind this one
        _LOG.exception("answering %s failed", ctx.method)
        raise MCPError(types.INTERNAL_ERROR, "Internal error; the log of the host has the cause") from None


async def _list_tools(ctx: _Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """Return the result without the tools, which `pages` adds."""
    caller, cursor = ctx.lifespan_context, (params.cursor or None) if params is not None else None
    catalog = await caller.catalog()
    found = page(caller.found.visible_tools(catalog) if caller.found is not None else catalog.shown, cursor)
    if found is None:
        raise MCPError(INVALID_PARAMS, "Invalid cursor; list again from the beginning")
    caller.listed(catalog)
    cast("_Listing", ctx.request).tools = found.tools  # put there by `pages`
    return types.ListToolsResult(tools=[], next_cursor=found.next_cursor, ttl_ms=caller.list_ttl_ms)


async def _call_tool(
    ctx: _Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Run one call, with the extensions that the client can have. Each failure but an unknown tool is a result."""
    executor, context = ctx.lifespan_context.executor, ctx.lifespan_context.context
    meta = as_object((ctx.params or {}).get("_meta"))
    if isinstance(approval := meta.get(APPROVAL), str):
        context = context._replace(approval=approval)
    if passed := trace_context(meta.get(TRACEPARENT), meta.get(TRACESTATE)):
        context = context._replace(trace_context=passed)
    call = ToolCall(str(ctx.request_id), params.name, params.arguments or {})
    extensions = offered_extensions(ctx)
    if not extensions:
        return cast("types.CallToolResult", await _run_tool(ctx, params, context))  # or its wire form: the SDK takes it
    known = executor.catalog.find(params.name)
    timeout_s = UNKNOWN_TIMEOUT_S if known is None else known.plan.timeout_s
    answer = await call_extended(ctx, params, RunTool(call, context, timeout_s, _run_tool), extensions)
    return cast("types.CallToolResult", answer)


async def _run_tool(
    ctx: _Context, params: types.CallToolRequestParams, context: CallContext, during: Ask | None = None
) -> HandlerResult:
    executor = ctx.lifespan_context.executor
    call = ToolCall(str(ctx.request_id), params.name, params.arguments or {})
    context = context._replace(ask=await asking(ctx, params, context, during))
    wants_progress = progress_token_from_params(ctx.params) is not None

    async def execute(context: CallContext) -> ToolResult:
        if not wants_progress:
            return await executor.execute(call, context)
        progress = RisingProgress(partial(report_progress, ctx))

        def report(done: float, total: float | None = None, message: str | None = None) -> None:
            progress.report(done, total, message)
            context.report(done, total, message)

        heard = context._replace(report=report)
        return await progress.during(lambda: executor.execute(call, heard))

    result = await call_with_approval(ctx, params, context, execute)
    if isinstance(result, types.InputRequiredResult):
        return result
    if result.status is ToolStatus.UNKNOWN_TOOL and params.name != CALL_TOOL:
        raise MCPError(INVALID_PARAMS, result.output)
    await _remember(ctx, params.name, result)
    tool = executor.catalog.find(params.name)
    return content_of(result, is_block, None if tool is None else tool.definition.output_schema)


async def _remember(ctx: _Context, name: str, result: ToolResult) -> None:
    """List what a search has found from now on, for a client of the older era, and notify it."""
    found = ctx.lifespan_context.found
    if found is None or name != SEARCH_TOOLS or ctx.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return
    if found.add(found_names(result.structured)):
        # on the response stream of the search, which every client of this era reads
        await ctx.session.send_notification(types.ToolListChangedNotification(), ctx.request_id)


async def _listen(ctx: _Context, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
    """Acknowledge the subscription, then notify of each change until the watch ends."""
    stamp: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
    with ctx.lifespan_context.watch() as watch, follow_resources(ctx) as subscriptions:
        honored = await honored_of(ctx, params.notifications, subscriptions)
        acknowledged = types.SubscriptionsAcknowledgedNotificationParams(notifications=honored, _meta=stamp)
        await ctx.session.send_notification(
            types.SubscriptionsAcknowledgedNotification(params=acknowledged), ctx.request_id
        )
        async for change in changes_of(watch, stamp, honored):
            await ctx.session.send_notification(change, ctx.request_id)
    return types.SubscriptionsListenResult(_meta=stamp)


async def _tell(ctx: _Context) -> None:
    """Notify a client of the older era of each change, outside of any request."""
    with ctx.lifespan_context.watch() as watch:
        async for change in changes_of(watch):
            await ctx.session.send_notification(change)


def _mismatch(message: Message, caller: McpCaller, headers: Headers) -> InboundLadderRejection | None:
    """Return the rejection of headers that do not repeat the arguments which the tool's schema assigns to them."""
    params = message.params or {}
    tool = caller.executor.catalog.find(str(params.get("name"))) if message.method == _CALL else None
    if tool is None or _HEADER_HINT not in tool.definition.parameters.text:
        return None
    arguments = dict(as_object(params.get("arguments")))
    return validate_mcp_param_headers(tool.definition.parameters.value, arguments, dict(_texts(headers)))


def _texts(headers: Headers) -> list[tuple[str, str]]:
    """Return the values without surrounding blanks, which are not part of a field value (RFC 9110, 5.5)."""
    return [(name.decode("latin-1"), value.decode("latin-1").strip(" \t")) for name, value in headers]


def _meta_of(message: Message) -> Mapping[str, object]:
    return as_object((message.params or {}).get("_meta"))


def _reject(rejection: InboundLadderRejection, to: RequestId | None) -> Reply:
    return _make_failure(types.ErrorData(code=rejection.code, message=rejection.message, data=rejection.data), to)


def _make_failure(error: types.ErrorData | None, to: RequestId | None) -> Reply:
    told = error or types.ErrorData(code=types.INTERNAL_ERROR, message="Internal error")
    body = {"jsonrpc": "2.0", "id": to, "error": told.model_dump(mode="json", exclude_none=True)}
    return Reply(ERROR_CODE_HTTP_STATUS.get(told.code, _OK), _encode(body))


def _encode(message: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(message)
    except TypeError:  # an integer of more than 64 bits, which JSON may hold
        return (encode_value(message) or "").encode()
