"""`If-None-Match`: does the client have this version."""

from __future__ import annotations


def has_version(condition: bytes | None, etag: bytes) -> bool:
    """Does the header name this version, weakly compared."""
    if condition is None:
        return False
    named = {item.strip().removeprefix(b"W/") for item in condition.split(b",")}
    return etag in named or b"*" in named
