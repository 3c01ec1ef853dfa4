"""Tools as the server sent them: the SDK would lose a whole page to one tool that it finds malformed.

ClientSession.list_tools → RawListing → JSONRPCDispatcher → server
              kept in `page` ┘    └ the session is handed only what it must know: the tools that mirror arguments in
                                    HTTP headers (`x-mcp-header`, 2026-07-28)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, cast

import anyio
import anyio.abc
import orjson
from mcp.shared.dispatcher import CallOptions, Dispatcher, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.transport_context import TransportContext

_LISTING = "tools/list"
_MARK = b'"x-mcp-header"'


class RawPage(NamedTuple):
    """A page's result as it came; `refused` are the names of its tools that the session may not use."""

    result: Mapping[str, object]
    refused: frozenset[str]


class RawListing(Dispatcher[TransportContext]):
    """A dispatcher that keeps the last page of tools until it is taken, and tells when it has ended."""

    def __init__(self, dispatcher: Dispatcher[TransportContext], ended: Callable[[], None]) -> None:
        self._page = RawPage({}, frozenset())
        self._dispatcher = dispatcher
        self._ended = ended

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request as the dispatcher does; of a page of tools the answer is ours."""
        result = await self._dispatcher.send_raw_request(method, params, opts)
        if method != _LISTING:
            return result
        mirrored = _mirrored(result.get("tools"))
        self._page = RawPage(result, frozenset(str(tool["name"]) for tool in mirrored))
        return {"tools": mirrored, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

    def taken(self, learned: Collection[str]) -> RawPage:
        """The last page, after the session has learned of these of its tools and refused the others."""
        page, self._page = self._page, RawPage({}, frozenset())
        return RawPage(page.result, page.refused - frozenset(learned))

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification as the dispatcher does."""
        await self._dispatcher.notify(method, params, opts)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run as the dispatcher does."""
        try:
            await self._dispatcher.run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self._ended()


def _mirrored(tools: object) -> list[dict[str, Any]]:
    if not isinstance(tools, list):
        return []
    return [
        {"name": name, "inputSchema": {**schema, "type": "object"}}
        for tool in cast("list[object]", tools)
        if isinstance(tool, dict)
        and isinstance(name := cast("dict[str, object]", tool).get("name"), str)
        and isinstance(schema := cast("dict[str, object]", tool).get("inputSchema"), dict)
        and _is_marked(cast("dict[str, object]", schema))
    ]


def _is_marked(schema: dict[str, object]) -> bool:
    try:
        return _MARK in orjson.dumps(schema)
    except orjson.JSONEncodeError:
        return False
