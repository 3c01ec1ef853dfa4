"""`/mcp` and `/api/sessions/{code}/mcp`: Streamable HTTP, for clients of both eras.

    POST    a request is answered with JSON, or with a stream where there is something to tell meanwhile;
            a notification is taken
    GET     2025-11-25: the stream on which a client that has introduced itself hears that its list has changed
    DELETE  2025-11-25: the client has no more to ask

A client of 2026-07-28 says everything with each request, and hears of changes by `subscriptions/listen`.
"""

from __future__ import annotations

from collections.abc import Hashable

from toolplug.catalog.call import CallContext
from toolplug.catalog.catalog import Catalog
from toolplug.errors import AccessError, StoreError
from toolplug.host.host import Host
from toolplug.http.caller_catalog import catalog_of, executor_of
from toolplug.http.client_watch import ClientWatch
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import check_is_json, read_body
from toolplug.http.mcp.response_sender import Outflow
from toolplug.http.problem import HttpProblem, method_not_allowed
from toolplug.mcp.list_changed import Watch
from toolplug.mcp.mcp_sessions import Handshake
from toolplug.mcp.server_endpoint import (
    CANCEL,
    CANCELLED,
    INITIALIZE,
    INVALID_REQUEST,
    LISTEN,
    Caller,
    McpServerEndpoint,
    Message,
    Notify,
    Reply,
    refusal,
)
from toolplug.toolsets.first_use import LazyExecutor


def _nobody(catalog: Catalog) -> None:
    """Nobody wants to know."""


def agent_of(exchange: Exchange) -> str | None:
    """The agent that the request acts as. Raises `HttpProblem`."""
    return exchange.query().get("agent") or exchange.header(b"x-toolplug-agent")


async def caller_of(host: Host, exchange: Exchange, known: Handshake | None = None) -> Caller:
    """The caller of a request; `known`: the client that has introduced itself, for which toolsets may be open.

    Raises `HttpProblem`, `AccessError`, and for a session `StoreError`.
    """
    principal, agent, code = exchange.principal, agent_of(exchange), exchange.params.get("code")
    executor = await executor_of(host, principal, agent, code, within=known)
    since = None if known is None else known.seen
    followed = executor.listing if isinstance(executor, LazyExecutor) else executor
    return Caller(
        executor=executor,
        context=CallContext(principal=principal, session=code, agent=agent, request_id=exchange.request_id),
        catalog=lambda: catalog_of(host, principal, agent, code, within=known),
        watch=lambda: host.mcp.announcer.watch(followed, of=code, since=since),
        listed=_nobody if known is None else known.listed,
    )


async def is_still_admitted(host: Host, exchange: Exchange) -> bool:
    """Would the caller be let in now, as the same one, to a session that is there; yes where nobody can tell."""
    before = exchange.principal
    try:
        await exchange.readmit(exchange)
        await executor_of(host, exchange.principal, agent_of(exchange), exchange.params.get("code"))
    except (HttpProblem, AccessError):
        return False
    except StoreError:
        return True
    now = exchange.principal
    return (now.tenant, now.subject) == (before.tenant, before.subject)


SESSION_HEADER = b"mcp-session-id"
VERSION_HEADER = b"mcp-protocol-version"

_EVENTS = (b"text/event-stream", b"text/*", b"*/*")
_JSON = (b"application/json", b"application/*", b"*/*")
_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


async def mcp_message(host: Host, exchange: Exchange) -> None:
    """Answer a request, or take a notification. Raises `HttpProblem` and `AccessError`."""
    check_is_json(exchange)
    if not accepts(exchange, _JSON):
        raise _not_acceptable("application/json and text/event-stream")
    body = await read_body(exchange.receive, exchange.max_body)
    speaker = await speaker_of(host)
    message = speaker.read(body)
    if isinstance(message, Reply):
        await _answer(exchange, message)
    elif speaker.is_stateless(message, exchange.header(VERSION_HEADER)):
        await _answer_stateless(host, exchange, speaker, message)
    elif message.method == INITIALIZE and message.id is not None:
        await _greet(host, exchange, speaker, message)
    else:
        await _answer_known(host, exchange, speaker, message)


async def mcp_stream(host: Host, exchange: Exchange) -> None:
    """Tell a client that has introduced itself of changes. Raises `HttpProblem` and `AccessError`."""
    speaker = await speaker_of(host)
    version = exchange.header(VERSION_HEADER)
    if exchange.method == "HEAD" or (version is not None and speaker.is_stateless(Message(None, "", None), version)):
        raise method_not_allowed(["POST"])
    if not accepts(exchange, _EVENTS):
        raise _not_acceptable("text/event-stream")
    known = _known(host, exchange)
    if isinstance(known, Reply):
        await _answer(exchange, known)
        return
    caller = await caller_of(host, exchange, known)
    out = Outflow(exchange, streams=True, still=lambda: is_still_admitted(host, exchange))
    if known.stream is not None:
        known.stream()
    known.stream = out.call_off
    try:
        with ClientWatch(exchange.receive), caller.watch() as watch:
            await out.begin()
            await out.end(await out.reply(_told(watch, out.notify)))
    finally:
        if known.stream == out.call_off:
            known.stream = None


async def mcp_end(host: Host, exchange: Exchange) -> None:
    """Forget a client that has introduced itself, and call off what runs for it."""
    known = _known(host, exchange)
    if isinstance(known, Reply):
        await _answer(exchange, known)
        return
    host.mcp.handshakes.end(known)
    await exchange.answer_done()


async def speaker_of(host: Host) -> McpServerEndpoint:
    """What speaks the protocol. Raises `HttpProblem` where the package for it is not installed."""
    try:
        return await host.mcp.speaker()
    except ModuleNotFoundError as error:
        message = f"the package {error.name!r} is not installed here; pip install 'toolplug[mcp]'"
        raise HttpProblem(503, "not_installed", message) from None


def accepts(exchange: Exchange, kinds: tuple[bytes, ...]) -> bool:
    """Does the client take an answer of one of these kinds; one that says nothing takes everything."""
    given = exchange.headers.get(b"accept")
    return given is None or any(kind.partition(b";")[0].strip().lower() in kinds for kind in given.split(b","))


async def _answer_stateless(host: Host, exchange: Exchange, speaker: McpServerEndpoint, message: Message) -> None:
    headers = exchange.scope["headers"]
    client = speaker.stateless_client(message, headers)
    if isinstance(client, Reply):
        await _answer(exchange, client)
        return
    if message.id is None:
        await _take(exchange)
        return
    streams = accepts(exchange, _EVENTS)
    listens = message.method == LISTEN
    if listens and not streams:
        raise _not_acceptable("text/event-stream")
    caller = await caller_of(host, exchange)
    still = (lambda: is_still_admitted(host, exchange)) if listens else None
    out = Outflow(exchange, streams=streams, still=still)
    with ClientWatch(exchange.receive):
        await out.end(await out.reply(speaker.answer(message, client, caller, out.notify, headers)))


async def _greet(host: Host, exchange: Exchange, speaker: McpServerEndpoint, message: Message) -> None:
    reply, client = await speaker.initialize(message, await caller_of(host, exchange))
    if client is None:
        await _answer(exchange, reply)
        return
    handshake = host.mcp.handshakes.open(_owner(exchange), client)
    await exchange.answer(reply.status, reply.body, headers=[(SESSION_HEADER, handshake.id.encode())])


async def _answer_known(host: Host, exchange: Exchange, speaker: McpServerEndpoint, message: Message) -> None:
    """What a client that has introduced itself sends; a hang-up is no cancellation in its era."""
    known = _known(host, exchange, message)
    if isinstance(known, Reply):
        await _answer(exchange, known)
        return
    if message.id is None:
        if message.method == CANCEL:
            known.cancel((message.params or {}).get("requestId"))
        await _take(exchange)
        return
    caller = await caller_of(host, exchange, known)
    out = Outflow(exchange, streams=accepts(exchange, _EVENTS))
    known.running[message.id] = out.call_off
    try:
        reply = await out.reply(speaker.answer(message, known.client, caller, out.notify))
    finally:
        known.running.pop(message.id, None)
    await out.end(reply or refusal(200, CANCELLED, "Request cancelled", message.id))


def _known(host: Host, exchange: Exchange, message: Message | None = None) -> Handshake | Reply:
    """The client by its header, or what it is told."""
    to = None if message is None else message.id
    given = exchange.header(SESSION_HEADER)
    if given is None:
        return refusal(400, INVALID_REQUEST, "Bad Request: Missing session ID; send initialize first", to)
    found = host.mcp.handshakes.find(given, _owner(exchange))
    return refusal(404, INVALID_REQUEST, "Session not found; send initialize again", to) if found is None else found


def _owner(exchange: Exchange) -> Hashable:
    """Whoever may go on with what a client has begun: the same caller, for the same tools."""
    principal = exchange.principal
    return principal.tenant, principal.subject, agent_of(exchange), exchange.params.get("code")


async def _told(watch: Watch, notify: Notify) -> Reply | None:
    while await watch.changed():
        await notify(_CHANGED)
    return None


async def _answer(exchange: Exchange, reply: Reply) -> None:
    await exchange.answer(reply.status, reply.body)


async def _take(exchange: Exchange) -> None:
    """Say that a notification was taken."""
    await exchange.answer(202, b"")


def _not_acceptable(kinds: str) -> HttpProblem:
    return HttpProblem(
        406, "not_acceptable", f"the answer is {kinds}; send an Accept header that names it", param="Accept"
    )
