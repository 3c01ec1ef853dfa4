"""Headers: at most 100 of them and 32 KiB, and none twice where a second one would mean something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolplug.http.problem import HttpProblem, invalid_request

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
