"""The tenant of a request, where code that serves it looks: `request.state` and `current_tenant()`."""

from __future__ import annotations

from contextvars import Token

from toolplug.catalog.current import Frame, current_frame
from toolplug.http.exchange import Exchange


def enter_tenant(exchange: Exchange) -> Token[Frame]:
    """From here on `current_tenant()` is the caller's.

    `leave_tenant` must follow: a test client, or an application around ours, has the same context.
    """
    return current_frame.set((exchange.principal.tenant, current_frame.get()[1]))


def leave_tenant(token: Token[Frame]) -> None:
    """The request has been served."""
    current_frame.reset(token)


def state_of(exchange: Exchange) -> dict[str, object]:
    """What a handler finds in `request.state`; a new mapping, since a server may give many requests the same one."""
    principal = exchange.principal
    return {
        **exchange.scope.get("state", {}),
        "tenant": principal.tenant,
        "principal": principal,
        "request_id": exchange.request_id,
    }
