"""Who may use one of the host's own routes, and as whom."""

from __future__ import annotations

from toolplug.catalog.call import Principal
from toolplug.host.host import Host
from toolplug.http.auth.chain import insufficient_scope
from toolplug.http.auth.plugin_tokens import PLUGIN, CallersOnly, plugin_token, session_of_token
from toolplug.http.exchange import Exchange
from toolplug.http.own_route import OwnRoute


async def admit(route: OwnRoute, host: Host, exchange: Exchange, callers: CallersOnly) -> None:
    """Note who acts: the caller, or the plugin and its session.

    Who it is comes before what there is. Raises `HttpProblem`, for a plugin's own session `AccessError`, and
    `StoreError`.
    """
    if route.audience != "callers":
        token = plugin_token(exchange.headers)
        if token is not None:
            session = await session_of_token(host.sessions, token, exchange.params["code"])
            exchange.session = session
            exchange.principal = Principal(PLUGIN, session.tenant)
            return
        if route.audience == "plugin":
            raise await callers.refused_as_plugin(exchange)
    principal = exchange.principal = await callers.principal(exchange)
    if route.scope is not None and not principal.has_scope(route.scope):
        raise insufficient_scope(route.scope)
