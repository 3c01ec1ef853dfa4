"""Requests over an open SDK session. Tools are read from the raw result, so that a bad one does not hide the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, cast

import anyio
import anyio.abc
import mcp_types as types
import orjson
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, Dispatcher, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.transport_context import TransportContext
from mcp_types import HEADER_MISMATCH
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, TypeAdapter, ValidationError

from toolplug.catalog.call import NO_TRACE_CONTEXT, Ask, CannotAsk, NobodyToAsk, Report, ask_nobody, no_report
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.text import clean_text, in_one_line
from toolplug.catalog.trace_context import TRACEPARENT, TRACESTATE
from toolplug.mcp_extensions import McpExtension
from toolplug.parts.mcp.client.connection import (
    MAX_PAGES,
    MAX_TOOLS,
    NO_HEADERS,
    BadAnswer,
    ConnectionFailed,
    CredentialRefused,
    Extensions,
    McpAnswer,
    Repetition,
    ServerRefused,
)
from toolplug.parts.mcp.discovery.offers import MAX_OFFERS, RawOffers
from toolplug.parts.mcp.sdk.askers import (
    CAN_ASK,
    EXTENSIONS,
    Askers,
    ServerOfCall,
    finish_result,
    offering_forms,
    repeated_fields,
    required_input,
    told_extensions,
    with_capabilities_of_call,
)
from toolplug.parts.mcp.sdk.line_streams import BAD_ANSWER, FAILED, UNAUTHORIZED, is_closed
from toolplug.parts.mcp.sdk.readable_results import READABLE
from toolplug.parts.mcp.sdk.resource_updates import ResourceUpdates

# Lists as the server sent them: the SDK would lose a whole page to one entry that it finds malformed.
#
# ClientSession.list_tools → RawListing → JSONRPCDispatcher → server
#               kept in `page` ┘    └ the session is handed only what it must know: the tools that mirror arguments in
#                                     HTTP headers (`x-mcp-header`, 2026-07-28)
#
# A page of prompts, resources or templates passes the session under a key of its `_meta`.

_LISTING = "tools/list"
_CALL = "tools/call"
_OFFER_LISTS = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_INITIALIZE = "initialize"
_AS_SENT = "toolplug/as-sent"
_UNCACHED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_MARK = b'"x-mcp-header"'

_of_caller: ContextVar[Mapping[str, str]] = ContextVar("toolplug_mcp_of_caller", default=NO_HEADERS)
"""The headers of the one whose request the session is sending. Set around this request alone, in its own task."""


@contextmanager
def _sending(headers: Mapping[str, str]) -> Generator[None]:
    token = _of_caller.set(headers)
    try:
        yield
    finally:
        _of_caller.reset(token)


class RawPage(NamedTuple):
    """The raw result of a page; `refused` are the names of its tools that the session may not use."""

    result: Mapping[str, object]
    refused: frozenset[str]


class RawListing(Dispatcher[TransportContext]):
    """A dispatcher that keeps the last page of tools until it is taken, and calls back when it has ended.

    It repeats the trace context of a call in HTTP headers, which the session does not let its caller set. What the
    server asks in 2025-11-25 is answered by `askers`; the handshake offers no more than those can answer.
    """

    def __init__(self, dispatcher: Dispatcher[TransportContext], ended: Callable[[], None]) -> None:
        self.askers: Askers = Askers()
        self._page = RawPage({}, frozenset())
        self._dispatcher = dispatcher
        self._ended = ended

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request as the dispatcher does; the session gets a page of tools in the form of `take_page`."""
        if params is not None:
            params = with_capabilities_of_call(params)
        if method == _CALL and params is not None:
            opts = _with_headers(opts, _trace_headers(params.get("_meta") or {}))
        elif method == _INITIALIZE and params is not None:
            params = offering_forms(params)
        result = await self._dispatcher.send_raw_request(method, params, _with_headers(opts, _of_caller.get()))
        # A result that is not complete asks something, and is read as it is.
        if method in READABLE and result.get("resultType", "complete") == "complete":
            return READABLE[method](result)
        if method in _OFFER_LISTS:
            return {_OFFER_LISTS[method]: [], **_UNCACHED, "_meta": {_AS_SENT: result}}
        if method != _LISTING:
            return result
        # The session gets only the tools whose arguments it has to repeat in headers: of the others it need not know.
        mirrored = _mirror(result.get("tools"))
        self._page = RawPage(result, frozenset(str(tool["name"]) for tool in mirrored))
        return {"tools": mirrored, **_UNCACHED}

    def take_page(self, learned: Collection[str]) -> RawPage:
        """Return the last page, after the session has accepted its valid tools and refused the others."""
        # Taken once: the next page must not find the names of this one.
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
            await self._dispatcher.run(
                # In front of the SDK's own handler, which would refuse what it has no callback for.
                self.askers.before(on_request),
                on_notify,
                on_notify_intercept,
                task_status=task_status,
            )
        finally:
            self._ended()


def _trace_headers(meta: Mapping[str, object]) -> Mapping[str, str]:
    return {key: value for key in (TRACEPARENT, TRACESTATE) if isinstance(value := meta.get(key), str)}


def _with_headers(opts: CallOptions | None, found: Mapping[str, str]) -> CallOptions | None:
    if not found:
        return opts
    given: CallOptions = {} if opts is None else opts
    return {**given, "headers": {**given.get("headers", {}), **found}}


def _mirror(tools: object) -> list[dict[str, Any]]:
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


_MAX_MESSAGE = 2_000
_OFFERS_S = 5.0
"""How long a list of prompts, resources or templates may take; tools do not wait longer for it."""

_request: TypeAdapter[types.ClientRequest] = TypeAdapter(types.ClientRequest)
_ANNOUNCES_S = 1.0


class _Raw(RootModel[dict[str, object]]):
    """A result that the SDK has validated but not converted."""


class SdkConnection:
    """An open connection; `lost` is set when it has ended, and `why` returns the reason.

    `announces` is done once it is known whether the server announces changes; `updates` follows resources;
    `extensions` are those that the server is told of.
    """

    def __init__(
        self,
        session: ClientSession,
        listing: RawListing,
        lost: asyncio.Event,
        why: Callable[[], Awaitable[str]],
        announces: asyncio.Future[bool],
        updates: ResourceUpdates,
        extensions: Extensions = lambda: (),
    ) -> None:
        self._session = session
        self._extensions = extensions
        self._updates = updates
        self._pages = listing
        self._lost = lost
        self._why = why
        self._announces = announces
        self._one_listing = asyncio.Lock()

    @property
    def version(self) -> str:
        """The negotiated protocol version."""
        return self._session.protocol_version or ""

    @property
    def open(self) -> bool:
        """True unless the connection is known to have ended."""
        return not self._lost.is_set()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        await self._lost.wait()

    async def tools(self, headers: Mapping[str, str] = NO_HEADERS) -> Sequence[object]:
        """Return the tools of all pages as sent, up to and including the page that exceeds 10,000.

        Tools whose mirrored arguments break the protocol's rules are omitted.
        """
        with _sending({**_of_caller.get(), **headers}):
            return await self._list_tools()

    async def _list_tools(self) -> Sequence[object]:
        async def read(cursor: str | None) -> tuple[object, object]:
            page = await self._page(cursor)
            tools = page.result.get("tools")
            if isinstance(tools, list):
                tools = [tool for tool in cast("list[object]", tools) if _name(tool) not in page.refused]
            return tools, page.result.get("nextCursor")

        # `RawListing` holds one page at a time: two listings at once would take each other's.
        async with self._one_listing:
            return await _read_pages("its list of tools", MAX_TOOLS, read)

    async def offers(self) -> RawOffers:
        """Return prompts, resources and templates of all pages as sent, and the instructions."""
        lists: dict[str, Sequence[object]] = {}
        failed: list[str] = []
        for method in _offered_lists(self._session.server_capabilities):
            key = _OFFER_LISTS[method]
            try:
                async with asyncio.timeout(_OFFERS_S):
                    lists[key] = await self._list(method, key)
            except TimeoutError:
                failed.append(f"{key} were not listed within {_OFFERS_S:g} s")
            # One list that fails must not cost the others, nor the tools.
            except (ServerRefused, BadAnswer) as error:
                failed.append(f"{key} are not listed: {error}")
        return RawOffers(
            lists.get("prompts", ()),
            lists.get("resources", ()),
            lists.get("resourceTemplates", ()),
            self._session.instructions or "",
            tuple(failed),
        )

    async def _list(self, method: str, key: str) -> Sequence[object]:
        async def read(cursor: str | None) -> tuple[object, object]:
            page = await self._send_request(_request_of(method, {} if cursor is None else {"cursor": cursor}))
            sent = as_object(as_object(page.get("_meta")).get(_AS_SENT))
            return sent.get(key), sent.get("nextCursor")

        return await _read_pages("the list", MAX_OFFERS, read)

    async def request(
        self, method: str, params: Mapping[str, object], headers: Mapping[str, str] = NO_HEADERS
    ) -> Mapping[str, object]:
        """Send a request of the protocol, and return its result as JSON."""
        request = _request_of(method, params)
        with self._pages.askers.running(ask_nobody), _sending(headers):
            return await self._send_request(request)

    async def _send_request(self, request: types.ClientRequest) -> Mapping[str, object]:
        try:
            raw = (await self._session.send_request(request, _Raw)).root
        except (MCPError, ValidationError) as error:
            raise await self._failure(error) from None
        if raw.get("resultType", "complete") != "complete":
            raise CannotAsk(
                "only calls of tools can ask, and this is a request for a prompt, a resource or a completion"
            )
        return raw

    async def follow(self, uri: str, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` at each update of a resource, until the returned function is called or the connection ends."""
        try:
            return await self._updates.follow(uri, told)
        except (MCPError, ValidationError) as error:
            raise await self._failure(error) from None

    async def announces_changes(self) -> bool | None:
        """Return whether the server announces changes of its list; None if that is not known within a second."""
        await asyncio.wait({self._announces}, timeout=_ANNOUNCES_S)
        return self._announces.result() if self._announces.done() and not self._announces.cancelled() else None

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        report: Report | None,
        trace_context: Mapping[str, str] = NO_TRACE_CONTEXT,
        ask: Ask = ask_nobody,
        repetition: Repetition | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> McpAnswer:
        """Call a tool; again after a listing if the server demands arguments in headers that only the listing names."""
        meta: dict[str, object] = dict(trace_context)
        if self.version in MODERN_PROTOCOL_VERSIONS and not isinstance(ask, NobodyToAsk):
            meta[CAN_ASK] = True
        extensions = told_extensions(self._extensions(), self.version)
        if extensions:
            meta[EXTENSIONS] = {each.name: dict(each.capabilities) for each in extensions}
        params = types.CallToolRequestParams(
            name=name,
            arguments=dict(arguments),
            _meta=cast("types.RequestParamsMeta", meta) if meta else None,
            **repeated_fields(repetition),
        )
        with self._pages.askers.running(ask), _sending(headers):
            try:
                return await self._call(params, report, ask, extensions)
            except ServerRefused as refused:
                if refused.code != HEADER_MISMATCH or self.version not in MODERN_PROTOCOL_VERSIONS:
                    raise
            # The session learns from it which arguments belong into headers.
            await self.tools()
            return await self._call(params, report, ask, extensions)

    async def _call(
        self, params: types.CallToolRequestParams, report: Report | None, ask: Ask, extensions: Sequence[McpExtension]
    ) -> McpAnswer:
        request = types.CallToolRequest(params=params)
        on_progress = None if report is None else _progress_callback(report)
        try:
            raw = (await self._session.send_request(request, _Raw, progress_callback=on_progress)).root
        except (MCPError, ValidationError) as error:
            raise await self._failure(error) from None
        kind = raw.get("resultType", "complete")
        extension = next((each for each in extensions if kind in each.result_types), None)
        if extension is not None:
            server = ServerOfCall(
                partial(self._ask_server, params), report or no_report, ask, _sending, _of_caller.get()
            )
            raw = await finish_result(extension, raw, server)
        elif kind != "complete":
            raise required_input(raw)
        content = cast("Sequence[Mapping[str, object]]", raw.get("content", ()))  # the SDK has checked the shape
        return McpAnswer(content, raw.get("structuredContent"), raw.get("isError") is True, as_object(raw.get("_meta")))

    async def _ask_server(self, call: types.CallToolRequestParams, method: str, params: Mapping[str, object]) -> _Raw:
        """Send a request of an extension, with the capabilities of the call. Raises as `_failure` returns."""
        meta = {} if call.meta is None else dict(call.meta)
        whole = {**params, "_meta": {key: meta[key] for key in (CAN_ASK, EXTENSIONS) if key in meta}}
        try:
            return await self._session.send_request(types.Request[Any, Any](method=method, params=whole), _Raw)
        except (MCPError, ValidationError) as error:
            raise await self._failure(error) from None

    async def _page(self, cursor: str | None) -> RawPage:
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        try:
            learned = await self._session.list_tools(params=params)
        except (MCPError, ValidationError) as error:
            raise await self._failure(error) from None
        return self._pages.take_page(learned={tool.name for tool in learned.tools})

    async def _failure(self, error: MCPError | ValidationError) -> Exception:
        if isinstance(error, ValidationError):
            return BadAnswer(f"its answer does not follow the protocol: {_invalid_paths(error)}")
        message = in_one_line(clean_text(error.message))[:_MAX_MESSAGE]
        if error.code == BAD_ANSWER:
            return BadAnswer(message)
        if error.code == UNAUTHORIZED:
            return CredentialRefused(message)
        if error.code == FAILED or is_closed(error):
            return ConnectionFailed(await self._why() or message)
        return ServerRefused(error.code, message)


def _request_of(method: str, params: Mapping[str, object]) -> types.ClientRequest:
    return _request.validate_python({"method": method, "params": params}, by_name=False)


def _offered_lists(capabilities: types.ServerCapabilities | None) -> list[str]:
    """Return the method of each list that the server has besides tools."""
    lists: list[str] = []
    if capabilities is not None and capabilities.prompts is not None:
        lists.append("prompts/list")
    if capabilities is not None and capabilities.resources is not None:
        lists += ["resources/list", "resources/templates/list"]
    return lists


def _progress_callback(report: Report) -> ProgressFnT:
    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        report(progress, total, message)

    return on_progress


async def _read_pages(
    what: str, most: int, read: Callable[[str | None], Awaitable[tuple[object, object]]]
) -> Sequence[object]:
    """Return the entries of all pages; `read` returns those of the page of a cursor, and the next cursor.

    Raises `BadAnswer`, and what `read` raises. What goes on past `most` entries is read no further.
    """
    found: list[object] = []
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        entries, following = await read(cursor)
        if not isinstance(entries, list):
            raise BadAnswer(f"{what} is no list")
        if not isinstance(following, str | None):
            raise BadAnswer(f"{what} names a next page that is no text")
        found.extend(cast("list[object]", entries))
        cursor = following
        if not cursor or len(found) > most:
            return found
        # A server that repeats a cursor would be asked for ever.
        if cursor in cursors:
            raise BadAnswer(f"{what} comes back to a page that it began with")
        cursors.add(cursor)
    raise BadAnswer(f"{what} has more than {MAX_PAGES} pages")


def _name(tool: object) -> object:
    name = as_object(tool).get("name")
    return name if isinstance(name, str) else None


def _invalid_paths(error: ValidationError) -> str:
    """Return where a result is invalid, without its values."""
    places = sorted({".".join(map(str, each["loc"])) or "(whole)" for each in error.errors(include_input=False)})
    return ", ".join(places[:3])
