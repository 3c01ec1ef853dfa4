"""Records of sessions in the store, session codes and plugin tokens."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from typing import NotRequired, TypedDict, cast

import orjson

from toolplug.catalog.call import EMPTY
from toolplug.catalog.exact_json import load_own_json
from toolplug.errors import ApiError, GoneState, InvalidDefinition, RecordDamaged, StoreRefused
from toolplug.parts.sessions.tools.session_tool import (
    DeclaredCapability,
    DefinitionCache,
    ToolSet,
    read_capabilities,
    tool_set,
)

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
TOKEN_BEGIN = "tps_"
_TOKEN = re.compile(r"tps_([A-Z2-7]{8})_[A-Za-z0-9_-]{43}")


def new_code() -> str:
    """Return a new session code: eight random characters (40 bits), an address and not a credential."""
    # Base 32 without 0, 1, 8 and 9, which are mistaken for letters when a code is read aloud.
    return "".join(secrets.choice(_ALPHABET) for _ in range(8))


def new_token(code: str) -> str:
    """Return a new plugin token of this session: its code and 256 random bits."""
    return f"{TOKEN_BEGIN}{code}_{secrets.token_urlsafe(32)}"


def code_of_token(token: str) -> str | None:
    """Return the session code in a plugin token; None for a malformed token."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else found[1]


def token_digest(token: str) -> str:
    """Return the SHA-256 of a token as hex, which is all that is stored of it."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_token_of(digest: str, token: str) -> bool:
    """Return True if this is the token of the digest; compares in constant time."""
    # The digests are compared, not the tokens: their timing says nothing of the token even where it can be measured.
    return compare_digest(digest, token_digest(token))


def abbreviate_code(code: str) -> str:
    """Return the name of a session in logs and audit lines, which must not contain its code."""
    return f"session:{hashlib.sha256(code.encode()).hexdigest()[:12]}"


PREFIX = "session/"
SCHEMA = 1
"""The version of the format of session records. A later one is never read: to write it would drop what is new in it."""


class _StoredState(TypedDict):
    schema: NotRequired[int]
    tenant: str
    token: str
    ttl_s: float
    plugin_type: str
    revision: int
    registered: bool
    capabilities: list[object]
    environment: dict[str, object]
    tools: list[object]
    updated_at: float
    gone: GoneState | None
    created_by: NotRequired[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session at one revision, which rises by one with every change of what is registered.

    `created_by` is the subject whose quota it counts for; `updated_at` is in seconds on the store's clock; `gone` is
    how a session ended that is over.
    """

    tenant: str
    token_digest: str
    ttl_s: float
    plugin_type: str
    updated_at: float
    revision: int = 0
    registered: bool = False
    capabilities: tuple[DeclaredCapability, ...] = ()
    environment: Mapping[str, object] = field(default_factory=lambda: EMPTY)
    tools: ToolSet = field(default_factory=ToolSet)
    gone: GoneState | None = None
    created_by: str = ""

    def end(self, how: GoneState, at: float) -> SessionState:
        """Return what is stored of the session when it is over: nothing that was registered."""
        # What the application has sent is not kept for a session that is over, only how it ended.
        unregistered = replace(self, registered=False, capabilities=(), environment=EMPTY, tools=ToolSet())
        return replace(unregistered, updated_at=at, gone=how)


def record_key(code: str) -> str:
    """Return the key of a session's record and log."""
    return PREFIX + code


def state_bytes(state: SessionState) -> bytes:
    kept: dict[str, object] = {
        "schema": SCHEMA,
        "tenant": state.tenant,
        "token": state.token_digest,
        "ttl_s": state.ttl_s,
        "plugin_type": state.plugin_type,
        "revision": state.revision,
        "registered": state.registered,
        "capabilities": [item._asdict() for item in state.capabilities],
        "environment": dict(state.environment),
        "tools": orjson.Fragment(state.tools.wire()),
        "updated_at": state.updated_at,
        "gone": state.gone,
        "created_by": state.created_by,
    }
    return orjson.dumps(kept)


def read_state(value: bytes, pool: DefinitionCache) -> SessionState:
    """Return the state that `state_bytes` has encoded. Raises `StoreRefused` if this version cannot."""
    try:
        kept = cast("_StoredState", load_own_json(value))
        schema = kept.get("schema", SCHEMA)
        # Before anything else is read, as a later version may have given any field another meaning.
        if schema > SCHEMA:
            later = f"a session's record has schema {schema}, and this version of toolplug reads {SCHEMA}"
            raise StoreRefused(f"{later}: end the rolling update of the hosts, or delete the session")
        return SessionState(
            tenant=kept["tenant"],
            token_digest=kept["token"],
            ttl_s=kept["ttl_s"],
            plugin_type=kept["plugin_type"],
            updated_at=kept["updated_at"],
            revision=kept["revision"],
            registered=kept["registered"],
            capabilities=read_capabilities(kept["capabilities"]),
            environment=kept["environment"],
            tools=tool_set(pool.tool(raw) for raw in kept["tools"]),
            gone=kept["gone"],
            created_by=kept.get("created_by", ""),
        )
    except (AttributeError, KeyError, TypeError, ValueError, InvalidDefinition, ApiError) as error:
        raise RecordDamaged(f"a session's record cannot be read: {error!r}") from error
