"""What lets a page of another origin use our answers (CONTRACT.md section 5, *Browsers*).

The door of origins has let the page in; here its browser is told so, for the paths that are meant for pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolplug.http.exchange import Exchange
from toolplug.http.problem import Headers

SHARED = ("/api/sessions", "/mcp", "/toolplug.js")
"""The paths that are meant for pages, with what stands below them."""

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
EXPOSED_HEADERS = ("ETag", "Retry-After", "X-Request-Id", "Idempotent-Replayed", "Mcp-Session-Id")
MAX_AGE_S = 600
"""How long a browser may remember what it was told: a change of the configuration is seen then at the latest."""

_VARY = (b"vary", b"origin")
_VARY_OF_PREFLIGHT = (b"vary", b"access-control-request-method, access-control-request-headers")
_EXPOSED = (b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode())
_ALLOWED = (b"access-control-allow-headers", ", ".join(ALLOWED_HEADERS).encode())
_AGE = (b"access-control-max-age", b"%d" % MAX_AGE_S)


def sharing_headers(headers: Mapping[bytes, bytes]) -> Headers:
    """What every answer at a shared path carries; a request without an origin is told only that origins matter."""
    origin = headers.get(b"origin")
    return (_VARY,) if origin is None else (_VARY, (b"access-control-allow-origin", origin), _EXPOSED)


def is_preflight(exchange: Exchange) -> bool:
    """Does a browser ask whether its page may send a request here."""
    headers = exchange.headers
    return (
        exchange.method == "OPTIONS"
        and b"access-control-request-method" in headers
        and b"origin" in headers
        and exchange.path.startswith(SHARED)
    )


async def answer_preflight(exchange: Exchange, methods: Iterable[str]) -> None:
    """Say which methods and headers a page may send here; nobody needs credentials to ask."""
    answer = [(b"access-control-allow-methods", ", ".join(sorted(methods)).encode()), _ALLOWED, _AGE]
    if exchange.headers.get(b"access-control-request-private-network") == b"true":
        answer.append((b"access-control-allow-private-network", b"true"))
    await exchange.answer_done([*answer, _VARY_OF_PREFLIGHT])
