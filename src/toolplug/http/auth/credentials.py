"""The credentials that a request carries: `Authorization: Bearer …` and `X-API-Key`, never in a URL."""

from __future__ import annotations

from collections.abc import Mapping

_SCHEME = b"bearer "


def bearer(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The bearer token, or None."""
    value = headers.get(b"authorization")
    if value is None or value[: len(_SCHEME)].lower() != _SCHEME:
        return None
    return value[len(_SCHEME) :].strip() or None


def credential(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The bearer token, else the API key, or None."""
    return bearer(headers) or headers.get(b"x-api-key")
