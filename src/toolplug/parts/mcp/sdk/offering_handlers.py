"""The SDK's handlers for prompts, resources, their subscriptions and completions, in both eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from toolplug.catalog.offering import OfferedKind
from toolplug.errors import ToolError, ToolUnavailable
from toolplug.parts.mcp.offering.calls import (
    RESOURCE_NOT_FOUND,
    RequestRefused,
    complete,
    get_prompt,
    instructions_of,
    offering_page,
    read_resource,
    resource_of,
)
from toolplug.parts.mcp.offering.resource_subscriptions import ResourceSubscriptions
from toolplug.parts.mcp.serving.list_changed import (
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    Watch,
    notifications_of,
)
from toolplug.parts.mcp.serving.server_endpoint import INTERNAL_ERROR, INVALID_PARAMS, McpCaller

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
