"""Hearing from a server of the newer era that its tools have changed: a stream that is opened again when it is lost."""

from __future__ import annotations

import asyncio
import random

from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolplug.mcp.connection import OnChange

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_REFUSALS = 3


async def follow_news(session: ClientSession, on_change: OnChange) -> None:
    """Call `on_change` for each change, and after a gap, in which one may have been missed.

    Returns where the server has no such stream: it is of the older era, or does not honour the subscription, or refuses
    it again and again.
    """
    if session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    wait_s, refused, heard = _FIRST_WAIT_S, 0, False
    while refused < _REFUSALS:
        try:
            async with listen(session, tools_list_changed=True) as subscription:
                if not subscription.honored.tools_list_changed:
                    return
                if heard:
                    on_change()
                heard, refused, wait_s = True, 0, _FIRST_WAIT_S
                async for _ in subscription:
                    on_change()
        except SubscriptionLost:
            pass
        except MCPError:
            refused += 0 if heard else 1
        await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
