"""Following resources and lists: `resources/subscribe` of 2025-11-25, `subscriptions/listen` of 2026-07-28.

A resource that its source does not notify of may be followed all the same; one that a caller cannot read may not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import TypeAdapter

from toolplug.errors import ToolError, ToolUnavailable
from toolplug.parts.mcp.offering.calls import RequestRefused, resource_of
from toolplug.parts.mcp.offering.resource_subscriptions import ResourceSubscriptions
from toolplug.parts.mcp.sdk.offering_handlers import refusal_of, template_variables
from toolplug.parts.mcp.serving.list_changed import (
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    Watch,
    notifications_of,
)
from toolplug.parts.mcp.serving.server_endpoint import INTERNAL_ERROR, McpCaller

_Context = ServerRequestContext[McpCaller, Any]
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
