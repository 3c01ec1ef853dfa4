"""The peer of a connection: the socket's address, or what trusted proxies say of it."""

from __future__ import annotations

from typing import Any

import pytest

from toolplug.http.peer import NO_ADDRESS, TrustedProxies, peer_of

PROXIES = TrustedProxies(["10.0.0.0/8", "192.0.2.7", "fd00::/8"])


def _scope(client: str | None, *forwarded: str) -> dict[str, Any]:
    headers = [(b"host", b"localhost"), *((b"x-forwarded-for", value.encode()) for value in forwarded)]
    return {"type": "http", "client": None if client is None else (client, 1234), "headers": headers}


@pytest.mark.requirement("C-5-peer")
@pytest.mark.parametrize(
    ("client", "forwarded", "peer"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["6.6.6.6, 198.51.100.1, 192.0.2.7"], "198.51.100.1"),
        ("10.0.0.1", ["6.6.6.6", "198.51.100.1", "192.0.2.7, 10.9.9.9"], "198.51.100.1"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["6.6.6.6, nonsense, 192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["2001:DB8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("fd00::5", ["198.51.100.1"], "198.51.100.1"),
        (None, ["198.51.100.1"], NO_ADDRESS),
    ],
)
def test_the_peer_is_the_last_address_that_no_trusted_proxy_has(
    client: str | None, forwarded: list[str], peer: str
) -> None:
    assert peer_of(_scope(client, *forwarded), PROXIES) == peer


@pytest.mark.requirement("C-5-peer")
def test_without_trusted_proxies_a_header_names_nobody() -> None:
    assert peer_of(_scope("127.0.0.1", "198.51.100.1"), TrustedProxies()) == "127.0.0.1"
