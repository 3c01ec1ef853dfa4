"""A host without `auth` serves its own machine only."""

from __future__ import annotations

from ipaddress import ip_address

from starlette.types import Scope

from toolplug.http.problem import HttpProblem

_USUAL = frozenset({"127.0.0.1", "::1"})


def check_loopback(scope: Scope) -> None:
    """Raise `HttpProblem` unless the peer is on loopback and the connection came in there.

    A peer that the server does not name (a Unix socket) counts as foreign. The bound address is looked at as well,
    since a trusted proxy may name any peer.
    """
    peer, bound = scope.get("client"), scope.get("server")
    if peer is None or not is_loopback(peer[0]) or (bound is not None and _is_foreign(bound[0])):
        message = "without auth only this machine is served; add auth to the configuration, or serve --insecure-no-auth"
        raise HttpProblem(403, "loopback_only", message)


def is_loopback(address: str) -> bool:
    """Is it an IP address of the loopback."""
    if address in _USUAL:
        return True
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return (mapped or ip).is_loopback


def _is_foreign(address: str) -> bool:
    """Is it an IP address, but none of the loopback."""
    try:
        ip_address(address)
    except ValueError:
        return False
    return not is_loopback(address)
