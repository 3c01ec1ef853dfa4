"""Running the hosted calls of a turn concurrently, and approved calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.definition import CALL_TOOL, SEARCH_SOURCE
from toolplug.catalog.plan import Tool
from toolplug.errors import ResponseRefused
from toolplug.parts.responses.builder import Event, ResponseBuilder
from toolplug.parts.responses.items.hosted import (
    MCP,
    HostedCall,
    appears_at_end,
    approval_request,
    asks,
    label_of,
    ticket_of,
)
from toolplug.parts.responses.offer import Offer, ToolCaller
from toolplug.parts.responses.request import (
    APPROVALS_FIELD,
    CLIENT_ANSWERS,
    CLIENT_CALLS,
    ITEMS,
    Item,
    ResponseRequest,
    call_key,
    called_name,
    is_cut,
    is_hosted_call,
)
from toolplug.parts.responses.settings import ItemStyle
from toolplug.parts.responses.turn import Citations
from toolplug.search.tools import target_call
from toolplug.signatures.values import encode_value


class Decided(NamedTuple):
    """A call with the decision on its approval. `request` is the id of the approval request."""

    call: ToolCall
    request: str
    approve: bool
    reason: str

    @property
    def ticket(self) -> str:
        """The approval ticket of the call."""
        return ticket_of(self.request)


def decided_calls(history: Sequence[Item], sent: Sequence[Item]) -> list[Decided]:
    """Return the calls that a request's approval responses decide.

    Raises `ResponseRefused` for a response without its request, and for a client's call without output.
    """
    items = [*history, *sent]
    calls = {str(item["call_id"]): item for item in items if item.get("type") in CLIENT_CALLS}
    answered = {str(item["call_id"]) for item in items if item.get("type") in CLIENT_ANSWERS}
    for index, item in enumerate(sent):
        if item.get("type") in CLIENT_ANSWERS and item["call_id"] not in calls:
            message = f"no call has the call_id {item['call_id']!r}"
            raise ResponseRefused("unknown_call_id", message, param=f"input[{index}].call_id")
    for call_id, item in calls.items():
        if call_id not in answered and not is_cut(item):
            message = f"the call {call_id!r} of {item['name']!r} has no {item['type']}_output; send one"
            raise ResponseRefused("missing_tool_output", message, param="input")
    return _read_decisions(history, sent)


def _read_decisions(history: Sequence[Item], sent: Sequence[Item]) -> list[Decided]:
    items = [*history, *sent]
    requests = {str(item["id"]): item for item in items if item.get("type") == "mcp_approval_request"}
    done = {ticket_of(str(item.get("approval_request_id"))) for item in items if is_hosted_call(item.get("type"))}
    # A call may ask several times, one after the other: each question answers the one before.
    last = {call_key(item): ticket_of(request_id) for request_id, item in requests.items()}
    done |= {ticket_of(request_id) for request_id in requests} - {*last.values()}
    decided: list[Decided] = []
    for index, item in enumerate(sent):
        if item.get("type") != "mcp_approval_response" or ticket_of(str(item["approval_request_id"])) in done:
            continue
        wanted = str(item["approval_request_id"])
        request = requests.get(wanted)
        if request is None:
            message = f"no mcp_approval_request has the id {wanted!r}"
            raise ResponseRefused("unknown_call_id", message, param=f"input[{index}].approval_request_id")
        done.add(ticket_of(wanted))
        call = ToolCall(call_key(request), called_name(request), str(request["arguments"]))
        reason = item.get("reason")
        decided.append(Decided(call, wanted, item["approve"] is True, reason if isinstance(reason, str) else ""))
    return decided


Execute = Callable[[ToolCall, CallContext], Coroutine[Any, Any, ToolResult]]


async def results(
    execute: Execute, calls: Sequence[tuple[ToolCall, CallContext]], *, parallel: bool
) -> AsyncGenerator[tuple[int, ToolResult]]:
    """Yield each call's index and result, as they end. Closing the generator cancels the running calls."""
    if not parallel or len(calls) < 2:
        for place, (call, context) in enumerate(calls):
            yield place, await execute(call, context)
        return
    running = {asyncio.ensure_future(execute(*call)): place for place, call in enumerate(calls)}
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
    """Runs calls and yields events. `made` counts them, `asked`: one needs approval, `exhausted`: no more may run."""

    def __init__(
        self,
        draft: ResponseBuilder,
        asker: ToolCaller,
        request: ResponseRequest,
        citations: Citations,
        style: ItemStyle,
        *,
        shows_requests: bool = True,
    ) -> None:
        self.made: int = 0
        self.asked: bool = False
        self.exhausted: bool = False
        self._left_out: list[tuple[int, Item]] = []
        self._style: ItemStyle = style
        self._draft = draft
        self._asker = asker
        self._most = request.max_tool_calls
        self._asks_client = shows_requests and (request.metadata or {}).get(APPROVALS_FIELD) == ITEMS
        self._waiting: dict[tuple[str, str], str] = {}
        tools = request.tools if shows_requests and request.tools else ()
        self._labels = frozenset(tool.get("server_label") for tool in tools if tool.get("type") == MCP)
        self._parallel = request.parallel_tool_calls is not False
        self._include = frozenset(request.include or ())
        self._citations = citations

    @property
    def items(self) -> list[Item]:
        """The output so far, with refused calls over the limit, which only the model sees."""
        told: list[Item] = self._draft.items
        for place, item in reversed(self._left_out):
            told.insert(place, item)
        return told

    async def make_decided(self, decided: Sequence[Decided], offer: Offer) -> AsyncGenerator[Event]:
        """Run the approved calls, each once, and show the denied ones."""
        for each in decided:
            for event in await self._apply_decision(each, offer):
                yield event

    async def make(self, calls: Sequence[ToolCall], offer: Offer) -> AsyncGenerator[Event]:
        """Run the calls of a turn concurrently; answer those that may not be run."""
        wanted: list[tuple[ToolCall, CallContext | str]] = []
        over: list[ToolCall] = []
        for made in calls:
            call = _meant(made, offer)
            if self._most is not None and self.made + len(wanted) >= self._most:
                over.append(call)
                continue
            refused = _find_refusal(call, offer)
            wanted.append((call, refused or self._context(call, offer)))
        async with aclosing(self._make(wanted, offer)) as events:
            async for event in events:
                yield event
        self._leave_out(over)
        self.exhausted = self.exhausted or bool(over) or self.made == self._most

    async def _make(self, wanted: Sequence[tuple[ToolCall, CallContext | str]], offer: Offer) -> AsyncGenerator[Event]:
        begun: list[tuple[ToolCall, CallContext]] = []
        shown: list[HostedCall | None] = []
        for call, context in wanted:
            self.made += 1
            tool = offer.catalog.find(call.name)
            if isinstance(context, str):
                # To this request a tool that it does not use is unknown.
                known = None if tool is None or tool.definition.wire in offer.withheld else tool
                for event in self._refuse(call, context, known):
                    yield event
            elif tool is not None and tool.plan.approval is not None:
                for event in await self._asked_first(call, context, tool):
                    yield event
            elif tool is not None and appears_at_end(tool.definition):
                begun.append((call, self._with_ticket(call, context)))
                shown.append(None)
            else:
                begun.append((call, context))
                item = HostedCall(self._draft, call, tool and tool.definition, self._style)
                shown.append(item)
                for event in item.begin():
                    yield event

        async def execute(call: ToolCall, context: CallContext) -> ToolResult:
            return await self._asker.execute(call, context, offer)

        async with aclosing(results(execute, begun, parallel=self._parallel)) as ended:
            async for place, result in ended:
                call, item = begun[place][0], shown[place]
                if item is None:
                    events = self._show_asked(call, offer.catalog.find(call.name), result)
                else:
                    events = self._end_call(item, result)
                for event in events:
                    yield event

    def _with_ticket(self, call: ToolCall, context: CallContext) -> CallContext:
        """Return the context of a call with the ticket of an equal one: a model that calls again asks for no other."""
        return context._replace(approval=self._waiting.pop((call.name, str(call.arguments)), context.approval))

    async def _asked_first(
        self, call: ToolCall, context: CallContext, tool: Tool | None, request: str | None = None
    ) -> list[Event]:
        """Run a call that may need approval; it becomes an item when that is known."""
        context = self._with_ticket(call, context) if request is None else context
        return self._show_asked(call, tool, await self._asker.executor.execute(call, context), request)

    def _show_asked(
        self, call: ToolCall, tool: Tool | None, result: ToolResult, request: str | None = None
    ) -> list[Event]:
        """Show a call that may have needed approval.

        A client that has not declared the server does not know what an approval request is: then the model hears of it.
        """
        definition = tool and tool.definition
        waiting = asks(result)
        if waiting is not None and (request is not None or self._asks_client or label_of(definition) in self._labels):
            self.asked = True
            return list(approval_request(self._draft, call, definition, waiting))
        if waiting is not None:
            ticket = str(waiting["id"])
            self._waiting[call.name, str(call.arguments)] = ticket
            self._draft.approvals[ticket] = {**waiting, "call_id": call.id, "server_label": label_of(definition)}
            result = result._replace(output=f"a person must approve: id {ticket}; once approved, the same call runs")
        shown = HostedCall(self._draft, call, definition, self._style, request)
        return [*shown.begin(), *self._end_call(shown, result)]

    async def _apply_decision(self, decided: Decided, offer: Offer) -> list[Event]:
        call, tool = decided.call, offer.catalog.find(decided.call.name)
        await self._asker.decide(decided.ticket, decided.approve, decided.reason)
        context = self._context(call, offer, key=decided.request)._replace(approval=decided.ticket)
        if decided.approve:
            return await self._asked_first(call, context, tool, decided.request)
        if tool is not None and appears_at_end(tool.definition):
            result = await self._asker.executor.execute(call, context)
            waiting = asks(result)
            # Where the caller may not decide, its own call waits no longer, and the question does.
            if waiting is None or waiting["id"] != decided.ticket:
                return self._show_asked(call, tool, result, decided.request)
        reason = f": {decided.reason}" if decided.reason else ""
        return self._refuse(call, f"the call was not approved{reason}", tool, decided.request)

    def _leave_out(self, calls: Sequence[ToolCall]) -> None:
        told = f"max_tool_calls of {self._most} is reached"
        place = len(self._draft.output)
        for call in calls:
            made: dict[str, object] = {"type": "function_call", "call_id": call.id, "name": call.name}
            made |= {"arguments": call.arguments}
            answer = {"type": "function_call_output", "call_id": call.id, "output": told}
            made |= {"id": self._draft.new_id("fc"), **self._draft.fields_of(call.id)}
            self._left_out += [(place, made), (place, answer)]

    def _refuse(self, call: ToolCall, reason: str, tool: Tool | None = None, request: str | None = None) -> list[Event]:
        """Show the call as denied, without running it."""
        shown = HostedCall(self._draft, call, tool and tool.definition, self._style, request)
        return [*shown.begin(), *self._end_call(shown, ToolResult(call.id, call.name, reason, ToolStatus.DENIED))]

    def _end_call(self, shown: HostedCall, result: ToolResult) -> Iterator[Event]:
        self._citations.add(result.metadata)
        return shown.end(result, self._include)

    def _context(self, call: ToolCall, offer: Offer, *, key: str | None = None) -> CallContext:
        tool = offer.catalog.find(call.name)
        options = EMPTY if tool is None else offer.options.get(tool.definition.name, EMPTY)
        return self._asker.context._replace(options=options, idempotency_key=key)


def _meant(call: ToolCall, offer: Offer) -> ToolCall:
    """Return the call that a call of `call_tool` stands for, so that it is shown and approved as what it is."""
    tool = offer.catalog.find(call.name)
    if tool is None or tool.definition.ref.source != SEARCH_SOURCE or tool.definition.name != CALL_TOOL:
        return call
    target = target_call(call)
    if target is None:
        return call
    given = target.arguments
    return target._replace(arguments=given if isinstance(given, str) else encode_value(given) or "{}")


def _find_refusal(call: ToolCall, offer: Offer) -> str | None:
    """Return why a call is answered without being run; None if it may run, also for an unknown tool."""
    name = call.name
    if name in offer.own:
        return f"{name} is a function of the client; call it itself, not through {CALL_TOOL}"
    tool = offer.catalog.find(name)
    wire = name if tool is None else tool.definition.wire
    if offer.allowed is not None and wire not in offer.allowed:
        return f"tool {name} is not in the allowed_tools list"
    if tool is not None and wire in offer.withheld:
        return offer.catalog.unknown(name)
    return None
