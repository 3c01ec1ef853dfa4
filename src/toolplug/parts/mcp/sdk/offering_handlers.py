"""The SDK's handlers for prompts, resources, their subscriptions and completions, in both eras; and their answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import mcp_types as types
import orjson
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.offering import OfferedEntry, OfferedKind, Offering
from toolplug.catalog.plan import Plan
from toolplug.errors import ToolError, ToolUnavailable
from toolplug.execution.run import run
from toolplug.parts.mcp.client.plans import RPC_CODE
from toolplug.parts.mcp.content import first_page
from toolplug.parts.mcp.discovery.offers import MAX_URI_BYTES
from toolplug.parts.mcp.serving.notifications import (
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    ResourceSubscriptions,
    Watch,
    notifications_of,
)
from toolplug.parts.mcp.serving.server_endpoint import INTERNAL_ERROR, INVALID_PARAMS, McpCaller
from toolplug.runtime.tasks import in_slices

_Context = ServerRequestContext[McpCaller, Any]


class _List(NamedTuple):
    """A method that lists one kind of entries under a key of its result."""

    method: str
    key: str
    kind: OfferedKind


_LISTS = (
    _List("prompts/list", "prompts", "prompts"),
    _List("resources/list", "resources", "resources"),
    _List("resources/templates/list", "resourceTemplates", "templates"),
)


def add_offering_handlers(server: Server[McpCaller], hint: CacheHint) -> None:
    """Add the methods for prompts, resources and completions; lists get the caching hint, contents are not cached."""
    for item in _LISTS:
        server.add_request_handler(item.method, types.PaginatedRequestParams, _lister(item))
        server.cache_hints[item.method] = hint
    server.cache_hints["resources/read"] = CacheHint(ttl_ms=0, scope="private")
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, _get_prompt)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, _read_resource)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, _complete)
    server.add_request_handler("server/discover", types.RequestParams, _discover_with_instructions(server))


def options_with_instructions(options: InitializationOptions, caller: McpCaller) -> InitializationOptions:
    """Return the answer to `initialize` with the instructions of the caller's servers."""
    return options.model_copy(update={"instructions": instructions_of(caller.offering())})


def _lister(item: _List) -> Any:
    async def entries(ctx: _Context, params: types.PaginatedRequestParams) -> dict[str, object]:
        try:
            offering = ctx.lifespan_context.offering()
            listed, next_cursor = offering_page(offering, item.kind, params.cursor or None)
        except RequestRefused as error:
            raise refusal_of(ctx, error) from None
        ctx.lifespan_context.offered(item.kind, offering)
        result: dict[str, object] = {item.key: listed, "ttlMs": ctx.lifespan_context.list_ttl_ms}
        return _complete_result(result if next_cursor is None else {**result, "nextCursor": next_cursor})

    return entries


def _discover_with_instructions(server: Server[McpCaller]) -> Any:
    async def discover(ctx: _Context, params: types.RequestParams) -> types.DiscoverResult:
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=server.get_capabilities(protocol_version=ctx.protocol_version),
            instructions=instructions_of(ctx.lifespan_context.offering()),
        )

    return discover


async def _get_prompt(ctx: _Context, params: types.GetPromptRequestParams) -> dict[str, object]:
    caller = ctx.lifespan_context
    try:
        result = await get_prompt(
            caller.offering(), params.name, params.arguments or {}, str(ctx.request_id), caller.context
        )
    except RequestRefused as error:
        raise refusal_of(ctx, error) from None
    return _complete_result(result)


async def _read_resource(ctx: _Context, params: types.ReadResourceRequestParams) -> dict[str, object]:
    caller = ctx.lifespan_context
    try:
        result = await read_resource(
            caller.offering(), str(params.uri), template_variables, str(ctx.request_id), caller.context
        )
    except RequestRefused as error:
        raise refusal_of(ctx, error) from None
    return _complete_result(result)


async def _complete(ctx: _Context, params: types.CompleteRequestParams) -> dict[str, object]:
    caller, reference, argument = ctx.lifespan_context, params.ref, params.argument
    named: tuple[OfferedKind, str]
    if isinstance(reference, types.PromptReference):
        named = "prompts", reference.name
    else:
        named = "templates", reference.uri
    given = (params.context.arguments if params.context is not None else None) or {}
    try:
        result = await complete(
            caller.offering(),
            named,
            (argument.name, argument.value),
            given,
            str(ctx.request_id),
            caller.context,
        )
    except RequestRefused as error:
        raise refusal_of(ctx, error) from None
    return _complete_result(result)


def _complete_result(result: Mapping[str, object]) -> dict[str, object]:
    return {**result, "resultType": "complete"}


def template_variables(template: str, uri: str) -> Mapping[str, object] | None:
    """Return the variables of a URI by a template (RFC 6570); None if it does not match or the template is invalid."""
    try:
        return cast("Mapping[str, object] | None", UriTemplate.parse(template).match(uri))
    except InvalidUriTemplate:
        return None


def refusal_of(ctx: _Context, error: RequestRefused) -> MCPError:
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    code = INVALID_PARAMS if error.code == RESOURCE_NOT_FOUND and modern else error.code
    return MCPError(code, str(error), None if error.data is None else dict(error.data))


_notification: TypeAdapter[types.ServerNotification] = TypeAdapter(types.ServerNotification)


def add_subscription_handlers(server: Server[McpCaller]) -> None:
    """Add `resources/subscribe` and `resources/unsubscribe`."""
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, _subscribe)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, _unsubscribe)


async def _subscribe(ctx: _Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    subscriptions = ctx.lifespan_context.subscriptions
    if subscriptions is not None:
        try:
            await _follow(ctx, params.uri, subscriptions)
        except RequestRefused as error:
            raise refusal_of(ctx, error) from None
    return types.EmptyResult()


async def _unsubscribe(ctx: _Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    subscriptions = ctx.lifespan_context.subscriptions
    if subscriptions is not None:
        subscriptions.leave(params.uri)
    return types.EmptyResult()


async def _follow(ctx: _Context, uri: str, subscriptions: ResourceSubscriptions) -> None:
    """Follow a resource of the caller. Raises `RequestRefused`."""
    resource, _ = await resource_of(ctx.lifespan_context.offering(), uri, template_variables)
    try:
        await subscriptions.add(uri, resource)
    except (ToolError, ToolUnavailable) as error:
        raise RequestRefused(INTERNAL_ERROR, f'resource "{uri}" cannot be followed: {error}', {"uri": uri}) from None


@contextmanager
def follow_resources(ctx: _Context) -> Generator[ResourceSubscriptions | None]:
    """Return the caller's subscriptions, which end with the block."""
    subscriptions = ctx.lifespan_context.subscriptions
    try:
        yield subscriptions
    finally:
        if subscriptions is not None:
            subscriptions.close()


async def honored_of(
    ctx: _Context, wanted: types.SubscriptionFilter, subscriptions: ResourceSubscriptions | None
) -> types.SubscriptionFilter:
    """Return what is honored of a client's wishes: every list, and the resources that can be followed."""
    uris: list[str] = []
    for uri in dict.fromkeys(wanted.resource_subscriptions or ()):
        if subscriptions is None:
            break
        try:
            await _follow(ctx, uri, subscriptions)
        except RequestRefused:
            continue
        uris.append(uri)
    return types.SubscriptionFilter(
        tools_list_changed=wanted.tools_list_changed or None,
        prompts_list_changed=wanted.prompts_list_changed or None,
        resources_list_changed=wanted.resources_list_changed or None,
        resource_subscriptions=uris or None,
    )


async def changes_of(
    watch: Watch, stamp: Mapping[str, Any] | None = None, honored: types.SubscriptionFilter | None = None
) -> AsyncGenerator[types.ServerNotification]:
    """Yield a notification for each change, with the `_meta` of its subscription, until the watch is closed.

    With a filter, only lists that it names; of resources, only followed ones are ever updated.
    """
    named = {} if honored is None else honored.model_dump(by_alias=False)
    while await watch.wait_for_change():
        for method, params in notifications_of(watch.take_changes()):
            if honored is None or named.get(_FILTERED.get(method, ""), True):
                yield _notification.validate_python({"method": method, "params": {**params, "_meta": stamp}})


_FILTERED = {
    TOOLS_CHANGED: "tools_list_changed",
    PROMPTS_CHANGED: "prompts_list_changed",
    RESOURCES_CHANGED: "resources_list_changed",
}


MAX_INSTRUCTIONS = 32_768
"""Characters of the instructions of all servers together; later ones are left out."""

RESOURCE_NOT_FOUND = -32002
"""Of versions before 2026-07-28, which has `INVALID_PARAMS` for it."""

METHOD_NOT_FOUND = -32601
"""The answer of a server that completes nothing to `completion/complete`."""

_NO_VALUES: Mapping[str, object] = {"completion": {"values": ()}}

_PASSED_ON = frozenset({INVALID_PARAMS, INTERNAL_ERROR, RESOURCE_NOT_FOUND})

Match = Callable[[str, str], Mapping[str, object] | None]
"""Returns the variables of a URI by a URI template, None if it does not match."""


class RequestRefused(Exception):
    """The answer to a request for a prompt, a resource or a completion is an error."""

    def __init__(self, code: int, message: str, data: Mapping[str, object] | None = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


def offering_page(
    offering: Offering, kind: OfferedKind, cursor: str | None
) -> tuple[list[dict[str, object]], str | None]:
    """Return the first page, or the page of a cursor, which is the key of the last entry before it, and the next one.

    Raises `RequestRefused` for a cursor that the offering has no place for.
    """
    listed = offering.list_entries(kind)
    keys = iter(listed)
    if cursor is not None and cursor not in keys:  # the search leaves the iterator behind the cursor
        raise RequestRefused(INVALID_PARAMS, "Invalid cursor; list again from the beginning")
    return first_page(((key, listed[key]) for key in keys), lambda entry: len(orjson.dumps(entry)))


def instructions_of(offering: Offering) -> str | None:
    """Return the instructions of an offering's servers, each under its toolset's prefix; None if there are none."""
    sections: list[str] = []
    size = 0
    for prefix, text in offering.instructions:
        section = f"# {prefix}\n\n{text}" if prefix else text
        size += len(section)
        if size <= MAX_INSTRUCTIONS:
            sections.append(section)
    return "\n\n".join(sections) or None


async def get_prompt(
    offering: Offering, name: str, arguments: Mapping[str, object], call_id: str, context: CallContext
) -> Mapping[str, object]:
    """Return MCP's result of `prompts/get`; the name is canonical or a wire name. Raises `RequestRefused`."""
    prompt = offering.prompt(name)
    if prompt is None:
        raise RequestRefused(INVALID_PARAMS, f'no prompt "{name}"')
    return await _ask(prompt.plan, "prompt", ToolCall(call_id, name, arguments), context)


async def read_resource(
    offering: Offering, uri: str, match: Match, call_id: str, context: CallContext
) -> Mapping[str, object]:
    """Return MCP's result of `resources/read`. Raises `RequestRefused`, for an unknown URI `RESOURCE_NOT_FOUND`."""
    found, variables = await resource_of(offering, uri, match)
    call = ToolCall(call_id, uri, {"uri": uri, "variables": variables})
    return await _ask(found.plan, "resource", call, context, {"uri": uri})


async def resource_of(offering: Offering, uri: str, match: Match) -> tuple[OfferedEntry, Mapping[str, object]]:
    """Return the resource of a URI, else the first template that matches it, with its variables.

    A URI over 2 KiB matches no template: matching takes a millisecond at 2 KiB. Raises `RequestRefused`.
    """
    found = offering.resources.get(uri)
    if found is not None:
        return found, {}
    templates = offering.templates.values() if len(uri) <= MAX_URI_BYTES else ()
    async for template in in_slices(templates):
        variables = match(template.key, uri)
        if variables is not None:
            return template, variables
    raise RequestRefused(RESOURCE_NOT_FOUND, f'no resource "{uri}"', {"uri": uri})


async def complete(
    offering: Offering,
    reference: tuple[OfferedKind, str],
    argument: tuple[str, str],
    given: Mapping[str, str],
    call_id: str,
    context: CallContext,
) -> Mapping[str, object]:
    """Return MCP's result of `completion/complete`, without values if the entry or its server completes nothing.

    `reference` is a prompt's name or a template's URI template, `argument` its name and the text so far, `given` the
    other arguments. Raises `RequestRefused`.
    """
    kind, key = reference
    found = offering.prompt(key) if kind == "prompts" else offering.templates.get(key) or offering.resources.get(key)
    what = "prompt" if kind == "prompts" else "resource"
    if found is None:
        raise RequestRefused(INVALID_PARAMS, f'no {what} "{key}"')
    if found.completion is None:
        return _NO_VALUES
    name, value = argument
    call = ToolCall(call_id, key, {"argument": name, "value": value, "context": dict(given)})
    result = await run(found.completion, call, context)
    if result.metadata.get(RPC_CODE) == METHOD_NOT_FOUND:
        # The host offers completions for all of its servers at once, so a client asks for those of each.
        return _NO_VALUES
    return _answer(found.completion, what, call, result)


async def _ask(
    plan: Plan, what: str, call: ToolCall, context: CallContext, data: Mapping[str, object] | None = None
) -> Mapping[str, object]:
    return _answer(plan, what, call, await run(plan, call, context), data)


def _answer(
    plan: Plan, what: str, call: ToolCall, result: ToolResult, data: Mapping[str, object] | None = None
) -> Mapping[str, object]:
    """Return what a request was answered with. Raises `RequestRefused`."""
    if result.status is ToolStatus.SUCCESS and (answer := as_object(result.structured)):
        return answer
    if result.status is ToolStatus.UNKNOWN_TOOL:  # its source was switched off in the meantime
        raise RequestRefused(INVALID_PARAMS, f'no {what} "{call.name}"', data)
    raise RequestRefused(_code(result), _words(what, call.name, result, plan), data)


def _code(result: ToolResult) -> int:
    if result.status is ToolStatus.INVALID_ARGUMENTS:
        return INVALID_PARAMS
    code = result.metadata.get(RPC_CODE)
    return code if isinstance(code, int) and code in _PASSED_ON else INTERNAL_ERROR


def _words(what: str, name: str, result: ToolResult, plan: Plan) -> str:
    """Return the text of a failed result, which speaks of a tool, for a prompt or resource."""
    if result.status is ToolStatus.SUCCESS:  # too large to keep its structure
        return f'{what} "{name}" has more than {plan.max_result_bytes} bytes'
    if result.status is ToolStatus.PANIC:
        return f'internal error: {what} "{name}" failed'
    return result.output.replace(f'tool "{name}"', f'{what} "{name}"', 1)
