"""Extensions of plugins for the clients of `/mcp` and of pipes: capabilities, methods, and what wraps `tools/call`.

A client of 2026-07-28 declares its extensions with each request. To one that does not, an extension is nothing but a
capability that the host says of itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, cast

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, InboundLadderRejection, decode_header_value
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.methods import SPEC_CLIENT_METHODS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from toolplug.catalog.call import EMPTY, Ask, CallContext, ToolCall
from toolplug.catalog.exact_json import as_object
from toolplug.execution.resolved_limits import DEFAULT_TIMEOUT_S
from toolplug.mcp_extensions import (
    ExtensionMethod,
    ExtensionRefused,
    ExtensionRequest,
    Fields,
    McpExtension,
)
from toolplug.parts.mcp.serving.server_endpoint import McpCaller, Message

UNKNOWN_TIMEOUT_S = DEFAULT_TIMEOUT_S
"""Of a tool that is listed only once its toolset is open."""

_DISCOVER = "server/discover"
_Context = ServerRequestContext[McpCaller, Any]


class RunToolWith(Protocol):
    """Runs a `tools/call` with a context, and perhaps what asks while it runs."""

    def __call__(
        self, ctx: _Context, params: types.CallToolRequestParams, context: CallContext, during: Ask | None = None, /
    ) -> Awaitable[HandlerResult]: ...


class RunTool(NamedTuple):
    """One call of a client, and what runs it."""

    call: ToolCall
    context: CallContext
    timeout_s: float
    run: RunToolWith


def offered_extensions(ctx: _Context) -> Sequence[McpExtension]:
    """Return the extensions that this client can have."""
    version = ctx.protocol_version
    if version not in MODERN_PROTOCOL_VERSIONS:
        return ()
    return [each for each in ctx.lifespan_context.extensions() if each.since <= version]


async def answer_extensions(ctx: _Context, call_next: CallNext) -> HandlerResult:
    """Answer the methods of extensions, and say of them in `server/discover`."""
    method = ctx.method
    if method == _DISCOVER:
        return _with_capabilities(await call_next(ctx), offered_extensions(ctx))
    if method in SPEC_CLIENT_METHODS or ctx.request_id is None:
        return await call_next(ctx)
    # The first that has the method: two extensions of one method are a mistake of their authors.
    for extension in offered_extensions(ctx):
        answer = extension.methods.get(method)
        if answer is not None:
            return await _answer(ctx, extension, answer)
    return await call_next(ctx)


def _with_capabilities(result: HandlerResult, extensions: Sequence[McpExtension]) -> HandlerResult:
    if not extensions:
        return result
    found = _fields_of(result)
    said = {each.name: dict(each.capabilities) for each in extensions}
    return {**found, "capabilities": {**as_object(found.get("capabilities")), "extensions": said}}


async def _answer(ctx: _Context, extension: McpExtension, answer: ExtensionMethod) -> HandlerResult:
    if not extension.for_all_clients and _find_declared(ctx, extension) is None:
        nothing: dict[str, object] = {}
        needed = {"requiredCapabilities": {"extensions": {extension.name: nothing}}}
        said = f"{ctx.method} is of the extension {extension.name}, which this request does not declare"
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, said, needed)
    caller = ctx.lifespan_context
    request = ExtensionRequest(ctx.params or EMPTY, caller.context.principal, caller.scope, caller.offering)
    try:
        return {**await answer(request), "resultType": "complete"}
    except ExtensionRefused as error:
        raise _error_of(error) from None


def _find_declared(ctx: _Context, extension: McpExtension) -> Fields | None:
    """Return what the client says of an extension in this request; None if it does not name it."""
    capabilities = ctx.session.client_capabilities
    found = None if capabilities is None else capabilities.extensions
    return None if found is None else found.get(extension.name)


def name_mismatch(message: Message, caller: McpCaller, headers: Mapping[str, str]) -> InboundLadderRejection | None:
    """Return the rejection of a header `Mcp-Name` that does not repeat what the method of an extension names."""
    given = headers.get(MCP_NAME_HEADER)
    if given is None or message.method in SPEC_CLIENT_METHODS:
        return None
    for extension in caller.extensions():
        key = extension.name_params.get(message.method)
        if key is not None and decode_header_value(given) != (message.params or {}).get(key):
            return InboundLadderRejection(
                types.HEADER_MISMATCH, f"{MCP_NAME_HEADER} header does not match the request body's {key!r} parameter"
            )
    return None


async def call_extended(
    ctx: _Context, params: types.CallToolRequestParams, asked: RunTool, extensions: Sequence[McpExtension]
) -> HandlerResult:
    """Return what the extensions make of a call, the first one outermost. Raises `MCPError`."""
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    host = _HostCall(replace(ctx, request=answered), params, asked)
    layers = tuple(_Layer(each, _find_declared(ctx, each)) for each in extensions)
    try:
        return dict(await layers[0].extension.call_tool(_LayeredCall(host, layers, asked.context, _Asks())))
    except ExtensionRefused as error:
        raise _error_of(error) from None
    # What an extension lets run on must not send on the stream of a request that is over.
    finally:
        answered.set_result(None)


async def report_progress(ctx: _Context, progress: float, total: float | None, message: str | None) -> None:
    """Send progress, unless the client has its answer: what runs on has nobody who reads the stream of the request."""
    answered = cast("asyncio.Future[None] | None", ctx.request)  # put there by `call_extended`
    if answered is None:
        await ctx.session.report_progress(progress, total, message)
    # Both are waited for: a notice that nobody takes any longer would hold the call for ever.
    elif not answered.done():
        sending = asyncio.ensure_future(ctx.session.report_progress(progress, total, message))
        await asyncio.wait({sending, answered}, return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()


class _Layer(NamedTuple):
    extension: McpExtension
    declared: Fields | None


class _HostCall:
    """A call that the host runs, perhaps again."""

    def __init__(self, ctx: _Context, params: types.CallToolRequestParams, asked: RunTool) -> None:
        self._ctx = ctx
        self._params = params
        self._runs = 0
        self.asked = asked

    async def run(self, context: CallContext, asks: _Asks) -> Fields:
        """Run it. What the client has sent with the call, answers or a decision, counts the first time."""
        # A decision is used once, and so are the answers to a round: a repetition has only what is given to it.
        self._runs += 1
        params = self._params if self._runs == 1 else _repeat_params(self._params, asks)
        try:
            return _fields_of(await self.asked.run(self._ctx, params, context, asks.during))
        except MCPError as error:
            raise ExtensionRefused(error.code, error.error.message, as_object(error.error.data)) from None


class _Asks(NamedTuple):
    during: Ask | None = None
    responses: Fields = EMPTY
    state: str | None = None


class _LayeredCall:
    """A call as the first of these layers has it; running it runs the others, and then the host's own."""

    def __init__(self, host: _HostCall, layers: Sequence[_Layer], context: CallContext, asks: _Asks) -> None:
        self._host = host
        self._layers = layers
        self._asks = asks
        self.call: ToolCall = host.asked.call
        self.context: CallContext = context
        self.declared: Fields | None = layers[0].declared
        self.timeout_s: float = host.asked.timeout_s

    async def run(
        self, context: CallContext, *, during: Ask | None = None, responses: Fields = EMPTY, state: str | None = None
    ) -> Fields:
        """Implement `ExtendedCall.run`."""
        outer, rest = self._asks, self._layers[1:]
        asks = _Asks(during or outer.during, responses or outer.responses, state or outer.state)
        if not rest:
            return await self._host.run(context, asks)
        return await rest[0].extension.call_tool(_LayeredCall(self._host, rest, context, asks))


def _repeat_params(params: types.CallToolRequestParams, asks: _Asks) -> types.CallToolRequestParams:
    """Return the parameters of the same call with these answers. Raises `ExtensionRefused` if they cannot be read."""
    fields = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    fields |= {"inputResponses": dict(asks.responses) or None, "requestState": asks.state}
    try:
        return types.CallToolRequestParams.model_validate(fields, by_name=False)
    except ValidationError:
        raise ExtensionRefused(types.INVALID_PARAMS, "inputResponses: these are no answers of the protocol") from None


def _fields_of(result: HandlerResult) -> dict[str, Any]:
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return result or {}


def _error_of(error: ExtensionRefused) -> MCPError:
    return MCPError(error.code, str(error), dict(error.data) or None)
