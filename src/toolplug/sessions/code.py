"""Codes, which address sessions, and plugin tokens, which open them."""

from __future__ import annotations

import hashlib
import re
import secrets
from hmac import compare_digest

from toolplug.errors import InvalidSessionCode

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_CODE = re.compile(r"[A-Z2-7]{8}")
_TOKEN_BEGIN = "tps_"
_TOKEN = re.compile(r"tps_([A-Z2-7]{8})_[A-Za-z0-9_-]{43}")


def new_code() -> str:
    """Eight random characters: 40 bits, an address and not a credential."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(8))


def check_code(code: str) -> None:
    """Raise `InvalidSessionCode` for text that is no code."""
    if not _CODE.fullmatch(code):
        raise InvalidSessionCode(code)


def new_token(code: str) -> str:
    """A plugin token of this session: its code, then 256 random bits."""
    return f"{_TOKEN_BEGIN}{code}_{secrets.token_urlsafe(32)}"


def is_plugin_token(credential: str) -> bool:
    """Does it say of itself that it is a plugin token, right or wrong."""
    return credential.startswith(_TOKEN_BEGIN)


def code_of_token(token: str) -> str | None:
    """The session that a plugin token names; None where it is malformed."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else found[1]


def token_digest(token: str) -> str:
    """What is kept of a token: its SHA-256 as hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_token_of(digest: str, token: str) -> bool:
    """Is this the token that the digest was taken of; compares in constant time."""
    return compare_digest(digest, token_digest(token))


def shown(code: str) -> str:
    """A session in logs and audit lines, where its code must not stand."""
    return f"session:{hashlib.sha256(code.encode()).hexdigest()[:12]}"
