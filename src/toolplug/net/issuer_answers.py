"""What issuers send: tokens, and what they say of themselves.

A field that cannot be used and that nobody needs is left out: issuers send null for none, a life as text or as a
fraction, scopes as a list. What is decisive is refused if it cannot be used.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import NamedTuple, TypeVar, cast

import orjson
from pydantic import BaseModel, ValidationError

MAX_TOKEN_CHARS = 16 * 1024
"""Of a token. Servers take no longer headers, most of them half of it; Entra's with 200 groups has 7 KiB."""
_MAX_LIFE_S = 10 * 365 * 24 * 3600.0
"""A token that lives longer has no end that matters, and the date could be none that can be written."""
_MAX_LIST = 1000
"""Entries of a list in metadata: each that is wrong costs an error of its own."""
_PASSING = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
"""Errors after which the same request may be answered (RFC 6749, section 4.1.2.1; RFC 8628)."""
_DECISIVE = frozenset({"code_challenge_methods_supported"})

_LOG = logging.getLogger("toolplug.oauth")

M = TypeVar("M", bound=BaseModel)


class InvalidAnswer(ValueError):
    """An answer cannot be used; the text says why, and has nothing of what was answered."""


class IssuedTokens(NamedTuple):
    """An answer of a token endpoint (RFC 6749, section 5.1). Empty, 0 and None are for what it does not say."""

    access: str
    refresh: str = ""
    expires_in: float = 0.0
    scope: str | None = None


def read_tokens(content: bytes) -> IssuedTokens:
    """Return the tokens of an answer. Raises `InvalidAnswer`."""
    answer = _read_object(content)
    access, kind = answer.get("access_token"), answer.get("token_type") or "Bearer"
    if not isinstance(access, str) or not access:
        raise InvalidAnswer("the answer of the issuer is no token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise InvalidAnswer("the token of the issuer is none of the type Bearer")
    refresh = answer.get("refresh_token")
    refresh = refresh if isinstance(refresh, str) else ""
    if max(len(access), len(refresh)) > MAX_TOKEN_CHARS:
        raise InvalidAnswer(f"the token of the issuer has more than {MAX_TOKEN_CHARS:,} characters")
    if not (access.isascii() and access.isprintable() and access == access.strip()):
        raise InvalidAnswer("the token of the issuer cannot be sent in a header")
    return IssuedTokens(access, refresh, _seconds(answer.get("expires_in")), _scope(answer.get("scope")))


def is_refusal(status: int, content: bytes) -> bool:
    """Return whether an issuer refuses a grant for good; some do so with status 200."""
    error = _error_of(content)
    return error not in _PASSING and (status in {400, 401, 403} or (status == 200 and error != ""))


def is_unknown_client(content: bytes) -> bool:
    """Return whether an issuer does not know the client that asks, or does not believe it."""
    return _error_of(content) == "invalid_client"


def read_metadata(model: type[M], content: bytes) -> M:
    """Return metadata without the optional fields that cannot be used, which are logged. Raises `InvalidAnswer`."""
    fields = {name: value for name, value in _read_object(content).items() if value is not None}
    wrong = {name for name, value in fields.items() if _is_long(value)}
    fields = {name: value for name, value in fields.items() if name in model.model_fields and name not in wrong}
    try:
        found = model.model_validate(fields)
    except ValidationError as error:
        wrong |= {str(each["loc"][0]) for each in error.errors(include_input=False) if each["loc"]}
        found = None
    needed = {name for name, field in model.model_fields.items() if field.is_required()} | _DECISIVE
    if wrong & needed:
        raise InvalidAnswer(f"{', '.join(sorted(wrong & needed))} cannot be used")
    if found is None:
        found = model.model_validate({name: value for name, value in fields.items() if name not in wrong})
    left_out = sorted(f"/{name}" for name in wrong & model.model_fields.keys())
    if left_out:
        _LOG.warning("left out of the metadata of an issuer or server: %s", ", ".join(left_out))
    return found


def _read_object(content: bytes) -> Mapping[str, object]:
    try:
        value: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise InvalidAnswer("the answer of the issuer is no JSON") from None
    if not isinstance(value, dict):
        raise InvalidAnswer("the answer of the issuer is no JSON object")
    return cast("Mapping[str, object]", value)


def _error_of(content: bytes) -> str:
    try:
        error = _read_object(content).get("error")
    except InvalidAnswer:
        return ""
    return error if isinstance(error, str) else "error" if error else ""


def _is_long(value: object) -> bool:
    return isinstance(value, list | dict) and len(cast("list[object]", value)) > _MAX_LIST


def _seconds(value: object) -> float:
    """Return a life in seconds, 0 for none that can be used."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and 0 < seconds <= _MAX_LIFE_S else 0.0


def _scope(value: object) -> str | None:
    if isinstance(value, list):
        value = " ".join(each for each in cast("list[object]", value)[:_MAX_LIST] if isinstance(each, str))
    return value[:MAX_TOKEN_CHARS] if isinstance(value, str) else None
