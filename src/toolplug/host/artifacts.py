"""Artifacts: results over their size limit, stored for their caller, and `read_result`, which reads them in parts."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_urlsafe
from typing import NamedTuple, NotRequired, TypedDict, cast

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition, ToolHints
from toolplug.errors import ToolError
from toolplug.execution.plans import CallServices, own_tool
from toolplug.execution.user_auth import ScopeOf, no_scope
from toolplug.stores.store import Store, name_digest

MAX_CHARACTERS = 100_000
READ_TIMEOUT_S = 10.0
READ_RESULT = "read_result"

SOURCE = "_artifacts"
"""The source of `read_result`: no provider can have this key."""
# UTF-8 takes up to four bytes a character. With less than that `read_result` could exceed its own size limit, and its
# answer would be stored as one more artifact.
_UTF8_MAX = 4


class Piece(NamedTuple):
    """A part of an artifact. In characters: `next_offset` (None at the end) and `total`, the length of the whole."""

    text: str
    next_offset: int | None
    total: int


class _Arguments(TypedDict):
    handle: str
    offset: NotRequired[float]
    limit: NotRequired[float]


class Artifacts:
    """Texts under handles that cannot be guessed, each for one tenant and session, and for `ttl_s()` seconds.

    One of a call with credentials that its caller has brought (`scope_of`) is for who brings the same.
    """

    def __init__(
        self,
        store: Store,
        ttl_s: Callable[[], float],
        scope_of: ScopeOf = no_scope,
    ) -> None:
        self._store = store
        self._scope_of = scope_of
        self._ttl_s = ttl_s

    async def keep(self, text: str, context: CallContext) -> str:
        """Store the text for this caller's tenant and session and return its handle. Raises `StoreError`."""
        handle = token_urlsafe(16)
        await self._store.commit(await self._key(handle, context), text.encode(), expected=0, ttl_s=self._ttl_s())
        return handle

    async def read(self, handle: str, offset: int, limit: int, context: CallContext) -> Piece:
        """Return up to `limit` characters from `offset` on. Raises `StoreError`.

        Raises `ToolError` for an offset past the end, and with one text for an unknown, expired or foreign handle.
        """
        record = await self._store.read(await self._key(handle, context))
        if record is None:
            raise ToolError(f"no artifact {handle!r}; it may be past its time")
        text = record.value.decode()
        if offset >= len(text):
            raise ToolError(f"offset {offset} is past the end; artifact {handle!r} has {len(text)} characters")
        end = offset + limit
        return Piece(text[offset:end], end if end < len(text) else None, len(text))

    async def _key(self, handle: str, context: CallContext) -> str:
        scope = await self._scope_of(context.credentials)
        digest = name_digest(context.principal.tenant, context.session, handle, *([scope] if scope else []))
        return f"artifact/{digest}"


def read_result(artifacts: Artifacts, services: CallServices) -> Catalog:
    """Return a catalog with one tool, `read_result`, which reads these artifacts."""
    definition = ToolDefinition(
        name=READ_RESULT,
        description="Read more of a tool result that was cut because of its size, by the handle given with it.",
        parameters={
            "type": "object",
            "properties": {
                "handle": {"type": "string", "minLength": 1, "maxLength": 64, "description": "as the cut result says"},
                "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "first character to read"},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_CHARACTERS,
                    "default": MAX_CHARACTERS,
                    "description": "how many characters to read",
                },
            },
            "required": ["handle"],
            "additionalProperties": False,
        },
        hints=ToolHints(read_only=True, idempotent=True, destructive=False),
    ).owned_by("native", SOURCE)

    async def target(call: ToolCall, context: CallContext) -> ToolResult:
        given = cast("_Arguments", call.arguments)  # the schema has checked them
        # JSON Schema counts 1.0 as an integer, and a model may write it so.
        offset = int(given.get("offset", 0))
        handle, limit = given["handle"], int(given.get("limit", MAX_CHARACTERS))
        piece = await artifacts.read(handle, offset, limit, context)
        where = {"offset": offset, "next_offset": piece.next_offset, "total": piece.total}
        return ToolResult(output=piece.text, structured=where)

    largest = MAX_CHARACTERS * _UTF8_MAX
    return Catalog([own_tool(services, definition, target, timeout_s=READ_TIMEOUT_S, max_result_bytes=largest)])
