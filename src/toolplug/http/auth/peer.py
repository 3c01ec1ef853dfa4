"""The peer of a connection: the address that the limits, the brake on wrong credentials and the audit lines go by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import Scope

NO_ADDRESS = "unknown"
"""The peer of a connection that has no address: one over a Unix socket, where the server names none."""

_WITH_PORT = re.compile(r"\[(?P<ipv6>[0-9A-Fa-f:.%]+)\](?::[0-9]{1,5})?|(?P<ipv4>[0-9.]+):[0-9]{1,5}")


class TrustedProxies:
    """The addresses and networks of `http.trusted_proxies`, whose `X-Forwarded-For` names the peer."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(ip_network(text) for text in networks)

    def __bool__(self) -> bool:
        """Return whether any network is configured."""
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        """Return whether this is the address of a trusted proxy."""
        ip = _parse(address)
        return ip is not None and any(ip in network for network in self._networks)


def peer_of(scope: Scope, trusted: TrustedProxies) -> str:
    """Return the connection's peer, or the last untrusted one of `X-Forwarded-For` behind trusted proxies.

    Each proxy appends the address that it was connected from, so the list is read from its end. An entry that is no
    address ends it: the proxy that passed it on is the peer. A list of trusted addresses alone gives its first.
    """
    client = scope.get("client")
    peer: str = NO_ADDRESS if client is None else client[0]
    if not trusted or peer not in trusted:
        return peer
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    for entry in reversed(",".join(values).split(",")):
        ip = _parse(entry.strip())
        if ip is None:
            return peer
        peer = str(ip)
        if peer not in trusted:
            return peer
    return peer


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address without port and brackets, an IPv4-mapped IPv6 one as IPv4; None if it is invalid."""
    match = _WITH_PORT.fullmatch(text)
    try:
        ip = ip_address((match["ipv6"] or match["ipv4"]) if match else text)
    except ValueError:
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip
