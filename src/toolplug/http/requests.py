"""Starlette's `Request` as the host's handlers get it: what the host knows about it is typed in `request.state`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from contextvars import Token
from random import getrandbits
from time import perf_counter
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from toolplug.catalog.call import ANONYMOUS, NO_TRACE_CONTEXT, Credentials, Frame, Principal, current_frame
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.trace_context import trace_context
from toolplug.execution.executor import ToolExecutor, open_catalog
from toolplug.host.host import Host
from toolplug.http.bodies.body_memory import DEFAULT_BODY_MEMORY, BodyMemory
from toolplug.http.errors import HttpProblem, invalid_request
from toolplug.part_protocols.host_part import HostSession
from toolplug.runtime.duplicates import first_repeated

CLIENT_GONE = 499
"""Counted for a request whose client left before the first byte of a response."""

UNKNOWN_PATH = "_unknown"
"""The path in logs and audit lines before a route is found: the path as sent is client data."""

_MAX_QUERY_FIELDS = 32
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_NO_STATE: Mapping[str, Any] = {}


class HostState(TypedDict):
    """`request.state` of a request to the host, read by key: `request.state["principal"]`.

    Starlette offers the same as attributes, at 1.1 µs each instead of 0.1. What every tool call runs reads the mapping
    itself, `request.scope["state"]`: Starlette's wrapper costs 0.6 µs a request and 0.2 µs a key.

    * `host`: the host that serves it.
    * `path`: the decoded path below the mount point; `template`: the path as declared, once a route is found.
    * `headers`: by lower-case name, the last of each; Starlette's `request.headers` costs 1 µs for each look-up.
    * `request_id`: the client's `X-Request-Id` where it is valid, else a new one. No secret.
    * `principal`: the caller, once authenticated; before that `ANONYMOUS`.
    * `session`: the session whose application sent the request; None for every other caller.
    * `max_body`: bytes that the body may have; `bodies`: those that are not read whole.
    * `readmit`: authenticates and authorizes the request again, under the configuration as it is now, and updates
      `principal`. Raises `HttpProblem`, `AccessError` and `StoreError`.
    * `server_state`: what `request.state` held before: the server's, and the surrounding application's.
    """

    host: Host
    path: str
    template: str
    headers: Mapping[bytes, bytes]
    request_id: str
    principal: Principal
    session: HostSession | None
    max_body: int
    bodies: BodyMemory
    readmit: Callable[[HostRequest], Awaitable[None]]
    server_state: Mapping[str, Any]


HostRequest = Request[HostState]


def key_of(scope: Scope, state: HostState) -> tuple[str, str]:
    """Return whose request this is, for limits: the tenant, and the subject, the session or a stranger's address.

    A provider's route has another `scope["state"]`.
    """
    principal, session = state["principal"], state["session"]
    if session is not None:  # applications of one tenant have no subject of their own
        return principal.tenant, f"session {session.code}"
    if principal is ANONYMOUS:
        client = scope.get("client")
        return "", "" if client is None else client[0]
    return principal.tenant, principal.subject


P = TypeVar("P")


def part_of(request: HostRequest, kind: type[P]) -> P:
    """Return the open part of this class of the host that serves the request. Raises `HttpProblem` if it is off."""
    part = request.state["host"].part(kind)
    if part is None:
        raise HttpProblem(
            404, "not_configured", "this part of the host is off; the configuration has no section for it"
        )
    return part


class Actor(TypedDict):
    """Who changes something of the host, and in which request."""

    by: Principal
    request_id: str


def acting(request: HostRequest) -> Actor:
    """Return the caller as keyword arguments of the host's methods that change something."""
    return {"by": request.state["principal"], "request_id": request.state["request_id"]}


def unfinished_bodies(limit: Callable[[], int] = lambda: DEFAULT_BODY_MEMORY) -> BodyMemory:
    """Return the sum of an application's unfinished bodies, for the state of its requests; `limit` in bytes."""
    return BodyMemory(limit)


def initial_state(scope: Scope) -> HostState:
    """Set `scope["state"]` to the state of a new request and return it; `host`, `bodies` and `readmit` are set later.

    It is a new mapping, with everything that was there before: a server may give many requests the same one.
    """
    # uvicorn shares one mapping among all requests; ours is per request, and keeps a reference to that one.
    server_state: Mapping[str, Any] = scope.get("state", _NO_STATE)
    headers: dict[bytes, bytes] = dict(scope["headers"])
    state = {
        **server_state,
        "server_state": server_state,
        "path": path_below_mount(scope),
        "template": UNKNOWN_PATH,
        "headers": headers,
        "request_id": _request_id(headers.get(b"x-request-id")),
        "principal": ANONYMOUS,
        "session": None,
        "max_body": 0,
    }
    scope["state"] = state
    return cast("HostState", state)


class SentResponse:
    """The `send` of one request: it adds `headers` to the response, and notes its status and when it has started.

    `status` is 499 until then, `started_at` (`perf_counter`) 0. `drops_body`: the response to a HEAD request has none.
    """

    __slots__ = ("_send", "drops_body", "headers", "started_at", "status")

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self.drops_body: bool = scope["method"] == "HEAD"
        self._send = send
        self.headers: list[tuple[bytes, bytes]] = [(b"x-request-id", request_id.encode())]
        self.started_at: float = 0.0
        self.status: int = CLIENT_GONE

    @property
    def has_started(self) -> bool:
        return self.started_at > 0

    def __call__(self, message: Message) -> Awaitable[None]:
        """Send one ASGI message."""
        if message["type"] == "http.response.start":
            self.started_at = perf_counter()
            self.status = message["status"]
            # Ours first, and never joined: a handler may set `Vary` as well, and both count.
            message["headers"] = [*self.headers, *message.get("headers", ())]
        elif self.drops_body and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        return self._send(message)


class ClientWatch:
    """A scope in which the current task is cancelled when the client disconnects; the scope then ends quietly.

    The request's body must have been read. Watching begins when the work first suspends, so that work which never
    does costs nothing. Without `receive` it does not watch, and `hang_up` alone cancels the task.
    """

    __slots__ = ("_handle", "_receive", "_task", "_watcher", "gone")

    def __init__(self, receive: Receive | None) -> None:
        self.gone: bool = False
        self._receive = receive
        self._handle: asyncio.Handle | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        # In the next turn: work that never suspends is over by then, and no task was made for it.
        if self._receive is not None:
            self._handle = loop.call_soon(self._begin, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._handle is not None:
            self._handle.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if not self.gone or self._task is None:
            return False
        # Quiet only if our own cancellation is the only one: one of the server has to go on.
        return self._task.uncancel() == 0 and kind is asyncio.CancelledError

    def hang_up(self) -> None:
        """Treat the client as disconnected."""
        self.gone = True
        if self._task is not None:
            self._task.cancel()

    def _begin(self, receive: Receive) -> None:
        self._handle = None
        self._watcher = asyncio.get_running_loop().create_task(self._watch(receive), name="toolplug-client-watch")

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.hang_up()


def _request_id(given: bytes | None) -> str:
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    # Not from `secrets`: the id is no secret, and random bytes of the system cost a call of it.
    return f"{getrandbits(64):016x}"


def path_below_mount(scope: Scope) -> str:
    """Return the request's path without the prefix under which the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    # The third condition: `/tools` is no prefix of `/toolset`.
    if root and path.startswith(root) and (len(path) == len(root) or path[len(root)] == "/"):
        return path[len(root) :] or "/"
    return path


def add_prefix(scope: Scope, prefix: str) -> None:
    """Set in the scope the prefix below which the application is mounted, where the framework around it does not."""
    root: str = scope.get("root_path", "")
    if root.endswith(prefix):
        return
    path = path_below_mount(scope)
    is_whole = path == prefix or path.startswith(f"{prefix}/")
    # Litestar takes the prefix off `path` and leaves it in `raw_path`: then /tools is a path below /tools.
    raw = scope.get("raw_path")
    if is_whole and raw is not None:
        is_whole = unquote(raw.decode("latin-1")).rstrip("/") == scope["path"].rstrip("/")
    scope["root_path"] = f"{root}{prefix}"
    scope["path"] = f"{root}{path}" if is_whole else f"{root}{prefix}{path}"


def mount_path(request: Request[HostState]) -> str:
    """Return the path before those of the routes, as clients know it: of `http.public_url`, else of the request."""
    public = request.state["host"].settings.http.public_url
    return request.scope.get("root_path", "") if public is None else urlsplit(public).path


def base_url(request: Request[HostState]) -> str:
    """Return the application's public URL: `http.public_url`, else that of the request."""
    public = request.state["host"].settings.http.public_url
    if public is not None:
        return public
    scope = request.scope
    return f"{scope['scheme']}://{request.headers['host']}{scope.get('root_path', '')}"


def query_fields(request: Request[Any]) -> dict[str, str]:
    """Return the query's fields. Raises `HttpProblem` for duplicates, of which Starlette takes the last.

    The number of fields is bounded before they are read.
    """
    raw: bytes = request.scope.get("query_string", b"")
    if not raw:
        return {}
    try:
        pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError:
        raise invalid_request(f"the query has more than {_MAX_QUERY_FIELDS} fields") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        duplicate = first_repeated(name for name, _ in pairs)
        raise invalid_request(f"the query names {duplicate!r} twice; give it once", duplicate)
    return fields


def has_version(request: HostRequest, etag: str) -> bool:
    """Return whether `If-None-Match` names this version, weakly compared."""
    condition = request.headers.get("if-none-match")
    if condition is None:
        return False
    named = {item.strip().removeprefix("W/") for item in condition.split(",")}
    return etag.removeprefix("W/") in named or "*" in named


def enter_tenant(principal: Principal) -> Token[Frame]:
    """Make `current_tenant()` the caller's, until `leave_tenant`.

    Leaving is required: a test client, and an application around this one, share the context.
    """
    return current_frame.set((principal.tenant, current_frame.get()[1]))


def leave_tenant(token: Token[Frame]) -> None:
    """Restore the tenant from before `enter_tenant`."""
    current_frame.reset(token)


async def requested_session(request: HostRequest, tenant: str = "") -> str | None:
    """Return the code of the query's session, which the tenant has, by default the caller's; None without.

    Raises `AccessError` and `StoreError`.
    """
    session = query_fields(request).get("session") or None
    if session is not None:
        state = request.state
        await state["host"].sessions.find(session, tenant or state["principal"].tenant)
    return session


_CREDENTIAL = b"x-toolplug-credential-"


def passed_credentials(headers: Mapping[bytes, bytes]) -> Credentials:
    """The values of `X-Toolplug-Credential-<name>`, for systems behind tools."""
    named = [name for name in headers if name.startswith(_CREDENTIAL)]
    passed = Credentials(
        # Blanks at the ends are no part of a header's value, and not every server leaves them out.
        (name[len(_CREDENTIAL) :].decode("latin-1"), headers[name].strip(b" \t").decode("latin-1"))
        for name in named
    )
    passed.request = headers
    return passed


def without_authentication(headers: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Return the headers of a request without what has let it in, for work that goes on when the request is over."""
    return {name: headers[name] for name in headers.keys() - {b"authorization", b"x-api-key"}}


async def credential_scope(request: HostRequest) -> str:
    """Return the scope of the credentials that a request brings, empty for none. Raises `StoreError`."""
    state = request.state
    return await state["host"].scope_of(passed_credentials(state["headers"]))


_TRACEPARENT = b"traceparent"
_TRACESTATE = b"tracestate"


def passed_trace_context(scope: Scope) -> Mapping[str, str]:
    """The valid W3C headers of a request. A second `traceparent` makes both invalid; `tracestate` may be in parts."""
    state: HostState = scope["state"]
    if _TRACEPARENT not in state["headers"]:
        return NO_TRACE_CONTEXT
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    parents = [value.strip() for name, value in headers if name == _TRACEPARENT]
    states = [value for name, value in headers if name == _TRACESTATE]
    if len(parents) > 1:
        return NO_TRACE_CONTEXT
    return trace_context(parents[0].decode("latin-1"), b",".join(states).decode("latin-1"))


async def executor_of(
    host: Host,
    principal: Principal,
    agent: str | None,
    session: str | None,
    toolsets: Collection[str] | None = None,
    within: Hashable = None,
) -> ToolExecutor:
    """Return the caller's tools; the arguments are those of `Host.executor_for`.

    Raises `AccessError` for what the caller cannot have, and for a session `StoreError`.
    """
    if session is not None:
        await host.sessions.find(session, principal.tenant)
    return host.executor_for(principal, agent=agent, session=session, toolsets=toolsets, within=within)


async def catalog_of(
    host: Host,
    principal: Principal,
    agent: str | None,
    session: str | None,
    toolsets: Collection[str] | None = None,
    within: Hashable = None,
) -> Catalog:
    """Return the caller's catalog, once every toolset that it needs is open. Raises like `executor_of`."""
    return await open_catalog(await executor_of(host, principal, agent, session, toolsets, within))
