"""What a server may ask for besides HTTP: a lifespan, which is the host's and not ours, and WebSockets: none."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

POLICY_VIOLATION = 1008


async def answer_other_protocol(scope: Scope, receive: Receive, send: Send) -> None:
    """Agree to a lifespan without doing anything in it; refuse a WebSocket."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
