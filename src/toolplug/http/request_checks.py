"""The checks of a request before its route is looked up, and the CORS headers of the responses to web pages.

These stay ours because Starlette's parts answer something else (docs/reference/http.md, *Browsers*):

* `TrustedHostMiddleware` answers 400 as plain text where this is a 421 with a body that programs can read, and knows
  neither the bound address nor a Host header that is sent twice.
* `CORSMiddleware` refuses no foreign origin: it calls the handler and leaves out a header. It answers a preflight with
  200 and `OK`, with the same methods for every path, adds four header names of its own, and has no 404 for an unknown
  path; to other responses it joins all `Vary` headers into one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from ipaddress import ip_address

from starlette.responses import Response
from starlette.types import Scope

from toolplug.host.file.settings import EdgeSettings, HostSettings
from toolplug.http.auth.authentication import AuthFunction, CallersOnly, configured_authenticator
from toolplug.http.auth.peer import TrustedProxies
from toolplug.http.errors import HttpProblem, invalid_request
from toolplug.http.requests import HostState, SentResponse
from toolplug.part_protocols.host_part import HostSessions
from toolplug.runtime.duplicates import first_repeated

RawHeaders = Sequence[tuple[bytes, bytes]]

# A name or an IPv6 address in brackets, and a port; no user, no path and no blank.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@]+)(?::[0-9]{1,5})?")

LOCAL = "localhost"


def check_host(scope: Scope, headers: Mapping[bytes, bytes], allowed: Collection[str]) -> None:
    """Raise `HttpProblem` for a Host header that is missing, sent twice, malformed or not allowed.

    `allowed` are lower-case names without port; the bound address is allowed as well. The port does not matter, since
    proxies change it.
    """
    found = headers.get(b"host")
    raw: RawHeaders = scope["headers"]
    # The mapping has the last of each name: only where it is shorter can one have come twice.
    if found is None or (len(headers) < len(raw) and sum(name == b"host" for name, _ in raw) > 1):
        raise _refuse_host("the request must have exactly one Host header")
    name = host_name(found.decode("latin-1"))
    if name is None:
        raise _refuse_host("the Host header is no host name with an optional port")
    if name not in allowed:
        # The address that the connection came in at: a client on this machine may use it without any configuration.
        bound = scope.get("server")
        if bound is None or name != bound[0].lower():
            raise _refuse_host("this server is not known by the name in the Host header")


def host_name(header: str) -> str | None:
    """Return the host in lower case, without port and brackets; None if it is invalid."""
    match = _HOST.fullmatch(header)
    return match[1].strip("[]").lower() if match else None


def _refuse_host(what: str) -> HttpProblem:
    message = f"{what}; use the bound address or localhost, or list the name under http.allowed_hosts"
    return HttpProblem(421, "host_not_allowed", message, param="Host")


def check_origin(headers: Mapping[bytes, bytes], allowed: Collection[str]) -> None:
    """Raise `HttpProblem` unless the request has no origin, or that of this server, or one of `allowed`.

    `allowed` are lower case and have no trailing slash. `check_host` comes first.
    """
    given = headers.get(b"origin")
    if given is None:
        return
    origin = given.decode("latin-1").lower()
    host = headers[b"host"].decode("latin-1").lower()
    # Both schemes, since a proxy in front of the host may end TLS.
    if origin in {f"http://{host}", f"https://{host}"} or origin in allowed:
        return
    message = "pages of this origin may not call; list it under http.allowed_origins"
    raise HttpProblem(403, "origin_not_allowed", message, param="Origin")


MAX_HEADERS = 100
_LOG = logging.getLogger("toolplug.http")
_MAX_WARNINGS = 16
_MAX_SHOWN = 200
MAX_HEADER_BYTES = EdgeSettings().head_bytes
"""Names and values together, without separators; of a host `http.edge.head_bytes`."""

SINGLE = frozenset(
    {b"authorization", b"content-length", b"content-type", b"idempotency-key", b"origin", b"x-api-key", b"x-request-id"}
)

_OWN = (b"x-toolplug-", b"mcp-", b"toolplug-")
"""How headers of toolplug and of MCP begin, such as credentials, and those that name the caller, agent or session."""


def check_headers(
    raw: Sequence[tuple[bytes, bytes]], headers: Mapping[bytes, bytes], max_bytes: int = MAX_HEADER_BYTES
) -> None:
    """Raise `HttpProblem` for too many, too large or doubled headers; `headers` holds the last of each name."""
    if len(raw) > MAX_HEADERS:
        raise _too_large(f"{len(raw)} headers, {MAX_HEADERS} are allowed")
    # A loop and not `sum` of a generator: it runs for each request, over some twenty headers.
    size = 0
    for name, value in raw:
        size += len(name) + len(value)
    if size > max_bytes:
        raise _too_large(f"{size} bytes of headers, {max_bytes} are allowed")
    if len(headers) < len(raw):
        twice = first_repeated(name for name, _ in raw if name in SINGLE or name.startswith(_OWN))
        if twice is not None:
            raise invalid_request(f"duplicate header {twice.decode()}; send it once", twice.decode())


def _too_large(found: str) -> HttpProblem:
    return HttpProblem(431, "headers_too_large", f"the request has {found}; send fewer or shorter ones")


_USUAL = frozenset({"127.0.0.1", "::1"})


def check_loopback(scope: Scope, forwarded_for: bytes | None) -> None:
    """Raise `HttpProblem` unless the peer is on loopback and the connection came in there.

    A peer that the server does not name (a Unix socket) counts as foreign. The bound address is looked at as well,
    since a trusted proxy may name any peer, and so is `X-Forwarded-For`: a proxy on this machine serves others.
    """
    peer, bound = scope.get("client"), scope.get("server")
    # A proxy on this machine connects from loopback for everyone: the addresses that it names must be local as well.
    via = () if forwarded_for is None else forwarded_for.decode("latin-1").split(",")
    is_remote = peer is None or not all(is_loopback(address.strip()) for address in (peer[0], *via))
    if is_remote or (bound is not None and _is_foreign(bound[0])):
        message = "without auth only this machine is served; add auth to the configuration, or serve --insecure-no-auth"
        raise HttpProblem(403, "loopback_only", message)


def is_loopback(address: str) -> bool:
    """Return whether this is an IP address of the loopback."""
    if address in _USUAL:
        return True
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    # A dual-stack socket names an IPv4 peer as `::ffff:127.0.0.1`, which is no loopback by itself.
    mapped = getattr(ip, "ipv4_mapped", None)
    return (mapped or ip).is_loopback


def _is_foreign(address: str) -> bool:
    """Return whether this is an IP address, but not of the loopback."""
    try:
        ip_address(address)
    except ValueError:
        return False
    return not is_loopback(address)


SHARED = (
    "/.well-known/oauth-protected-resource",
    "/toolplug.js",
)
"""The paths of the host itself that are meant for pages, with everything below them."""

ALLOWED_HEADERS = (
    "Authorization",
    "X-API-Key",
    "Content-Type",
    "Last-Event-ID",
    "If-Match",
    "If-None-Match",
    "Accept-Version",
    "Idempotency-Key",
    "X-Request-Id",
    "X-Toolplug-Agent",
    "Mcp-Protocol-Version",
    "Mcp-Session-Id",
    "Mcp-Method",
    "Mcp-Name",
)
EXPOSED_HEADERS = ("ETag", "Retry-After", "WWW-Authenticate", "X-Request-Id", "Idempotent-Replayed", "Mcp-Session-Id")
MAX_AGE_S = 600
"""How long a browser may keep a preflight response: a change of the configuration applies then at the latest."""

_VARY = (b"vary", b"origin")
_EXPOSED = (b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode())
_PREFLIGHT = {
    "Access-Control-Allow-Headers": ", ".join(ALLOWED_HEADERS),
    "Access-Control-Max-Age": str(MAX_AGE_S),
    "Vary": "access-control-request-method, access-control-request-headers",
}


def preflight_response(scope: Scope, methods: Iterable[str]) -> Response:
    """Return the 204 with the methods and headers that a page may send; it needs no credentials."""
    headers = {"Access-Control-Allow-Methods": ", ".join(sorted(methods)), **_PREFLIGHT}
    # Chrome asks so before a public page may reach a host in a private network.
    if (b"access-control-request-private-network", b"true") in scope["headers"]:
        headers["Access-Control-Allow-Private-Network"] = "true"
    return Response(status_code=204, headers=headers)


class RequestChecks:
    """The checks for one reading of the configuration, in their order: Host, header limits, Origin, loopback.

    So a stranger causes the least work. `open`: no credentials are needed. `callers` authenticates. `shared` are the
    paths, with everything below them, that are meant for pages of allowed origins: `SHARED` and those of parts.
    """

    def __init__(
        self,
        settings: HostSettings,
        sessions: Callable[[], HostSessions],
        *,
        insecure_no_auth: bool,
        authenticators: Sequence[AuthFunction],
        shared: Iterable[str] = (),
    ) -> None:
        self.settings = settings
        self.shared: tuple[str, ...] = (*SHARED, *shared)
        self.max_body: int = settings.http.max_body
        self.proxies: TrustedProxies = TrustedProxies(settings.http.trusted_proxies)
        self.open: bool = settings.auth is None and not authenticators
        self.callers: CallersOnly = CallersOnly(configured_authenticator(settings.auth, authenticators), sessions)
        self._hosts = frozenset({LOCAL, *(host_name(name) or name.lower() for name in settings.http.allowed_hosts)})
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.http.allowed_origins)
        self._head_bytes = settings.http.edge.head_bytes
        self._accepted: tuple[bytes | None, object] | None = None
        self._refused: set[bytes] = set()
        self._loopback_only = self.open and not insecure_no_auth

    def check(self, scope: Scope, path: str, sent: SentResponse) -> None:
        """Raise `HttpProblem` where a check fails; `path` is without the mount prefix. `sent` gets the CORS headers.

        `scope["state"]` is as `initial_state` made it.
        """
        raw: RawHeaders = scope["headers"]
        state: HostState = scope["state"]
        headers = state["headers"]
        named = headers.get(b"host"), scope.get("server")
        if named != self._accepted or len(headers) < len(raw):  # clients do not change the name that they use
            check_host(scope, headers, self._hosts)
            self._accepted = named
        check_headers(raw, headers, self._head_bytes)
        try:
            check_origin(headers, self._origins)
        except HttpProblem as problem:
            self._warn(headers[b"origin"], problem)
            raise
        if path.startswith(self.shared):
            origin = headers.get(b"origin")
            sharing = () if origin is None else ((b"access-control-allow-origin", origin), _EXPOSED)
            # `Vary` also without an `Origin`: a cache must not give the answer without CORS headers to a page.
            sent.headers += (_VARY, *sharing)
        if self._loopback_only:
            check_loopback(scope, headers.get(b"x-forwarded-for"))

    def _warn(self, origin: bytes, problem: HttpProblem) -> None:
        # A page cannot read why it was refused, and its browser does not say it either. Any page may ask: a few lines.
        if origin not in self._refused and len(self._refused) < _MAX_WARNINGS:
            self._refused.add(origin)
            _LOG.warning("origin %r: %s", origin[:_MAX_SHOWN].decode("latin-1"), problem.message)

    def is_preflight(self, scope: Scope, path: str) -> bool:
        """Return whether this is a CORS preflight request to a shared path."""
        if scope["method"] != "OPTIONS" or not path.startswith(self.shared):
            return False
        headers = scope["state"]["headers"]
        return b"access-control-request-method" in headers and b"origin" in headers
