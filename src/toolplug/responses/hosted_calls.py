"""Running the hosted calls of a response side by side, also those that earlier responses left unfinished."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.plan import Tool
from toolplug.errors import ResponseRefused
from toolplug.execution.live import ToolExecutor
from toolplug.responses.builder import Event, ResponseBuilder
from toolplug.responses.hosted import HostedCall, approval_request, asks, ticket_of
from toolplug.responses.input_items import (
    CLIENT_ANSWERS,
    CLIENT_CALLS,
    Item,
    call_key,
    called_name,
    is_cut,
    is_hosted_call,
)
from toolplug.responses.offer import Names, Offer, ToolCaller
from toolplug.responses.request import ResponseRequest
from toolplug.responses.turn import Citations, ModelCall

# What earlier responses have left to be done before the model is asked again.
#
# A turn with a client's function runs nothing, so its hosted calls stand in the conversation without an answer; and a
# call that a person had to approve may have been decided.

_ANSWERS = CLIENT_ANSWERS | {"mcp_approval_request"}
"""A call that waits for a person is not left to be made."""


class Decided(NamedTuple):
    """A call that a person had to approve, and what was said of it. `request` is the id of the item that asked."""

    call: ModelCall
    request: str
    approve: bool
    reason: str

    @property
    def ticket(self) -> str:
        """The ticket of the approval."""
        return ticket_of(self.request)


class Unfinished(NamedTuple):
    """The calls to be made, each with a key under which it is made once; and those that have been decided."""

    calls: Sequence[tuple[ModelCall, str | None]]
    decided: Sequence[Decided]


def unfinished(history: Sequence[Item], sent: Sequence[Item], own: Names, catalog: Catalog) -> Unfinished:
    """What is left to be done. Raises `ResponseRefused` for an answer that nobody asked for, or one that is missing."""
    items = [*history, *sent]
    calls = {str(item["call_id"]): item for item in items if item.get("type") in CLIENT_CALLS}
    answered = {str(item["call_id"]) for item in items if _answers(item)}
    for index, item in enumerate(sent):
        if item.get("type") in CLIENT_ANSWERS and item["call_id"] not in calls:
            message = f"no call has the call_id {item['call_id']!r}"
            raise ResponseRefused("unknown_call_id", message, param=f"input[{index}].call_id")
    left: list[tuple[ModelCall, str | None]] = []
    for call_id, item in calls.items():
        if call_id in answered or is_cut(item):
            continue
        name = str(item["name"])
        if name in own or item["type"] != "function_call" or catalog.find(name) is None:
            message = f"the call {call_id!r} of {name!r} has no {item['type']}_output; send one"
            raise ResponseRefused("missing_tool_output", message, param="input")
        key = item.get("id")
        left.append((ModelCall(call_id, name, str(item["arguments"])), key if isinstance(key, str) else None))
    return Unfinished(left, _decided(history, sent))


def _decided(history: Sequence[Item], sent: Sequence[Item]) -> list[Decided]:
    items = [*history, *sent]
    requests = {str(item["id"]): item for item in items if item.get("type") == "mcp_approval_request"}
    done = {item.get("approval_request_id") for item in items if is_hosted_call(item.get("type"))}
    decided: list[Decided] = []
    for index, item in enumerate(sent):
        if item.get("type") != "mcp_approval_response" or item["approval_request_id"] in done:
            continue
        wanted = str(item["approval_request_id"])
        request = requests.get(wanted)
        if request is None:
            message = f"no mcp_approval_request has the id {wanted!r}"
            raise ResponseRefused("unknown_call_id", message, param=f"input[{index}].approval_request_id")
        done.add(wanted)
        reason = item.get("reason")
        said = reason if isinstance(reason, str) else ""
        decided.append(Decided(_call_of(request), wanted, item["approve"] is True, said))
    return decided


def _call_of(request: Mapping[str, object]) -> ModelCall:
    return ModelCall(call_key(request), called_name(request), str(request["arguments"]))


def _answers(item: Item) -> bool:
    kind = item.get("type")
    return "call_id" in item and (kind in _ANSWERS or is_hosted_call(kind))


class PlannedCall(NamedTuple):
    """One call to be made."""

    call: ToolCall
    context: CallContext


async def results(
    executor: ToolExecutor, jobs: Sequence[PlannedCall], *, parallel: bool
) -> AsyncGenerator[tuple[int, ToolResult]]:
    """Each job's place and result, as they end. Whoever closes it, or is cancelled, cancels the calls that run."""
    if not parallel or len(jobs) < 2:
        for place, job in enumerate(jobs):
            yield place, await executor.execute(job.call, job.context)
        return
    running = {asyncio.ensure_future(executor.execute(*job)): place for place, job in enumerate(jobs)}
    try:
        waiting = set(running)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=running.__getitem__):
                yield running[task], task.result()
    finally:
        for task in running:
            task.cancel()


class HostedCalls:
    """Makes calls and tells of them.

    `made` counts them; `asked`: one waits for a person; `exhausted`: no more may be made; `left_out`: what the model is
    told of those that it made nevertheless, which nobody else hears of.
    """

    def __init__(
        self, draft: ResponseBuilder, asker: ToolCaller, request: ResponseRequest, citations: Citations
    ) -> None:
        self.made: int = 0
        self.asked: bool = False
        self.exhausted: bool = False
        self.left_out: list[Item] = []
        self._draft = draft
        self._asker = asker
        self._most = request.max_tool_calls
        self._parallel = request.parallel_tool_calls is not False
        self._include = frozenset(request.include or ())
        self._citations = citations

    async def finish(self, left: Unfinished, offer: Offer, catalog: Catalog) -> AsyncGenerator[Event]:
        """Make the calls that earlier responses left, each once, and those that have been approved."""
        for decided in left.decided:
            async with aclosing(self._decided(decided, offer, catalog)) as events:
                async for event in events:
                    yield event
        keyed = [(call, self._context(call, offer, catalog, key=key)) for call, key in left.calls]
        async with aclosing(self._make(keyed, catalog)) as events:
            async for event in events:
                yield event

    async def make(self, calls: Sequence[ModelCall], offer: Offer, catalog: Catalog) -> AsyncGenerator[Event]:
        """Make the calls of a turn side by side; those that may not be made are given back."""
        wanted: list[tuple[ModelCall, CallContext | str]] = []
        for call in calls:
            if self._most is not None and self.made + len(wanted) >= self._most:
                self._leave_out(call)
                continue
            refused = _refused(call.name, offer, catalog)
            wanted.append((call, refused or self._context(call, offer, catalog)))
        async with aclosing(self._make(wanted, catalog)) as events:
            async for event in events:
                yield event
        self.exhausted = self.exhausted or self.made == self._most

    async def _make(
        self, wanted: Sequence[tuple[ModelCall, CallContext | str]], catalog: Catalog
    ) -> AsyncGenerator[Event]:
        jobs: list[PlannedCall] = []
        shown: list[HostedCall] = []
        for call, context in wanted:
            self.made += 1
            tool = catalog.find(call.name)
            if isinstance(context, str):
                for event in self._given_back(call, context):
                    yield event
            elif _must_ask(tool):
                for event in await self._asked_first(call, context, tool):
                    yield event
            else:
                jobs.append(PlannedCall(ToolCall(call.id, call.name, call.arguments), context))
                shown.append(HostedCall(self._draft, call, tool and tool.definition))
                for event in shown[-1].begin():
                    yield event
        async with aclosing(results(self._asker.executor, jobs, parallel=self._parallel)) as ended:
            async for place, result in ended:
                for event in self._ended(shown[place], result):
                    yield event

    async def _asked_first(
        self, call: ModelCall, context: CallContext, tool: Tool | None, request: str | None = None
    ) -> list[Event]:
        """Make a call that a person may have to approve first: it is no item of its own before that is known."""
        definition = tool and tool.definition
        result = await self._asker.executor.execute(ToolCall(call.id, call.name, call.arguments), context)
        ticket = asks(result)
        if ticket is not None:
            self.asked = True
            return list(approval_request(self._draft, call, definition, ticket))
        shown = HostedCall(self._draft, call, definition, request)
        return [*shown.begin(), *self._ended(shown, result)]

    async def _decided(self, decided: Decided, offer: Offer, catalog: Catalog) -> AsyncGenerator[Event]:
        call, tool = decided.call, catalog.find(decided.call.name)
        await self._asker.decide(decided.ticket, decided.approve)
        if decided.approve:
            context = self._context(call, offer, catalog, key=decided.request)._replace(approval=decided.ticket)
            events = await self._asked_first(call, context, tool, decided.request)
        else:
            reason = f": {decided.reason}" if decided.reason else ""
            result = _refusal(call, f"the call was not approved{reason}")
            shown = HostedCall(self._draft, call, tool and tool.definition, decided.request)
            events = [*shown.begin(), *self._ended(shown, result)]
        for event in events:
            yield event

    def _leave_out(self, call: ModelCall) -> None:
        self.exhausted = True
        told = f"max_tool_calls of {self._most} is reached"
        self.left_out += [
            {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.id, "output": told},
        ]

    def _given_back(self, call: ModelCall, reason: str) -> Iterator[Event]:
        shown = HostedCall(self._draft, call, None)
        yield from shown.begin()
        yield from self._ended(shown, _refusal(call, reason))

    def _ended(self, shown: HostedCall, result: ToolResult) -> Iterator[Event]:
        self._citations.add(result.metadata)
        return shown.end(result, self._include)

    def _context(self, call: ModelCall, offer: Offer, catalog: Catalog, *, key: str | None = None) -> CallContext:
        tool = catalog.find(call.name)
        options = EMPTY if tool is None else offer.options.get(tool.definition.name, EMPTY)
        return self._asker.context._replace(options=options, idempotency_key=key)


def _refused(name: str, offer: Offer, catalog: Catalog) -> str | None:
    """Why the call is given back to the model; None where it may be made, if only to hear that nobody has the tool."""
    tool = catalog.find(name)
    wire = name if tool is None else tool.definition.wire
    if offer.allowed is not None and wire not in offer.allowed:
        return f"tool {name} is not in the allowed_tools list"
    if tool is not None and all(tool.definition is not hosted for hosted in offer.hosted):
        return catalog.unknown(name)
    return None


def _must_ask(tool: Tool | None) -> bool:
    return tool is not None and tool.plan.approval is not None


def _refusal(call: ModelCall, output: str) -> ToolResult:
    return ToolResult(call.id, call.name, output, ToolStatus.DENIED)
