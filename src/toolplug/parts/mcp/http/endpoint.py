"""`/mcp` and `/api/sessions/{code}/mcp`: Streamable HTTP, for clients of both eras.

    POST    a request is answered with JSON, or with a stream where there is progress to report;
            a notification is taken
    GET     2025-11-25: the stream on which a client that has introduced itself hears that its list has changed
    DELETE  2025-11-25: the client has no more to ask

A client of 2026-07-28 says everything with each request, and hears of changes by `subscriptions/listen`.

The response to one request of the protocol: its reply alone, or a stream that ends with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext

import orjson
from pydantic import RootModel
from starlette.responses import Response

from toolplug.catalog.call import CallContext
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.offering import OfferedKind, Offering
from toolplug.errors import AccessError, StoreError
from toolplug.execution.executor import LazyExecutor
from toolplug.execution.user_auth import url_for_browsers
from toolplug.http.bodies.request_body import OrjsonResponse, check_is_json, check_parts, read_body
from toolplug.http.errors import ErrorAnswer, HttpProblem, method_not_allowed
from toolplug.http.event_stream import EventStreamResponse, ServedEventStream, open_stream
from toolplug.http.requests import (
    HostRequest,
    catalog_of,
    credential_scope,
    executor_of,
    passed_credentials,
    passed_trace_context,
    query_fields,
)
from toolplug.http.routing import CALL, EVENTS, JSON_OR_EVENTS, Parameter, answers, route
from toolplug.net.sse import frame
from toolplug.parts.mcp.serving.mcp_sessions import Handshake, SessionOwner, clients_of
from toolplug.parts.mcp.serving.notifications import ResourceSubscriptions, Watch, notifications_of
from toolplug.parts.mcp.serving.server_endpoint import (
    CALL_TOOL,
    CANCEL,
    INITIALIZE,
    INVALID_REQUEST,
    LISTEN,
    ClientAnswer,
    McpCaller,
    McpServerEndpoint,
    Message,
    Notify,
    Reply,
    RpcRefusal,
    refusal,
)

SILENT_S = 15.0
"""Seconds without an event after which a comment is sent, so that proxies keep the connection."""
RECHECK_S = 60.0
"""Seconds between two checks of the credential of a stream without end."""

_COMMENT = b": \n\n"

Still = Callable[[], Awaitable[bool]]
"""Returns whether the client that opened the stream would still be admitted."""


class McpResponseSender:
    """The one writer of a stream while a request is answered.

    The stream starts with the first notification, or the first silence, and only where the client accepts one
    (`streams`). One that has no end of its own is checked from time to time, by `still`.
    """

    def __init__(self, stream: ServedEventStream, *, streams: bool, still: Still | None = None) -> None:
        self._stream = stream
        self._streams = streams
        self._still = still
        self._loop = asyncio.get_running_loop()
        self._check_at = self._loop.time() + RECHECK_S
        self._wake = asyncio.Event()
        self._notices: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._work: asyncio.Task[Reply | None] | None = None
        self._cancelled = False

    async def notify(self, message: bytes) -> None:
        """Send a notification, and return when it has been written; drop it if the client accepts no stream."""
        if self._streams:
            sent: asyncio.Future[None] = self._loop.create_future()
            self._notices.append((message, sent))
            self._wake.set()
            await sent

    def cancel(self) -> None:
        """Cancel the request's work; it gets no reply."""
        self._cancelled = True
        if self._work is not None:
            self._work.cancel()

    async def reply(self, work: Coroutine[None, None, Reply | None]) -> Reply | None:
        """Do the work and send its notifications while it runs; None where it was cancelled, or has no reply.

        Raises what the work raises.
        """
        if self._cancelled:
            work.close()
            return None
        running = self._work = self._loop.create_task(work, name="toolplug-mcp-request")
        running.add_done_callback(lambda _: self._wake.set())
        try:
            while not running.done():
                if not await self._wait_for_work() and self._streams:
                    await self._stream.send(_COMMENT)
                while self._notices:
                    await self._send_next()
                if self._still is not None and self._loop.time() >= self._check_at:
                    await self._check(self._still)
            return None if self._cancelled and running.cancelled() else running.result()
        finally:
            running.cancel()

    async def end(self, reply: Reply | None) -> Response | None:
        """Send the reply, if there is one, as the last event; where nothing was sent before it, return it instead."""
        if reply is None:
            return None
        if not self._stream.started:
            return OrjsonResponse(reply.body, reply.status)
        await self._stream.send(frame("message", reply.body))
        return None

    async def _wait_for_work(self) -> bool:
        """Wait until there is something to do; False after a silence."""
        try:
            async with asyncio.timeout(SILENT_S):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    async def _send_next(self) -> None:
        message, sent = self._notices.popleft()
        await self._stream.send(frame("message", message))
        if not sent.done():
            sent.set_result(None)

    async def _check(self, still: Still) -> None:
        self._check_at = self._loop.time() + RECHECK_S
        if not await still():
            self.cancel()


def _ignore(catalog: Catalog) -> None:
    """Ignore what was listed: without a session nothing depends on it."""


def agent_of(request: HostRequest) -> str | None:
    """Return the agent that the request acts as, None without one. Raises `HttpProblem`."""
    return query_fields(request).get("agent") or request.headers.get("x-toolplug-agent")


async def caller_of(request: HostRequest, known: Handshake | None = None) -> McpCaller:
    """Return the caller of a request. `known`: the client that has sent `initialize`, whose toolsets may be open.

    Raises `HttpProblem`, `AccessError`, and for a session `StoreError`.
    """
    state = request.state
    principal, agent, code = state["principal"], agent_of(request), request.path_params.get("code")
    executor = await executor_of(state["host"], principal, agent, code, within=known)
    since = None if known is None else known.seen
    clients = await clients_of(state["host"])
    subscriptions = ResourceSubscriptions() if known is None else known.subscriptions

    def offering() -> Offering:
        return state["host"].offering_for(principal, agent=agent, within=known if code is None else code)

    followed = executor.listing if isinstance(executor, LazyExecutor) else executor

    def remember_offering(kind: OfferedKind, listed: Offering) -> None:
        if known is not None:
            known.seen = known.seen.with_offering(kind, listed)

    return McpCaller(
        executor=executor,
        context=CallContext(
            principal=principal,
            session=code,
            agent=agent,
            request_id=state["request_id"],
            credentials=passed_credentials(state["headers"]),
            trace_context=passed_trace_context(request.scope),
        ),
        approvals=state["host"].approvals,
        rounds=clients.rounds,
        scope=await credential_scope(request),
        url=url_for_browsers(state["host"].settings.http.public_url, passed_credentials(state["headers"])),
        catalog=lambda: catalog_of(state["host"], principal, agent, code, within=known),
        watch=lambda: clients.announcer.watch(
            followed, of=code, since=since, offering=offering, subscriptions=subscriptions
        ),
        listed=_ignore if known is None else known.remember_list,
        offering=offering,
        offered=remember_offering,
        subscriptions=subscriptions,
        found=None if known is None else known.found,
        extensions=state["host"].plugins.mcp_extensions,
    )


async def is_still_admitted(request: HostRequest) -> bool:
    """Return whether the same caller would still be admitted, to a live session; true if the store cannot say."""
    state = request.state
    before = state["principal"]
    try:
        await state["readmit"](request)
        await executor_of(state["host"], state["principal"], agent_of(request), request.path_params.get("code"))
    except (HttpProblem, AccessError):
        return False
    except StoreError:
        return True
    now = state["principal"]
    return (now.tenant, now.subject) == (before.tenant, before.subject)


SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"

_EVENTS = ("text/event-stream", "text/*", "*/*")
_JSON = ("application/json", "application/*", "*/*")


async def mcp_message(request: HostRequest) -> Response:
    """Answer a request, or accept a notification. Raises `HttpProblem` and `AccessError`."""
    check_is_json(request)
    if not accepts(request, _JSON):
        raise _not_acceptable("application/json and text/event-stream")
    body = await read_body(request)
    await check_parts(body)
    endpoint = await endpoint_of(request)
    message = endpoint.read(body)
    if isinstance(message, Reply):
        return _response(message)
    if isinstance(message, ClientAnswer):
        return await _take_answer(request, message)
    if message.method == CALL_TOOL:
        await request.state["host"].quotas.count_call(request.state["principal"])
    if endpoint.is_stateless(message, request.headers.get(VERSION_HEADER)):
        return await _answer_stateless(request, endpoint, message)
    if message.method == INITIALIZE and message.id is not None:
        return await _initialize(request, endpoint, message)
    return await _answer_known(request, endpoint, message)


async def mcp_stream(request: HostRequest) -> Response:
    """Notify a client that has sent `initialize` of changes. Raises `HttpProblem` and `AccessError`."""
    endpoint = await endpoint_of(request)
    version = request.headers.get(VERSION_HEADER)
    if request.method == "HEAD" or (version is not None and endpoint.is_stateless(Message(None, "", None), version)):
        raise method_not_allowed(["POST"])
    if not accepts(request, _EVENTS):
        raise _not_acceptable("text/event-stream")
    known = await _find_client(request)
    if isinstance(known, Reply):
        return _response(known)
    caller = await caller_of(request, known)

    async def write(stream: ServedEventStream) -> Response | None:
        with open_stream(request):
            return await listen(stream)

    async def listen(stream: ServedEventStream) -> Response | None:
        sender = McpResponseSender(stream, streams=True, still=lambda: is_still_admitted(request))
        if known.stream is not None:
            known.stream()
        known.stream = sender.cancel
        try:
            await (await clients_of(request.state["host"])).handshakes.streams_here(known)
            with caller.watch() as watch:
                await stream.start()
                return await sender.end(await sender.reply(_notify_changes(watch, sender.notify)))
        finally:
            if known.stream == sender.cancel:
                known.stream = None

    return EventStreamResponse(write)


async def mcp_end(request: HostRequest) -> Response:
    """End the session of a client that has sent `initialize`, and cancel its calls."""
    known = await _find_client(request)
    if isinstance(known, Reply):
        return _response(known)
    await (await clients_of(request.state["host"])).handshakes.finish(known)
    return Response(status_code=204)


async def endpoint_of(request: HostRequest) -> McpServerEndpoint:
    """Return the protocol's implementation. Raises `HttpProblem` where its package is not installed."""
    try:
        return await (await clients_of(request.state["host"])).endpoint()
    except ModuleNotFoundError as error:
        message = f"the package {error.name!r} is not installed here; pip install 'toolplug[mcp]'"
        raise HttpProblem(503, "not_installed", message) from None


def accepts(request: HostRequest, kinds: tuple[str, ...]) -> bool:
    """Return whether `Accept` names one of these media types; without the header everything is accepted."""
    given = request.headers.get("accept")
    return given is None or any(kind.partition(";")[0].strip().lower() in kinds for kind in given.split(","))


async def _answer_stateless(request: HostRequest, endpoint: McpServerEndpoint, message: Message) -> Response:
    headers = request.scope["headers"]
    client = endpoint.stateless_client(message, headers)
    if isinstance(client, Reply):
        return _response(client)
    if message.id is None:
        return _make_accepted()
    streams = accepts(request, _EVENTS)
    listens = message.method == LISTEN
    if listens and not streams:
        raise _not_acceptable("text/event-stream")
    caller = await caller_of(request)
    still = (lambda: is_still_admitted(request)) if listens else None

    async def write(stream: ServedEventStream) -> Response | None:
        with open_stream(request) if listens else nullcontext():
            return await answer(stream)

    async def answer(stream: ServedEventStream) -> Response | None:
        sender = McpResponseSender(stream, streams=streams, still=still)
        work = endpoint.answer(message, client, caller, sender.notify, headers)
        return await sender.end(await sender.reply(work))

    return EventStreamResponse(write)


async def _initialize(request: HostRequest, endpoint: McpServerEndpoint, message: Message) -> Response:
    reply, client = await endpoint.initialize(message, await caller_of(request))
    response = _response(reply)
    if client is not None:
        host, principal = request.state["host"], request.state["principal"]
        handshake = await (await clients_of(host)).handshakes.begin(await _owner(request), client)
        host.toolsets.begin_session(principal, agent_of(request))
        response.headers[SESSION_HEADER] = handshake.id
    return response


async def _answer_known(request: HostRequest, endpoint: McpServerEndpoint, message: Message) -> Response:
    """Answer a client that has sent `initialize`; in its era, disconnecting does not cancel a call."""
    known = await _find_client(request, message)
    if isinstance(known, Reply):
        return _response(known)
    sessions = (await clients_of(request.state["host"])).handshakes
    message_id = message.id
    if message_id is None:
        if message.method == CANCEL:
            await sessions.cancel(known, (message.params or {}).get("requestId"))
        return _make_accepted()
    caller = await caller_of(request, known)

    async def write(stream: ServedEventStream) -> Response | None:
        streams = accepts(request, _EVENTS)
        sender = McpResponseSender(stream, streams=streams)
        known.running[message_id] = sender.cancel
        questions = known.questions if streams else None
        try:
            reply = await sender.reply(
                endpoint.answer(message, known.client, caller, sender.notify, questions=questions)
            )
        finally:
            known.running.pop(message_id, None)
        await sessions.share_found(known)
        if reply is not None:
            return await sender.end(reply)
        if not streams:
            return _make_accepted()
        if not stream.started:
            await stream.start()
        return None  # a cancelled request gets no answer: the stream ends without one

    return EventStreamResponse(write, detached=True)


async def _take_answer(request: HostRequest, answer: ClientAnswer) -> Response:
    """Pass on the client's answer to a request that was sent on its stream."""
    known = await _find_client(request)
    if isinstance(known, Reply):
        return _response(known)
    await (await clients_of(request.state["host"])).handshakes.take_answer(known, answer)
    return _make_accepted()


async def _find_client(request: HostRequest, message: Message | None = None) -> Handshake | Reply:
    """Return the client that `Mcp-Session-Id` names, or the error to send."""
    to = None if message is None else message.id
    given = request.headers.get(SESSION_HEADER)
    if given is None:
        return refusal(400, INVALID_REQUEST, "Bad Request: Missing session ID; send initialize first", to)
    handshakes = (await clients_of(request.state["host"])).handshakes
    found = await handshakes.find_shared(given, await _owner(request))
    return refusal(404, INVALID_REQUEST, "Session not found; send initialize again", to) if found is None else found


async def _owner(request: HostRequest) -> SessionOwner:
    """Return the caller and its selection of tools, which must be the same for all requests of one session."""
    principal = request.state["principal"]
    code, scope = request.path_params.get("code"), await credential_scope(request)
    return SessionOwner(principal.tenant, principal.subject, agent_of(request), code, scope)


async def _notify_changes(watch: Watch, notify: Notify) -> Reply | None:
    while await watch.wait_for_change():
        for method, params in notifications_of(watch.take_changes()):
            await notify(orjson.dumps({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}))
    return None


def _response(reply: Reply) -> Response:
    return OrjsonResponse(reply.body, reply.status)


def _make_accepted() -> Response:
    """Return the empty 202 that answers a notification."""
    return OrjsonResponse(b"", 202)


def _not_acceptable(kinds: str) -> HttpProblem:
    return HttpProblem(
        406, "not_acceptable", f"the answer is {kinds}; send an Accept header that names it", param="Accept"
    )


class Refused(RootModel[ErrorAnswer | RpcRefusal]):
    """The host's own error, or one of the protocol."""


_AGENT = Parameter("agent", "whose tools: an agent's; the header X-Toolplug-Agent says the same")
_VERSION = Parameter("MCP-Protocol-Version", "the version of the protocol", place="header")
_KNOWN = Parameter("Mcp-Session-Id", "what initialize gave; 2025-11-25 and before", place="header")
_PARAMETERS = (_AGENT, _VERSION, _KNOWN)
_REFUSED = {400: Refused, 404: Refused}

_HOST = (
    route("POST", "/mcp", CALL, "A message of Model Context Protocol", parameters=_PARAMETERS)(
        answers(others={202: None, **_REFUSED}, errors=(406, 413, 415, 422, 503), content_types=JSON_OR_EVENTS)(
            mcp_message
        )
    ),
    route("GET", "/mcp", CALL, "Changes of the tools, for clients of MCP 2025-11-25", parameters=_PARAMETERS)(
        answers(others=_REFUSED, errors=(405, 406, 503), content_types=EVENTS)(mcp_stream)
    ),
    route("DELETE", "/mcp", CALL, "End a client's session of MCP 2025-11-25", parameters=_PARAMETERS)(
        answers(status=204, others=_REFUSED)(mcp_end)
    ),
)
_SESSION = (item._replace(path="/api/sessions/{code}/mcp", operation=f"session_{item.operation}") for item in _HOST)
MCP_ROUTES = (*_HOST, *_SESSION)
