"""The calls of a response that are made here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.plan import Tool
from toolplug.responses.asker import Asker
from toolplug.responses.citations import Citations
from toolplug.responses.draft import Draft, Event
from toolplug.responses.hosted import HostedCall, approval_request, asks
from toolplug.responses.input_items import Item
from toolplug.responses.offer import Offer
from toolplug.responses.request import ResponseRequest
from toolplug.responses.side_by_side import Job, results
from toolplug.responses.turn import ModelCall
from toolplug.responses.unfinished import Decided, Unfinished


class HostedCalls:
    """Makes calls and tells of them.

    `made` counts them; `asked`: one waits for a person; `exhausted`: no more may be made; `left_out`: what the model is
    told of those that it made nevertheless, which nobody else hears of.
    """

    def __init__(self, draft: Draft, asker: Asker, request: ResponseRequest, citations: Citations) -> None:
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
        jobs: list[Job] = []
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
                jobs.append(Job(ToolCall(call.id, call.name, call.arguments), context))
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
