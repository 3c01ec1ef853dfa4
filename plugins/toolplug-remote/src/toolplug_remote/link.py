"""A link to another host: its catalog, followed by an event stream, and the calls of its tools."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Self, cast

import httpx2
from pydantic import ValidationError

from toolplug import CallContext, ToolCall, ToolError, ToolResult, ToolsetLink, ToolUnavailable
from toolplug_remote.catalog_reader import BadCatalog, read_catalog
from toolplug_remote.kept_catalog import KeptCatalog, Tool
from toolplug_remote.protocol import (
    MAX_BYTES,
    MAX_RESULT_BYTES,
    MAX_SHOWN,
    MAX_SMALL_BYTES,
    Address,
    Changed,
    Connected,
    Ended,
    Progress,
    call_headers,
    headers_of,
    not_called,
    refusal_of,
    request,
    result_of,
    unreadable,
)

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 30.0
SILENCE_S = 45.0
"""A stream without data for this long is broken; a host sends a heartbeat every 15 s."""
FIRST_CONNECT_S = 2.0
"""How long opening a link waits for the first catalog."""
REFRESH_S = 1.0
"""A changed catalog is taken, and listed, at most once in so many seconds; the host's events wait."""
KEEP_S = 10.0
"""A changed catalog is kept at most once in so many seconds, and when the link ends."""
MAX_TIMEOUT_MS = 300_000
MARGIN_MS = 50
"""What the other host has less than this one, so that its own answer arrives before the call is given up."""
MAX_TRIES = 3
END_S = 0.1
"""How long a call that has its result waits for the end of the stream."""

Tools = Mapping[str, Tool]


_DOWN = "its host is down; toolplug doctor says why"
"""For callers, who need not know where it is; the log and the doctor name its address."""


class _Refused(Exception):
    """The host does not give its catalog; the text says why."""


class HostLink:
    """The source of one toolset. While its host is down, what it listed last stays listed, also after a restart."""

    def __init__(
        self,
        link: ToolsetLink,
        address: Address,
        transport: httpx2.AsyncBaseTransport,
        catalog: KeptCatalog,
        log: logging.Logger,
    ) -> None:
        self._kept = catalog
        self._link = link
        self._address = address
        self._transport = transport
        self._log = log
        self._tools: Tools = {}
        self._via: Mapping[str, Sequence[str]] = {}
        self._host = ""
        self._delegate = False
        self._revision: int | None = None
        self._down: str | None = "it has not answered yet"
        self._changed: Callable[[], None] = lambda: None
        self._tried = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._to_keep = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        kept = await self._kept.read()
        if kept is not None:
            self._host, self._tools, self._via = (
                kept.host,
                _by_name(kept.tools),
                kept.via,
            )
        name = f"toolplug-remote-{self._link.toolset}"
        self._following = asyncio.create_task(self._follow(), name=name)
        self._keeping = asyncio.create_task(self._keep(), name=f"{name}-keeping")
        try:
            async with asyncio.timeout(FIRST_CONNECT_S):
                await self._tried.wait()
        except TimeoutError:
            self._log.warning("%s: no answer within %g s; its tools follow", self._title, FIRST_CONNECT_S)
        except BaseException:
            self._following.cancel()
            self._keeping.cancel()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = {task for task in (self._following, self._keeping) if task is not None}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if self._to_keep.is_set():
            await self._write()

    def tools(self) -> Sequence[Mapping[str, object]]:
        """Return the tools that the host listed last."""
        return list(self._tools.values())

    def hosts(self, tool: str) -> tuple[str, ...]:
        """Return the ids of the hosts between this one and the tool."""
        return (self._host, *self._via.get(tool, ())) if self._host else ()

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of the catalog."""
        self._changed = changed

    def problem(self) -> str | None:
        """Return why the host cannot be called, without its address; None while the stream of its catalog is open."""
        return None if self._down is None else _DOWN

    def problems(self) -> list[str]:
        """Return what is wrong, for `toolplug doctor`."""
        if self._down is not None:
            stale = f"; the {len(self._tools)} tools that it listed last are unavailable" if self._tools else ""
            return [f"{self._title}: {self._down}{stale}"]
        found: list[str] = []
        if self._link.api_key is not None and not self._delegate:
            found.append(
                f"{self._title}: its key lacks the scope 'delegate', so every call is made as the holder of the key; "
                "add the scope there to have calls made for their own tenant and subject"
            )
        if not self._tools:
            found.append(f"{self._title}: it lists no tools for this key; allow its agent a toolset there")
        return found

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Run one call at the host; one that was lost on the way is made again if the tool allows it."""
        if self._down is not None:
            raise ToolUnavailable(_DOWN, code="host_down", retry_after_s=1.0)
        for left in reversed(range(MAX_TRIES)):
            try:
                return await self._call(call, context)
            except httpx2.ConnectError as error:
                self._log.warning("%s: cannot be reached for a call: %s", self._title, error)
                raise ToolUnavailable("its host cannot be reached", code="host_down", retry_after_s=1.0) from None
            except httpx2.TransportError as error:
                self._log.warning("%s: was lost during a call of %r: %s", self._title, call.name, error)
                if not self._may_repeat(call.name):
                    why = "its host was lost during the call, so it is not known whether the tool has run"
                    raise ToolError(why, metadata={"code": "outcome_unknown"}) from None
                if not left:
                    why = f"its host was lost {MAX_TRIES} times during the call"
                    raise ToolUnavailable(why, code="host_lost", retry_after_s=1.0) from None
                await asyncio.sleep(random.uniform(0, 0.1))
        raise AssertionError("the last try returns or raises")

    def _may_repeat(self, tool: str) -> bool:
        hints: object = self._tools.get(tool, {}).get("annotations")
        given: Mapping[str, object] = cast("Mapping[str, object]", hints) if isinstance(hints, dict) else {}
        return given.get("idempotentHint") is True or given.get("readOnlyHint") is True

    async def _call(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Send the request and read its events. Raises `httpx2.TransportError`, `ToolError` and `ToolUnavailable`."""
        headers = call_headers(self._link, context, delegate=self._delegate)
        headers["Content-Type"] = "application/json"
        url = f"{self._address.base}/v1/tool-calls"
        response = await self._send(request("POST", url, headers, self._body(call, context)))
        async with aclosing(response):
            media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if response.status_code != 200 or media_type != "text/event-stream":
                ended = not_called(response, await _body_of(response, media_type))
                if isinstance(ended, ToolResult):
                    return ended
                raise ended
            try:
                events = aiter(httpx2.EventSource(response, MAX_RESULT_BYTES))
                async for event in events:
                    if event.event == "progress":
                        _report(event.data, context)
                    elif event.event == "result":
                        result = result_of(event.data, self._host)
                        await _read_end(events)
                        return result
            except httpx2.SSEError as error:
                raise unreadable(str(error)) from None
        raise httpx2.ReadError("the stream ended without a result")

    async def _send(self, sent: httpx2.Request) -> httpx2.Response:
        """Send a request; return the answer, which the caller closes. Raises `httpx2.TransportError`."""
        response = await self._transport.handle_async_request(sent)
        response.request = sent  # as a client does; the reader of event streams needs it
        return response

    def _body(self, call: ToolCall, context: CallContext) -> bytes:
        body: dict[str, object] = {"id": call.id, "name": call.name, "arguments": call.arguments}
        if self._address.agent is not None:
            body["agent"] = self._address.agent
        if context.approval is not None:
            body["approval"] = context.approval
        if context.deadline is not None:
            left_ms = int((context.deadline - asyncio.get_running_loop().time()) * 1000) - MARGIN_MS
            body["timeoutMs"] = min(max(left_ms, 1), MAX_TIMEOUT_MS)
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def _title(self) -> str:
        return f"toolset {self._link.toolset!r}, host {self._address.shown}"

    async def _follow(self) -> None:
        """Follow the catalog, and connect again when the stream ends, until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            before = self._down
            try:
                await self._stream()
                why = "it has ended the stream of its catalog"
            except (httpx2.TransportError, _Refused) as error:
                why = str(error) or type(error).__name__
            except TimeoutError:
                why = f"it has not answered within {SILENCE_S:g} s"
            except Exception as error:  # noqa: BLE001  a named boundary: the link outlives whatever a host sends
                self._log.exception("%s: the stream of its catalog failed", self._title)
                why = f"its catalog cannot be followed: {type(error).__name__}"
            connected = self._down is None
            pause_s = FIRST_PAUSE_S if connected else min(2 * pause_s, LAST_PAUSE_S)
            self._down = why
            self._tried.set()
            if why != before:
                self._log.warning("%s: %s; trying again", self._title, why)
            await asyncio.sleep(random.uniform(pause_s / 2, pause_s))

    async def _stream(self) -> None:
        """Read one stream to its end. Raises `httpx2.TransportError` and `_Refused`."""
        headers = {**headers_of(self._link), "Accept": "text/event-stream"}
        if self._revision is not None:
            headers["Last-Event-ID"] = str(self._revision)
        url = f"{self._address.base}/v1/tools/stream"
        if self._address.agent is not None:
            url = str(httpx2.URL(url, params={"agent": self._address.agent}))
        async with asyncio.timeout(SILENCE_S) as silence:
            response = await self._send(request("GET", url, headers, read_s=SILENCE_S))
            silence.reschedule(None)
        async with aclosing(response):
            media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if response.status_code != 200 or media_type != "text/event-stream":
                raise _Refused(refusal_of(response, await _body_of(response, media_type)))
            clock = asyncio.get_running_loop().time
            refresh_at = clock()
            async for event in httpx2.EventSource(response, MAX_BYTES):
                before = self._tools
                if event.event == "tools-changed":
                    await asyncio.sleep(refresh_at - clock())
                try:
                    await self._take(event)
                except (ValidationError, BadCatalog) as error:
                    self._revision = None
                    why = f"{error.error_count()} errors" if isinstance(error, ValidationError) else str(error)
                    raise _Refused(f"its event {event.event[:MAX_SHOWN]!r} cannot be read: {why}") from None
                if self._tools is not before:
                    self._to_keep.set()
                    self._changed()
                    refresh_at = clock() + REFRESH_S

    async def _take(self, event: httpx2.ServerSentEvent) -> None:
        """Apply one event. Raises `ValidationError` and `BadCatalog` for one that cannot be read."""
        if event.event == "connected":
            begin = Connected.model_validate(await read_catalog(event.data))
            self._host, self._delegate = begin.host, begin.delegate
            if not begin.resumed:
                self._tools, self._via = _by_name(begin.tools), begin.via
            self._revision = begin.revision
            if self._down is not None:
                self._log.info("%s: connected, %d tools", self._title, len(self._tools))
            self._down = None
            self._tried.set()
        elif event.event == "tools-changed":
            change = Changed.model_validate(await read_catalog(event.data))
            known = {**self._tools, **_by_name(change.tools)}
            self._tools = {name: known[name] for name in change.names if name in known}
            self._via = change.via
            self._revision = change.revision
        elif event.event == "error":
            if len(event.data) > MAX_SMALL_BYTES:
                raise _Refused("it has ended the stream with an error that is too long")
            ended = Ended.model_validate_json(event.data)
            raise _Refused(f"it has ended the stream: {ended.code[:MAX_SHOWN]}: {ended.message[:MAX_SHOWN]}")

    async def _keep(self) -> None:
        """Keep the catalog after it has changed, not too often, until cancelled."""
        while True:
            await self._to_keep.wait()
            await self._write()
            await asyncio.sleep(KEEP_S)

    async def _write(self) -> None:
        self._to_keep.clear()
        await self._kept.write(self._host, list(self._tools.values()), self._via)


def _by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    return {str(tool.get("name")): tool for tool in tools}


async def _body_of(response: httpx2.Response, media_type: str) -> bytes:
    """Return the body of a refusal, which the transport has bounded; none of an event stream, which may never end."""
    return b"" if media_type == "text/event-stream" else await response.aread()


async def _read_end(events: AsyncIterator[httpx2.ServerSentEvent]) -> None:
    """Read a stream to the end that follows its result, so that its connection is used again; else it is closed."""
    with suppress(TimeoutError, httpx2.TransportError, httpx2.SSEError):
        async with asyncio.timeout(END_S):
            await anext(events, None)


def _report(data: str, context: CallContext) -> None:
    """Pass on the progress in an event. Raises `ToolError` for one that cannot be read."""
    if len(data) > MAX_SMALL_BYTES:
        raise unreadable(f"a report of progress has over {MAX_SMALL_BYTES:,} characters")
    try:
        said = Progress.model_validate_json(data)
    except ValidationError as error:
        raise unreadable(f"a report of progress has {error.error_count()} invalid fields") from None
    context.report(said.progress, said.total, said.message)
