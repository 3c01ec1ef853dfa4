"""Plans of a server's prompts and resources, which ask the server over a connection, and resources that are followed.

After a gap, in which an update may have been missed, each follower of a resource is notified once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.offering import EMPTY_OFFERING, Follow, Instructions, OfferedEntry, Offering
from toolplug.catalog.plan import Plan
from toolplug.catalog.text import clean_text, in_one_line
from toolplug.errors import ToolError
from toolplug.parts.mcp.client.connection import BadAnswer, ServerConnection, ServerRefused
from toolplug.parts.mcp.client.connection_strategies import ConnectionStrategy, ServerDown, SwitchedConnection
from toolplug.parts.mcp.client.plans import ServerPlanner, refusals_in_words
from toolplug.parts.mcp.discovery.offers import NO_OFFERS, FoundOffers
from toolplug.parts.mcp.limits import MAX_MESSAGE_BYTES

GET_PROMPT = "prompts/get"
READ_RESOURCE = "resources/read"
COMPLETE = "completion/complete"

_VIEW = "ui://"
MAX_COMPLETIONS = 100
_MAX_COMPLETION = 1_024
_OWN_META = ("io.modelcontextprotocol/", "toolplug/")

Parameters = Callable[[ToolCall], Mapping[str, object]]


def planned_offers(
    found: FoundOffers, planner: ServerPlanner, reach: SwitchedConnection, follow: Follow | None = None
) -> Offering:
    """Return what a server offers besides its tools, under its own names; nothing if its policy is `disable`.

    The policy `deny` refuses prompts and resources as it refuses tools. With `ask` they are not asked about: nothing is
    done but to read.
    """
    if found == NO_OFFERS or planner.hides_all:
        return EMPTY_OFFERING
    requests = _Requests(planner, reach)
    prompts = {str(item["name"]): requests.prompt(item) for item in found.prompts}
    resources = {str(item["uri"]): requests.resource("uri", item, follow) for item in found.resources}
    templates = {str(item["uriTemplate"]): requests.resource("uriTemplate", item, follow) for item in found.templates}
    instructions = (Instructions("", found.instructions),) if found.instructions else ()
    return Offering(prompts=prompts, resources=resources, templates=templates, instructions=instructions)


class _Requests:
    """Builds the plans of one server's prompts and resources, over one connection."""

    def __init__(self, planner: ServerPlanner, reach: SwitchedConnection) -> None:
        self._planner = planner
        self._reach = reach

    def prompt(self, item: Mapping[str, object]) -> OfferedEntry:
        name = str(item["name"])
        fields = {key: value for key, value in item.items() if key != "name"}
        get = self._plan(GET_PROMPT, name, lambda call: {"name": name, "arguments": call.arguments}, _as_sent)
        reference = {"type": "ref/prompt", "name": name}
        completion = self._completion(name, reference) if item.get("arguments") else None
        return OfferedEntry(key=name, fields=fields, plan=get, completion=completion)

    def resource(self, key: str, item: Mapping[str, object], follow: Follow | None) -> OfferedEntry:
        """Return a resource, or template, with its plans."""
        uri = str(item[key])
        read = self._plan(READ_RESOURCE, uri, lambda call: {"uri": as_object(call.arguments)["uri"]}, _as_sent)
        reference = {"type": "ref/resource", "uri": uri}
        completion = self._completion(uri, reference) if key == "uriTemplate" else None
        if uri.startswith(_VIEW):  # shown by the model's program, never sent to the model
            read = replace(read, max_result_bytes=max(read.max_result_bytes, MAX_MESSAGE_BYTES))
        return OfferedEntry(key=uri, fields=item, plan=read, completion=completion, follow=follow)

    def _completion(self, name: str, reference: Mapping[str, object]) -> Plan:
        def parameters(call: ToolCall) -> Mapping[str, object]:
            given = as_object(call.arguments)
            asked = {"ref": reference, "argument": {"name": given["argument"], "value": given["value"]}}
            context = given.get("context")
            return {**asked, "context": {"arguments": context}} if context else asked

        return self._plan(COMPLETE, name, parameters, _read_completion)

    def _plan(
        self,
        method: str,
        name: str,
        parameters: Parameters,
        result: Callable[[Mapping[str, object]], Mapping[str, object]],
    ) -> Plan:
        return self._planner.request(method, name, _asking(self._reach, method, parameters, result), self._reach)


def _asking(
    reach: SwitchedConnection,
    method: str,
    parameters: Parameters,
    result: Callable[[Mapping[str, object]], Mapping[str, object]],
) -> Callable[[ToolCall, CallContext], Awaitable[ToolResult]]:
    async def target(call: ToolCall, context: CallContext, /) -> ToolResult:
        async def ask_over(line: ConnectionStrategy, headers: Mapping[str, str]) -> Mapping[str, object]:
            return await line.ask(lambda connection: connection.request(method, parameters(call), headers))

        with refusals_in_words(coded=True):
            answer = await reach.ask_as(context, ask_over)
        return ToolResult(structured=dict(result(answer)))

    return target


def _as_sent(answer: Mapping[str, object]) -> Mapping[str, object]:
    """Return messages or contents, without what speaks of the server and of caching."""
    kept = {key: answer[key] for key in ("description", "messages", "contents") if key in answer}
    meta = {key: value for key, value in as_object(answer.get("_meta")).items() if not key.startswith(_OWN_META)}
    return {**kept, "_meta": meta} if meta else kept


def _read_completion(answer: Mapping[str, object]) -> Mapping[str, object]:
    """Return the values of a completion, cleaned and cut; people see them."""
    completion = as_object(answer.get("completion"))
    values = cast("Sequence[object]", completion.get("values", ()))
    texts = [in_one_line(clean_text(value[:_MAX_COMPLETION])) for value in values if isinstance(value, str)]
    counts = {key: completion[key] for key in ("total", "hasMore") if completion.get(key) is not None}
    return {"completion": {"values": texts[:MAX_COMPLETIONS], **counts}}


MOST = 1_000
"""Resources of one server that are followed at a time."""
FOLLOW_S = 10.0
"""How long a server may take to accept that a resource is followed."""
REFUSED_S = 60.0
"""Until a connection is asked again that has refused."""
_AGAIN_S = 1.0


class FollowedResources:
    """Follows each resource once for all its followers. `line` returns the present connection, None for none."""

    def __init__(self, line: Callable[[], ConnectionStrategy | None]) -> None:
        self._line = line
        self._told: dict[str, dict[object, Callable[[], None]]] = {}
        self._connection: ServerConnection | None = None
        self._stops: dict[str, Callable[[], None]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    async def follow(self, uri: str, told: Callable[[], None]) -> Callable[[], None]:
        """Implement `Follow`. Raises `ToolError` and `ServerDown`."""
        line = self._line()
        if line is None or self._closed:
            raise ToolError("its server is not enabled")
        if uri not in self._told and len(self._told) >= MOST:
            raise ToolError(f"{MOST} resources of its server are followed already")
        follower = object()
        self._told.setdefault(uri, {})[follower] = told
        stop = partial(self._stop, uri, follower)
        try:
            async with asyncio.timeout(FOLLOW_S):
                await line.ask(partial(self._follow_over, uri))
        except BaseException as error:
            stop()
            if isinstance(error, TimeoutError):
                raise ToolError(f"its server has not accepted it within {FOLLOW_S:g} s") from None
            if isinstance(error, ServerRefused | BadAnswer):
                raise ToolError(str(error) or "its server refuses it") from None
            raise
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep(), name="toolplug-mcp-followed")
        return stop

    async def aclose(self) -> None:
        """Follow nothing any longer."""
        self._closed = True
        self._told.clear()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})

    def _stop(self, uri: str, follower: object) -> None:
        followers = self._told.get(uri, {})
        followers.pop(follower, None)
        if not followers:
            self._told.pop(uri, None)
            self._stops.pop(uri, lambda: None)()
        if not self._told and self._keeper is not None:
            self._keeper.cancel()

    def _on_update(self, uri: str) -> None:
        for told in tuple(self._told.get(uri, {}).values()):
            told()

    async def _follow_over(self, uri: str, connection: ServerConnection) -> None:
        if connection is not self._connection:
            self._connection, self._stops = connection, {}
        if uri in self._stops:
            return
        self._stops[uri] = lambda: None
        try:
            stop = await connection.follow(uri, partial(self._on_update, uri))
        except BaseException:
            self._stops.pop(uri, None)
            raise
        if uri in self._stops and connection is self._connection:
            self._stops[uri] = stop
        else:  # nobody follows it any longer
            stop()

    async def _keep(self) -> None:
        """Follow everything again over each new connection, until nothing is followed."""
        while self._told:
            pause_s = _AGAIN_S
            try:
                line = self._line()
                if line is not None:
                    await (await line.ask(self._follow_missing)).wait_closed()
            except ServerDown as error:
                pause_s = error.retry_after_s or _AGAIN_S
            except (ServerRefused, BadAnswer):
                pause_s = REFUSED_S
            await asyncio.sleep(pause_s)

    async def _follow_missing(self, connection: ServerConnection) -> ServerConnection:
        for uri in tuple(self._told):
            if connection is not self._connection or uri not in self._stops:
                await self._follow_over(uri, connection)
                self._on_update(uri)
        return connection
