"""The providers' routes: found for every request as they are now, behind auth, with tenant, drain and metrics.

    find → authenticate → scope → switch → endpoint → count

They are matched with Starlette's path patterns, but not by a `Router`: a path without parameters comes before all
patterns whatever their order, 405 names the methods of all routes that match, and a route costs one look-up (0.1 µs; a
`Router` takes 3 µs for the first route and 0.4 for each one before it, and a whole request may cost 1.3 bare ones).
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from time import perf_counter
from typing import Any, NamedTuple

from starlette.convertors import Convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope, Send

from toolplug.catalog.call import Principal
from toolplug.crashes import log_crash
from toolplug.errors import QuotaExceeded, StoreUnavailable
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.limiters import SourceSwitch
from toolplug.http.auth.authentication import Authenticator, Refusals, insufficient_scope
from toolplug.http.bodies.request_body import MAX_FILE_BODY, BoundedChannel, check_declared
from toolplug.http.errors import (
    HttpProblem,
    as_problem,
    draining,
    internal,
    method_not_allowed,
    quota_problem,
    route_not_found,
    store_unavailable,
)
from toolplug.http.requests import HostState, SentResponse, enter_tenant, key_of, leave_tenant
from toolplug.http.routing import CALL
from toolplug.providers.answering_routes import AnswerNotJson
from toolplug.providers.registry import FunctionRegistry
from toolplug.providers.routes import MountedRoute

_LOG = logging.getLogger("toolplug.http")
_NOTHING: dict[str, object] = {}


class RoutePlace(NamedTuple):
    """One path, and its routes by method; `key` and `template`, without a mount, are those of the first."""

    key: str
    template: str
    methods: dict[str, MountedRoute]
    pattern: re.Pattern[str]
    convertors: Mapping[str, Convertor[Any]]


class Found(NamedTuple):
    """Where a request goes. `route` is None if the path lacks the method; `allowed` then names those it has."""

    place: RoutePlace
    route: MountedRoute | None
    params: dict[str, object]
    allowed: tuple[str, ...] = ()


class RouteIndex:
    """One reading of the route table. HEAD is answered by what answers GET."""

    def __init__(self, routes: Iterable[MountedRoute]) -> None:
        self._exact: dict[str, RoutePlace] = {}
        self._patterns: list[RoutePlace] = []
        places: dict[str, RoutePlace] = {}
        for item in routes:
            path = item.path
            place = places.get(path)
            if place is None:
                pattern, _, convertors = compile_path(path)
                place = places[path] = RoutePlace(item.key, item.route.path, {}, pattern, convertors)
                if convertors:
                    self._patterns.append(place)
                else:
                    self._exact[path] = place
            place.methods.setdefault(item.route.method, item)

    def find(self, path: str, method: str) -> Found | None:
        """Return the route of this request; None if no template matches the path."""
        method = "GET" if method == "HEAD" else method
        exact = self._exact.get(path)
        if exact is not None:
            route = exact.methods.get(method)
            if route is not None:
                return Found(exact, route, _NOTHING)
        first: RoutePlace | None = None
        allowed: list[str] = []
        for place, params in self._fitting(path):
            route = place.methods.get(method)
            if route is not None:
                return Found(place, route, params)
            first = first or place
            allowed += place.methods
        return None if first is None else Found(first, None, _NOTHING, tuple(dict.fromkeys(allowed)))

    def _fitting(self, path: str) -> Iterator[tuple[RoutePlace, dict[str, object]]]:
        exact = self._exact.get(path)
        if exact is not None:
            yield exact, _NOTHING
        for place in self._patterns:
            match = place.pattern.fullmatch(path)
            if match is not None:
                values = match.groupdict()
                yield place, {name: place.convertors[name].convert(value) for name, value in values.items()}


OTHER_METHOD = "_other"
"""The method's label where the path lacks it: what a client sends is no label."""

_FILES = "/files"
_EVENTS = b"text/event-stream"

Reached = Callable[[Principal], Collection[str]]
"""Returns the keys of the providers that a principal's agents can reach; called only for one with agents."""

Streams = Callable[[str, str], AbstractContextManager[None]]
"""A scope in which an event stream of a tenant and a subject is open. Entering it raises `QuotaExceeded`."""


class ProviderRoutes:
    """Serves the routes that a registry has now."""

    def __init__(self, refusals: Refusals, reached: Reached, streams: Streams) -> None:
        self._refusals = refusals
        self._reached = reached
        self._streams = streams
        self._seen: tuple[MountedRoute, ...] = ()
        self._index = RouteIndex(())

    async def serve(
        self,
        registry: FunctionRegistry,
        scope: Scope,
        receive: Receive,
        sent: SentResponse,
        authenticator: Authenticator,
        max_body: int,
    ) -> None:
        """Serve the request, whatever its handler does, and count it. Raises `HttpProblem` only where no path matches.

        `scope["state"]` is as `initial_state` made it.
        """
        began = perf_counter()
        routes = registry.routes
        if routes is not self._seen:
            self._seen, self._index = routes, RouteIndex(routes)
        state: HostState = scope["state"]
        found = self._index.find(state["path"], scope["method"])
        if found is None:
            raise route_not_found()
        place, route, _, allowed = found
        if route is not None:
            method, key, template = scope["method"], route.key, route.route.path
        else:
            method, key, template = OTHER_METHOD, place.key, place.template
        try:
            if route is None:
                raise method_not_allowed(allowed)
            uploads = method == "POST" and template.endswith(_FILES)
            limit = max(max_body, MAX_FILE_BODY) if uploads else max_body
            check_declared(state["headers"], limit)
            with BoundedChannel(scope, receive, limit) as body:
                request = Request(scope, body, sent)
                if not route.public:
                    await self._admit(route, request, state, authenticator)
                _prepare(scope, route, found.params, state)
                await self._handle(route, registry.accounting, state, request, sent)
        except HttpProblem as problem:
            problem = self._refusals.apply_brake(scope, problem)
            self._refusals.note(registry.accounting, scope, state, problem, f"{method} {template}")
            if not sent.has_started:
                await problem.response(state["request_id"])(scope, receive, sent)
        finally:
            registry.accounting.route(key, method, template).record(str(sent.status), perf_counter() - began)

    async def _handle(
        self, route: MountedRoute, accounting: CallAccounting, state: HostState, request: Request, sent: SentResponse
    ) -> None:
        """Run the endpoint; what it stores counts for the caller where a quota limits that."""

        def open_stream() -> AbstractContextManager[None]:
            return self._streams(*key_of(request.scope, state))

        if not self._refusals.counts_stored_bytes:
            await _run_endpoint(route, accounting, state, request, sent, open_stream)
            return
        with self._refusals.within(request.scope):
            await _run_endpoint(route, accounting, state, request, sent, open_stream)

    async def _admit(
        self, route: MountedRoute, request: Request[Any], state: HostState, authenticator: Authenticator
    ) -> None:
        """Authenticate and authorize: set the state's principal. Raises `HttpProblem`."""
        principal = state["principal"] = await authenticator.authenticate(request)
        needed = route.route.scope or CALL
        if not principal.has_scope(needed):
            raise insufficient_scope(needed)
        if principal.agents is not None and route.key not in self._reached(principal):
            message = f"the agents of this credential have no toolset of provider {route.key!r}; have one added"
            raise HttpProblem(403, "agent_not_allowed", message, param="agent")


def _prepare(scope: Scope, route: MountedRoute, params: Mapping[str, object], state: HostState) -> None:
    """Give the endpoint its path parameters, and in `request.state` the tenant, the principal and the request id.

    As under Starlette's `Mount`, the mount becomes a part of the root path.
    """
    principal = state["principal"]
    scope["path_params"] = {**scope.get("path_params", {}), **params}
    if route.mount:
        scope["root_path"] = scope.get("root_path", "") + route.mount
    scope["state"] = {
        **state["server_state"],
        "tenant": principal.tenant,
        "principal": principal,
        "request_id": state["request_id"],
    }


class _RunningRequest:
    """A request whose endpoint runs. Implements `toolplug.catalog.plan.EndableWork`; it ends with its provider."""

    drain_s = math.inf

    def __init__(self, switch: SourceSwitch) -> None:
        self.switch: SourceSwitch = switch
        self.life: asyncio.Timeout = asyncio.timeout(None)

    def end(self) -> None:
        """Stop the endpoint."""
        if not self.life.expired():
            self.life.reschedule(asyncio.get_running_loop().time())


async def _run_endpoint(
    route: MountedRoute,
    accounting: CallAccounting,
    state: HostState,
    request: Request,
    sent: SentResponse,
    open_stream: Callable[[], AbstractContextManager[None]],
) -> None:
    """Run the endpoint as the caller's tenant; its provider is closed after the endpoint has ended."""
    switch = route.switch
    if not switch.open:
        raise route_not_found()
    token = enter_tenant(state["principal"])
    switch.running += 1
    running = _RunningRequest(switch)
    accounting.running.add(running)
    try:
        async with running.life:
            response = await route.route.endpoint(request)
            sent.drops_body = False  # it is the endpoint's own, as under Starlette, and dropped by the server
            if type(response).__call__ is Response.__call__:  # its body is there, so that it holds no stream open
                await response(request.scope, request.receive, sent)
                return
            with ExitStack() as streams:
                await _respond(response, request, sent, lambda: streams.enter_context(open_stream()))
    except HttpProblem:
        raise
    except HTTPException as error:
        raise as_problem(error) from error
    except QuotaExceeded as error:
        raise quota_problem(error) from error
    except StoreUnavailable as error:
        raise store_unavailable() from error
    except ClientDisconnect:
        return
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise _problem_of_failure(route, state["request_id"], error) from error
    except BaseException as error:
        if running.life.expired():
            raise draining() from error
        raise _problem_of_failure(route, state["request_id"], error) from error
    finally:
        accounting.running.discard(running)
        switch.leave()
        leave_tenant(token)


async def _respond(response: Response, request: Request, sent: SentResponse, begin_stream: Callable[[], None]) -> None:
    """Send a response that may be a stream; `begin_stream` is called before an event stream begins."""

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start" and _has_events(message):
            begin_stream()
        await sent(message)

    if request.method == "HEAD":
        head = _HeadOnly(send)
        await response(request.scope, head.receive, head.send)
    else:
        await response(request.scope, request.receive, send)


class _HeadOnly:
    """The channel of a response to HEAD: complete once it has started, and then without a client, so that it ends.

    A stream would go on for a client that has its whole response, and the next request on the connection would wait.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._complete = asyncio.Event()

    async def send(self, message: Message) -> None:
        """Send the start and the end of the response, and nothing between them."""
        if not self._complete.is_set():
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b""})
            self._complete.set()

    async def receive(self) -> Message:
        """Return that the client has gone, once the response is complete."""
        await self._complete.wait()
        return {"type": "http.disconnect"}


def _has_events(start: Message) -> bool:
    """Return whether a response that starts so is an event stream."""
    return any(
        name.lower() == b"content-type" and value.startswith(_EVENTS) for name, value in start.get("headers", ())
    )


def _is_cancelled() -> bool:
    """Return whether the request itself is cancelled: an endpoint may raise `CancelledError` on its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _problem_of_failure(route: MountedRoute, request_id: str, error: BaseException) -> HttpProblem:
    if isinstance(error, AnswerNotJson):
        _LOG.error("answer of %s of %s is not JSON: %s (request %s)", route.label, route.owner, error, request_id)
        if error.__cause__ is None:
            return internal()
        error = error.__cause__
    log_crash(f"the handler of {route.label}", error, route.owner, request_id=request_id)
    return internal()
