"""The events of a response as they go out, `[DONE]` last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import orjson

from toolplug.http.exchange import Exchange
from toolplug.http.responses.outlet import Outlet
from toolplug.responses.draft import Event
from toolplug.sessions.frame import frame

_END = b"data: [DONE]\n\n"


async def send_events(
    exchange: Exchange, events: AsyncIterator[Event], hang_up: Callable[[], None], *, first: Event | None = None
) -> None:
    """Answer with the events; `first` stands before them, where it has been taken already."""
    with Outlet(exchange, hang_up) as outlet:
        await exchange.begin_stream()
        if first is not None:
            await outlet.send(_framed(first))
        async for event in events:
            await outlet.send(_framed(event))
        await outlet.send(_END)
        await exchange.end_stream()


def _framed(event: Event) -> bytes:
    return frame(str(event["type"]), orjson.dumps(event))
