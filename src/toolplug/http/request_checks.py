"""All doors in their order, made for one reading of the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address

from starlette.types import Scope

from toolplug.host.file.settings import HostSettings
from toolplug.http.auth.chain import Authenticator
from toolplug.http.auth.plugin_tokens import CallersOnly, configured_gatekeeper
from toolplug.http.cors import SHARED, sharing_headers
from toolplug.http.exchange import Exchange
from toolplug.http.problem import HttpProblem, invalid_request
from toolplug.sessions.service import Sessions

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


class OriginDoor:
    """Lets in requests without an origin, from a page of this server itself, and from listed origins."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in allowed)

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HttpProblem` for a foreign origin."""
        given = headers.get(b"origin")
        if given is None:
            return
        origin = given.decode("latin-1").lower()
        host = headers[b"host"].decode("latin-1").lower()
        if origin in {f"http://{host}", f"https://{host}"} or origin in self._allowed:
            return
        message = "pages of this origin may not call; list it under http.allowed_origins"
        raise HttpProblem(403, "origin_not_allowed", message, param="Origin")


_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@]+)(?::[0-9]{1,5})?")

LOCAL = "localhost"


class HostDoor:
    """Lets requests in that name a host of ours; the port does not matter, since proxies change it.

    What was let in last is let in again without being read: clients do not change the name that they use.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        names = (host_name(entry) or entry.lower() for entry in allowed)
        self._allowed = frozenset({LOCAL, *names})
        self._last: tuple[bytes, object] = (b"", None)

    def check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HttpProblem` for a Host header that is missing, doubled, malformed or not ours."""
        found = headers.get(b"host")
        if found is None or (len(headers) < len(scope["headers"]) and _doubled(scope)):
            raise _misdirected("the request must have exactly one Host header")
        bound = scope.get("server")
        if (found, bound) != self._last:
            self._check_name(host_name(found.decode("latin-1")), bound)
            self._last = (found, bound)

    def _check_name(self, name: str | None, bound: tuple[str, int | None] | None) -> None:
        if name is None:
            raise _misdirected("the Host header is no host name with an optional port")
        if name not in self._allowed and (bound is None or name != bound[0].lower()):
            raise _misdirected("this server is not known by the name in the Host header")


def host_name(header: str) -> str | None:
    """The host in lower case, without port and brackets; None where it is none."""
    match = _HOST.fullmatch(header)
    return match[1].strip("[]").lower() if match else None


def _doubled(scope: Scope) -> bool:
    return sum(name == b"host" for name, _ in scope["headers"]) > 1


def _misdirected(what: str) -> HttpProblem:
    message = f"{what}; use the bound address or localhost, or list the name under http.allowed_hosts"
    return HttpProblem(421, "host_not_allowed", message, param="Host")


MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * 1024
"""Names and values together, without separators."""

SINGLE = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"idempotency-key",
        b"origin",
        b"x-api-key",
        b"x-request-id",
    }
)


def check_headers(raw: Sequence[tuple[bytes, bytes]], headers: Mapping[bytes, bytes]) -> None:
    """Raise `HttpProblem` for too many, too large or doubled headers; `headers` holds the last of each name."""
    if len(raw) > MAX_HEADERS:
        raise _too_large(f"{len(raw)} headers, {MAX_HEADERS} are allowed")
    size = 0
    for name, value in raw:
        size += len(name) + len(value)
    if size > MAX_HEADER_BYTES:
        raise _too_large(f"{size} bytes of headers, {MAX_HEADER_BYTES} are allowed")
    if len(headers) < len(raw):
        names = [name for name, _ in raw]
        for name in SINGLE:
            if names.count(name) > 1:
                raise invalid_request(f"the header {name.decode()} stands twice; send it once", name.decode())


def _too_large(found: str) -> HttpProblem:
    return HttpProblem(431, "headers_too_large", f"the request has {found}; send fewer or shorter ones")


class Entrance:
    """What a request passes before its route is looked at, and the gatekeeper that its route asks.

    Host, header limits, Origin, loopback: in this order, so that what a stranger can make us do is least. `open`:
    nobody is asked who they are.
    """

    def __init__(
        self,
        settings: HostSettings,
        sessions: Callable[[], Sessions],
        *,
        insecure_no_auth: bool,
        authenticators: Sequence[Authenticator],
    ) -> None:
        self.settings = settings
        self.max_body: int = settings.http.max_body
        self._hosts = HostDoor(settings.http.allowed_hosts)
        self._origins = OriginDoor(settings.http.allowed_origins)
        self.open: bool = settings.auth is None and not authenticators
        self._loopback_only = self.open and not insecure_no_auth
        self.gatekeeper: CallersOnly = CallersOnly(configured_gatekeeper(settings.auth, authenticators), sessions)

    def check(self, exchange: Exchange) -> None:
        """Raise `HttpProblem` where a door is closed for this request."""
        scope, headers = exchange.scope, exchange.headers
        self._hosts.check(scope, headers)
        check_headers(scope["headers"], headers)
        self._origins.check(headers)
        if exchange.path.startswith(SHARED):
            exchange.standing += sharing_headers(headers)
        if self._loopback_only:
            check_loopback(scope)
