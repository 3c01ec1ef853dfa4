"""Whose tools a client of the protocol gets, and whether it may still have them."""

from __future__ import annotations

from toolplug.catalog.call import CallContext
from toolplug.catalog.catalog import Catalog
from toolplug.errors import AccessError, StoreError
from toolplug.host.host import Host
from toolplug.http.caller_catalog import catalog_of, executor_of
from toolplug.http.exchange import Exchange
from toolplug.http.problem import HttpProblem
from toolplug.mcp.caller import Caller
from toolplug.mcp.handshakes import Handshake
from toolplug.toolsets.first_use import FirstUse


def _nobody(catalog: Catalog) -> None:
    """Nobody wants to know."""


def agent_of(exchange: Exchange) -> str | None:
    """The agent that the request acts as. Raises `HttpProblem`."""
    return exchange.query().get("agent") or exchange.header(b"x-toolplug-agent")


async def caller_of(host: Host, exchange: Exchange, known: Handshake | None = None) -> Caller:
    """The caller of a request; `known`: the client that has introduced itself, for which toolsets may be open.

    Raises `HttpProblem`, `AccessError`, and for a session `StoreError`.
    """
    principal, agent, code = exchange.principal, agent_of(exchange), exchange.params.get("code")
    executor = await executor_of(host, principal, agent, code, within=known)
    since = None if known is None else known.seen
    followed = executor.listing if isinstance(executor, FirstUse) else executor
    return Caller(
        executor=executor,
        context=CallContext(principal=principal, session=code, agent=agent, trace=exchange.request_id),
        catalog=lambda: catalog_of(host, principal, agent, code, within=known),
        watch=lambda: host.mcp.announcer.watch(followed, of=code, since=since),
        listed=_nobody if known is None else known.listed,
    )


async def is_still_admitted(host: Host, exchange: Exchange) -> bool:
    """Would the caller be let in now, as the same one, to a session that is there; yes where nobody can tell."""
    before = exchange.principal
    try:
        await exchange.readmit(exchange)
        await executor_of(host, exchange.principal, agent_of(exchange), exchange.params.get("code"))
    except (HttpProblem, AccessError):
        return False
    except StoreError:
        return True
    now = exchange.principal
    return (now.tenant, now.subject) == (before.tenant, before.subject)
