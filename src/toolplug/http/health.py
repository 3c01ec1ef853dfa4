"""`GET /healthz`: the process lives. `GET /readyz`: calls can be served, or why not."""

from __future__ import annotations

import orjson

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange


async def healthz(host: Host, exchange: Exchange) -> None:
    """Answer as long as the process does; the host need not be entered."""
    await exchange.answer(200, b'{"status":"ok"}')


async def readyz(host: Host, exchange: Exchange) -> None:
    """Answer 503 with the reasons while a part that calls need is down."""
    reasons = await host.ready()
    body = {"status": "not_ready" if reasons else "ready", "reasons": reasons}
    await exchange.answer(503 if reasons else 200, orjson.dumps(body))
