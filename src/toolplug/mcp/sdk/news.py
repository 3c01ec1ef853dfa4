"""Hearing from a server of the newer era that its tools have changed: a stream that is opened again when it is lost."""

from __future__ import annotations

import asyncio
from time import monotonic

from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolplug.mcp.connection import OnChange
from toolplug.mcp.restarts import Restarts
from toolplug.mcp.sdk.failure_codes import FAILED, is_closed

_REFUSALS = 3


async def follow_news(session: ClientSession, on_change: OnChange) -> None:
    """Call `on_change` for each change, and after a gap, in which one may have been missed.

    Returns where the server has no such stream: it is of the older era, or does not honour the subscription, or refuses
    it again and again. One that cannot answer, or whose streams do not last, is asked ever more rarely.
    """
    if session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    restarts, refused, heard = Restarts(), 0, False
    while refused < _REFUSALS:
        since: float | None = None
        try:
            async with listen(session, tools_list_changed=True) as subscription:
                if not subscription.honored.tools_list_changed:
                    return
                since = monotonic()
                if heard:
                    on_change()
                heard = True
                async for _ in subscription:
                    on_change()
        except SubscriptionLost:
            pass
        except MCPError as error:
            refused += not (heard or error.code == FAILED or is_closed(error))
        if since is None:
            restarts.failed()
        else:
            restarts.lasted(monotonic() - since)
        await asyncio.sleep(restarts.pause_s())
