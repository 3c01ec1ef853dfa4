"""The connection of a worker that dials in, after the edge has read its request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

LOOK_EVERY_S = 0.05


class UpgradingConnection(Protocol):
    """What the edge knows of the request; its `headers` are in the scope."""

    config: uvicorn.Config
    server_state: ServerState
    app_state: dict[str, Any]
    transport: asyncio.Transport
    scope: Any
    url: bytes


class WorkerSocket(WebSocketsSansIOProtocol):
    """Serves a WebSocket, and closes it after the requests of a server that stops: their calls may run in the worker.

    `lost` is called at its end.
    """

    cycle: object = True  # it has had its request: a server that stops does not wait for one

    def __init__(self, connection: UpgradingConnection, lost: Callable[[Exception | None], None]) -> None:
        super().__init__(connection.config, connection.server_state, connection.app_state)
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        """End, also for the edge."""
        super().connection_lost(exc)
        self._lost(exc)

    async def send(self, message: Any) -> None:
        """Send; a refusal that is whole ends the handshake, or it would be an error of the application in the log."""
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True

    def shutdown(self) -> None:
        """Close, once no request is left."""
        if all(isinstance(each, WorkerSocket) for each in self.connections):
            super().shutdown()
        else:
            self.loop.call_later(LOOK_EVERY_S, self._shut_down_if_open)

    def _shut_down_if_open(self) -> None:
        if self in self.connections:
            self.shutdown()


def begin(connection: UpgradingConnection, lost: Callable[[Exception | None], None]) -> bool:
    """Give the transport of a connection to a WebSocket, whose handshake begins with the request that was read.

    Return False if it is no request of a handshake: nothing has been sent, and nothing more is read.
    """
    connection.server_state.connections.discard(connection)  # pyright: ignore[reportArgumentType]
    socket = WorkerSocket(connection, lost)
    socket.connection_made(connection.transport)
    connection.transport.set_protocol(socket)
    fields = (b"%s: %s\r\n" % pair for pair in connection.scope["headers"])
    socket.data_received(b"GET %s HTTP/1.1\r\n%s\r\n" % (connection.url, b"".join(fields)))
    # Of a request with a body or with too many fields, for one, the library says nothing.
    return socket.handshake_initiated or connection.transport.is_closing()
