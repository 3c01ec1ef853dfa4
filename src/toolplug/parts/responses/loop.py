"""The agentic loop: ask the model, run its calls, and ask again until it calls no more tools.

first       run the calls that were approved
each turn   list the caller's tools → ask the model → run its hosted calls
ends        no call, a call of the client's tool, a call that needs approval: completed
            too long, too many turns: incomplete · the backend fails: failed
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from time import time

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.definition import SEARCH_TOOLS, ToolDefinition
from toolplug.catalog.exact_json import as_list, as_object
from toolplug.errors import BackendFailed, ResponseRefused
from toolplug.parts.responses.backend import Backend
from toolplug.parts.responses.builder import Event, ResponseBuilder
from toolplug.parts.responses.items.hosted import MCP, server_list
from toolplug.parts.responses.items.hosted_calls import Decided, HostedCalls, decided_calls
from toolplug.parts.responses.items.tool_list import StableList, place_of_notice
from toolplug.parts.responses.items.transcript import EMPTY_NOTICES, ForwardedChat, messages, question
from toolplug.parts.responses.limits import MAX_TURNS
from toolplug.parts.responses.offer import Offer, ToolCaller, check_choice, make_offer
from toolplug.parts.responses.request import (
    MANY_ITEMS,
    Item,
    ResponseRequest,
    called_name,
    checked_items,
    is_hosted_call,
    model_call_id,
)
from toolplug.parts.responses.settings import ItemStyle
from toolplug.parts.responses.stored import with_ids
from toolplug.parts.responses.turn import CUT_SHORT, Citations, Turn
from toolplug.search.tools import FoundTools, found_names

_LOG = logging.getLogger("toolplug.responses")
_FREE = frozenset({None, "auto", "none"})


class Loop:
    """Makes one response; use it once.

    With `forwarded`, it goes on from these messages, and `request` has no input. With a `tool_list`, that stays.
    """

    def __init__(
        self,
        backend: Backend,
        asker: ToolCaller,
        request: ResponseRequest,
        *,
        max_turns: int = MAX_TURNS,
        style: ItemStyle = "mcp_call",
        forwarded: ForwardedChat | None = None,
        tool_list: StableList | None = None,
    ) -> None:
        model = request.model or backend.default_model
        if model is None:
            raise ResponseRefused("invalid_request", "model: name one; this host has no default", param="model")
        self.draft: ResponseBuilder = ResponseBuilder(request, model, time())
        self.sent: list[Item] = checked_items(request.input)
        if tool_list is not None:
            self.sent = with_ids(self.sent, self.draft.key)
        self._backend = backend
        self._asker = asker
        self._request = request
        self._forwarded = forwarded
        self._list = tool_list
        self._max_turns = max_turns
        self._citations = Citations()
        self._calls = HostedCalls(self.draft, asker, request, self._citations, style, shows_requests=forwarded is None)
        self._catalog: Catalog = EMPTY_CATALOG
        self._offer: Offer | None = None
        self._servers: dict[str, tuple[str, ...]] = {}
        self._found = FoundTools()
        self._taken: set[str] = set() if forwarded is None else forwarded.call_ids

    async def events(self, history: Sequence[Item] = ()) -> AsyncGenerator[Event]:
        """Yield the events in order; the last one ends the response. `history` has the items that it continues.

        Raises `ResponseRefused` before the first event, and `BackendFailed` if the client waits for the whole answer,
        or for the first word of a forwarded request, and there is none yet. If the generator is closed early or
        cancelled, the response is `cancelled`.
        """
        draft = self.draft
        offer = await self._compute_offer(strict=self._asker.strict)
        check_choice(self._request, offer)
        decided = decided_calls(history, self.sent)
        items = [*history, *self.sent]
        if not items and not self._request.instructions and self._forwarded is None:
            raise ResponseRefused("invalid_request", "input: say something, or send items", param="input")
        draft.warnings = [*self._asker.warnings, *(asdict(warning) for warning in offer.warnings)]
        self._remember(items)
        try:
            yield draft.told("response.created")
            if self._request.background:
                yield draft.told("response.queued")
            draft.status = "in_progress"
            yield draft.told("response.in_progress")
            async with aclosing(self._turns(items, offer, decided)) as events:
                async for event in events:
                    yield event
        except BackendFailed as error:
            _LOG.warning("the model's server gave no answer: %s", error.code)
            if self._may_raise and not draft.output:
                raise
            yield draft.fail(error.code, str(error))
        except Exception:  # whatever goes wrong from here on, a client that has heard of the response hears of its end
            if self._may_raise and not draft.output:
                raise
            _LOG.exception("a response failed")
            yield draft.fail("server_error", "internal error")
        except (asyncio.CancelledError, GeneratorExit):
            draft.cancel()
            raise

    @property
    def _may_raise(self) -> bool:
        """True if what fails may be an error of the request."""
        return self._request.is_plain or self._forwarded is not None

    async def _turns(self, items: Sequence[Item], offer: Offer, decided: Sequence[Decided]) -> AsyncGenerator[Event]:
        draft, calls = self.draft, self._calls
        async with aclosing(calls.make_decided(decided, offer)) as events:
            async for event in events:
                yield event
        self._remember(draft.items)
        for _ in range(0 if calls.asked else self._max_turns):
            offer = self._keep_list(await self._compute_offer())
            for event in self._server_lists(offer):
                yield event
            draft.turn += 1
            own = {name: tool for name, tool in offer.own.items() if offer.allowed is None or name in offer.allowed}
            turn = Turn(draft, own, self._taken, self._citations, offer.knows)
            async with aclosing(self._answer(turn, items, offer)) as events:
                async for event in events:
                    yield event
            if turn.finish in CUT_SHORT:
                yield draft.cut_short(CUT_SHORT[turn.finish])
                return
            hosted, before = turn.hosted_calls, len(draft.output)
            async with aclosing(calls.make(hosted, offer)) as events:
                async for event in events:
                    yield event
            self._remember(draft.items[before:])
            if calls.asked or turn.calls_client or not hosted:
                yield draft.complete(time())
                return
        yield draft.complete(time()) if calls.asked else draft.cut_short("max_turns")

    async def _answer(self, turn: Turn, items: Sequence[Item], offer: Offer) -> AsyncGenerator[Event]:
        """Yield the events of one answer of the model."""
        notices = EMPTY_NOTICES if self._list is None else self._list.notices
        said = messages(self._request.instructions, [*items, *self._calls.items], notices)
        if self._forwarded is not None:
            said = [*self._forwarded.messages, *said]
        if len(said) > MANY_ITEMS:
            await asyncio.sleep(0)  # others run before the client library writes as many
        asked = question(self._request, self.draft, said, offer, self._choice(offer), self._forwarded)
        try:
            async with aclosing(self._backend.ask(asked, stream=bool(self._request.stream))) as deltas:
                async for delta in deltas:
                    for event in turn.read(delta):
                        yield event
            turn.check_calls()
        except BackendFailed:
            for event in turn.end(cut=True):
                yield event
            raise
        except (asyncio.CancelledError, GeneratorExit):
            deque(turn.end(cut=True), maxlen=0)  # nobody hears of it, but what was said is kept
            raise
        for event in turn.end():
            yield event

    async def _compute_offer(self, *, strict: bool = False) -> Offer:
        """Return the tools to offer, computed again if the catalog has changed."""
        catalog = await self._asker.catalog()
        if self._offer is None or catalog is not self._catalog:
            self._catalog = catalog
            self._offer = make_offer(self._request, catalog, self._asker.search, self._found.names, strict=strict)
        return self._offer

    def _keep_list(self, offer: Offer) -> Offer:
        """Return the offer with the list of tools that stays, if it does."""
        if self._list is None:
            return offer
        place = place_of_notice(self.sent, self.draft.items)
        offer = self._list.keep(offer, place, self._found.names)
        self.draft.tool_list = self._list.record
        return offer

    def _choice(self, offer: Offer) -> object:
        """Return the tool choice of a turn: none at the limit of calls, automatic after the first turn."""
        if self._calls.exhausted:
            return "none"
        choice = offer.choice
        return "auto" if self._calls.made and (not isinstance(choice, str | None) or choice not in _FREE) else choice

    def _remember(self, items: Sequence[Item]) -> None:
        """Note the ids, servers and found tools of items. A deferred tool that was called counts as found."""
        for item in items:
            if is_hosted_call(item.get("type")):
                name = called_name(item)
                tool, offer = self._catalog.find(name), self._offer
                is_own = offer is not None and name in offer.own
                called = [name] if is_own or (tool is not None and tool.definition.deferred) else []
                if self._found.add(found_names(item.get("output")) if name == SEARCH_TOOLS else called):
                    self._offer = None
            if isinstance(call_id := item.get("call_id"), str):
                self._taken |= {call_id, model_call_id(call_id)}
            if item.get("type") == "mcp_list_tools":
                self._servers[str(item["server_label"])] = _names_in(item)

    def _server_lists(self, offer: Offer) -> Iterator[Event]:
        """Return the tools of each MCP server that was not listed before."""
        servers: dict[str, list[ToolDefinition]] = {}
        for tool in offer.hosted:
            if tool.ref.kind == MCP:
                servers.setdefault(tool.ref.source, []).append(tool)
        for server, tools in servers.items():
            names = tuple(tool.ref.name for tool in tools)
            if self._servers.get(server) != names:
                self._servers[server] = names
                yield from server_list(self.draft, server, tools)


def _names_in(item: Item) -> tuple[str, ...]:
    tools = item.get("tools")
    listed = as_list(tools)
    return tuple(str(as_object(tool).get("name")) for tool in listed)
