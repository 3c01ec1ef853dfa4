"""Requests for the socket of a worker, at the edge of `toolplug serve`: none stays without an answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.cli.process import PATIENCE_S, Serving, serving

pytestmark = pytest.mark.process

WEBSOCKET = (
    b"Host: localhost",
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("sockets")
    (folder / "providers.yaml").write_text("store: memory://\n", "utf-8")
    with serving(folder=folder) as running:
        yield running


@pytest.mark.requirement("C-5-edge-head")
@pytest.mark.parametrize(
    ("method", "more", "status"),
    [
        (b"GET", [], 404),
        (b"POST", [b"Content-Length: 0"], 404),
        (b"GET", [b"Content-Length: 5"], 400),
        (b"GET", [b"Transfer-Encoding: chunked"], 400),
        (b"GET", [b"X-Field: x"] * 200, 400),
    ],
)
def test_a_request_for_a_worker_s_socket_is_answered_whatever_it_is(
    service: Serving, method: bytes, more: list[bytes], status: int
) -> None:
    lines = len(service.lines)
    with socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), PATIENCE_S) as wire:
        head = [method + b" /v1/workers/nobody HTTP/1.1", *WEBSOCKET, *more]
        wire.sendall(b"\r\n".join([*head, b"\r\n"]))
        assert wire.recv(1_000).startswith(b"HTTP/1.1 %d " % status)
    # A refusal is no error of the application.
    assert not any("handshake" in line for line in service.lines[lines:])
