"""Egress: requests of the host may reach public addresses, and what the operator lists under `egress.allow`.

An IPv6 address that carries an IPv4 address (mapped, translated, 6to4, NAT64, Teredo) must be permitted as both.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

_LOG = logging.getLogger("toolplug.execution")

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host and port in the order to try them. Raises `OSError` if there are none."""

# Beside RFC 1918 the shared range of carriers (RFC 6598), unique local IPv6 (RFC 4193) and the older site-local range,
# which systems still route.
_PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")
)
# The metadata services of AWS and most others, Alibaba, Oracle, Azure, and AWS over IPv6: whoever reads one has the
# credentials of the machine, so `private` does not include them.
_METADATA = tuple(
    ipaddress.ip_network(text)
    for text in ("169.254.0.0/16", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32", "fd00:ec2::254/128")
)
_LOOPBACK = tuple(ipaddress.ip_network(text) for text in ("127.0.0.0/8", "::1/128"))
_NEVER_PUBLIC = (
    *_PRIVATE,
    *_METADATA,
    *_LOOPBACK,
    # `is_global` is True for some of these in one or another version of Python: Linux connects 0.0.0.0 to itself, and
    # the IPv4-compatible `::/96` leads to an IPv4 address.
    *(ipaddress.ip_network(text) for text in ("0.0.0.0/8", "fe80::/10", "64:ff9b:1::/48", "::/96")),
)
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::ffff:0:0:0/96"))
"""NAT64 (RFC 6052), and IPv4-translated addresses of SIIT (RFC 2765)."""
_ISATAP = (0x00005EFE, 0x02005EFE)
_HOST = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")


class EgressRefused(Exception):
    """A host has an address that requests of this host may not reach."""


@dataclass(frozen=True, slots=True)
class Egress:
    """The operator's list: `loopback`, `private`, networks (`10.1.0.0/16`) and hosts (`a.example`, `*.corp.example`).

    A listed host may have any address. `private` does not permit link-local addresses and those of a cloud's metadata
    service; a network or a host does. Raises `ValueError` for any other word.

    ```python
    from ipaddress import ip_address

    from toolplug import Egress

    egress = Egress(("10.1.0.0/16", "*.corp.example"))
    assert egress.permits("files.corp.example", ip_address("192.168.0.7"))
    assert not egress.permits("files.example", ip_address("192.168.0.7"))
    ```
    """

    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for word in self.allow:
            if word not in ("loopback", "private") and _network(word) is None and not _HOST.fullmatch(word.lower()):
                raise ValueError(
                    f"{word!r} is neither loopback, private, a network (10.1.0.0/16) nor a host (*.corp.example)"
                )

    def permits(self, host: str, address: Address) -> bool:
        """Return True if a request to this host may be made to this address."""
        # A trailing dot names the same host, and would pass by every pattern.
        name = host.rstrip(".").lower()
        # Hosts only: `10.1.0.0/16` as a pattern for names would match nothing, or something surprising.
        listed = any(_network(word) is None and fnmatchcase(name, word.lower()) for word in self.allow)
        return listed or all(self._permits_address(each) for each in (address, *embedded_addresses(address)))

    def _permits_address(self, address: Address) -> bool:
        if any(_within(address, network) for word in self.allow if (network := _network(word)) is not None):
            return True
        if _in_any(address, _LOOPBACK):
            return "loopback" in self.allow
        if _in_any(address, _PRIVATE):
            # A metadata address may lie in a private range (100.100.100.200, fd00:ec2::254), hence the second
            # condition.
            return "private" in self.allow and not _in_any(address, _METADATA)
        return is_public(address)


PUBLIC_ONLY = Egress()


def is_public(address: Address) -> bool:
    """Return True for a globally reachable unicast address. Check the IPv4 addresses that it carries separately."""
    # An address that carries an IPv4 address is not global itself (NAT64, 6to4), and is judged by what it carries.
    outward = address.is_global or bool(embedded_addresses(address))
    return outward and not address.is_multicast and not _in_any(address, _NEVER_PUBLIC)


def embedded_addresses(address: Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that an IPv6 address of a transition mechanism leads to; empty for others."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    # ISATAP has no network of its own: the marker is in the middle of the interface identifier (RFC 5214).
    number = int(address)
    if _in_any(address, _TRANSLATED) or (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return (IPv4Address(number & 0xFFFFFFFF),)
    return ()


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses that the system's resolver knows, each once. Raises `OSError`.

    A thread each, at most as many as a transport opens connections: `loop.getaddrinfo` waits in the few threads that
    the whole process shares, and names whose servers keep silent would hold them.
    """
    in_own_thread = import_module("toolplug.runtime.threads").in_own_thread  # asyncio is not for every author
    infos = await in_own_thread(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


async def reachable(egress: Egress, host: str, port: int, resolve: Resolve) -> tuple[str, ...]:
    """Return the addresses of a host if all are permitted; connect to one of these, without resolving again.

    Raises `EgressRefused` if one of them is not permitted, `OSError` if the host has none. The error does not name the
    address, so that its readers do not learn what an internal name resolves to; the log does.
    """
    found = await resolve(host, port)
    if not found:
        raise OSError(f"{host!r} has no address")
    # All of them must be permitted, not one: a name server could return a public and an internal address together, and
    # the connection would be tried to both.
    for text in found:
        if not egress.permits(host, ipaddress.ip_address(text)):
            _LOG.info("%r has the address %s, which egress.allow does not list", host, text)
            raise EgressRefused(f"{host!r} has an address which is not public; egress.allow does not list it")
    return tuple(found)


def _network(word: str) -> Network | None:
    try:
        return ipaddress.ip_network(word)
    except ValueError:
        return None


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network


def _in_any(address: Address, networks: Sequence[Network]) -> bool:
    return any(_within(address, network) for network in networks)
