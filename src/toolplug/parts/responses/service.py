"""Responses: making, storing, reading, continuing and stopping them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from copy import copy
from functools import partial
from secrets import token_hex
from typing import Self

from toolplug.catalog.call import Principal
from toolplug.cluster.processes import Processes
from toolplug.errors import ResponseRefused, StoreConflict, StoreError
from toolplug.parts.responses.answers.tracing import trace_turn
from toolplug.parts.responses.backend import Backend, ModelAnswer
from toolplug.parts.responses.background import Background, ResponseWriter
from toolplug.parts.responses.builder import FINAL, Event, ResponseAnswer, ResponseBuilder
from toolplug.parts.responses.items.chat_history import complete_messages
from toolplug.parts.responses.items.tool_list import ListRule, PrefixChanges, StableList
from toolplug.parts.responses.items.transcript import ForwardedChat
from toolplug.parts.responses.limits import MAX_TURNS, TTL_S
from toolplug.parts.responses.loop import Loop
from toolplug.parts.responses.offer import ToolCaller
from toolplug.parts.responses.request import MANY_ITEMS, Item, ResponseRequest, checked_items, is_hosted_call
from toolplug.parts.responses.settings import ItemStyle, ToolChangesRule
from toolplug.parts.responses.stored import StoredResponse, StoredResponses
from toolplug.stores.store import Store

AskerFor = Callable[[str], Awaitable[ToolCaller]]
"""Who asks, given the key of the conversation: the same for all responses that continue one another."""

_NEWS = frozenset({"response.created", "response.in_progress", "response.output_item.done"})
_LOG = logging.getLogger("toolplug.responses")


class Responses:
    """The responses of one host. `load` returns the backend, on first use.

    `processes` are those that share the store, where there can be several.
    """

    def __init__(
        self,
        store: Store,
        load: Callable[[], Awaitable[Backend]],
        processes: Processes | None = None,
        prefix_changes: PrefixChanges | None = None,
    ) -> None:
        self.stored: StoredResponses = StoredResponses(store, TTL_S)
        self._background = Background(self.stored, processes)
        self._load = load
        self._max_turns = MAX_TURNS
        self._style: ItemStyle = "mcp_call"
        self._list_rule = ListRule(None, prefix_changes or PrefixChanges())

    def configure(
        self,
        *,
        max_turns: int,
        style: ItemStyle,
        ttl_s: float,
        heal_s: float,
        tool_changes: ToolChangesRule | None = None,
    ) -> None:
        """Apply these settings from the next response on.

        `ttl_s`: how many seconds each is stored; `heal_s`: and the hosted calls of one that is not, 0 for never;
        `tool_changes`: whether the list of tools stays in a stored conversation, None: where tools come and go.
        """
        self._list_rule = self._list_rule._replace(rule=tool_changes)
        self._max_turns = max_turns
        self._style: ItemStyle = style
        self.stored.ttl_s, self.stored.heal_s = ttl_s, heal_s

    def of(self, principal: Principal, scope: str = "") -> Self:
        """Return the responses of this caller; a credential with agents is limited to those of its subject.

        Each caller is limited to its `scope`, that of the credentials that it brings.
        """
        own = copy(self)
        own.stored = self.stored.of(principal, scope)
        return own

    async def events(
        self, request: ResponseRequest, tenant: str, asker_for: AskerFor, forwarded: ForwardedChat | None = None
    ) -> AsyncGenerator[Event]:
        """Make a response and yield its events. It is stored before its last event; if closed early, as `cancelled`.

        With `forwarded`, it goes on from these messages. If another process has stopped or deleted the response, the
        last event is missing.

        Raises `ResponseRefused`, `StoreError` and the errors of `asker_for` before the first event, and `BackendFailed`
        as `Loop.events` does.
        """
        chain = [] if request.previous_response_id is None else await self._read_continued(request, tenant)
        conversation = chain[-1].conversation if chain else token_hex(16)
        history = [item for kept in chain for item in kept.items]
        request = await self._complete_input(request, tenant, history)
        if forwarded is not None:
            heal = partial(self.stored.heal, tenant, ())
            forwarded = forwarded._replace(messages=await complete_messages(forwarded.messages, heal))
        asker = await asker_for(conversation)
        try:
            with trace_turn(await self._load(), asker.tracers, asker.context, request.model) as (backend, context):
                asker = asker._replace(context=context)
                loop = Loop(
                    backend,
                    asker,
                    request,
                    max_turns=self._max_turns,
                    style=self._style,
                    forwarded=forwarded,
                    tool_list=self._tool_list(request, chain, asker),
                )
                keeping = ResponseWriter(self.stored, tenant, loop.draft, loop.sent, conversation)
                async with aclosing(self._make_stored(loop, request, history, keeping)) as events:
                    async for event in events:
                        yield event
        finally:
            asker.leave()

    async def _make_stored(
        self, loop: Loop, request: ResponseRequest, history: Sequence[Item], keeping: ResponseWriter
    ) -> AsyncGenerator[Event]:
        """Yield the events of the loop, each after what it says is stored."""
        draft = loop.draft
        try:
            async with aclosing(loop.events(history)) as events:
                async for event in events:
                    if draft.status in FINAL:
                        await self.stored.keep_for_healing(keeping.tenant, draft, stored=request.is_stored)
                    news = request.background and event["type"] in _NEWS  # clients that poll should see it
                    if request.is_stored and (draft.status in FINAL or news):
                        yield await _keep(keeping, draft, event)
                    else:
                        yield event
        except StoreConflict:
            await self.stored.forget_deleted(keeping.tenant, draft.id)
            return
        except (asyncio.CancelledError, GeneratorExit):
            if draft.status == "cancelled":  # its client may have calls of it already
                await self.stored.keep_for_healing(keeping.tenant, draft, stored=request.is_stored)
                if request.is_stored:
                    try:
                        await keeping.write_cancelled()
                    except StoreError as error:
                        _LOG.error("a cancelled response is not kept: %s", error)
                    await self.stored.forget_deleted(keeping.tenant, draft.id)
            raise

    def _tool_list(
        self, request: ResponseRequest, chain: Sequence[StoredResponse], asker: ToolCaller
    ) -> StableList | None:
        """Return the list that may stay; None where there is nowhere to keep what the model was told."""
        if not request.is_stored or self._list_rule.rule == "replace" or asker.search is None:
            return None
        return StableList(self._list_rule, asker.search, asker.is_live, [kept.tool_list for kept in chain])

    async def models(self) -> list[ModelAnswer]:
        """Return the models of the backend. Raises `BackendFailed`."""
        return await (await self._load()).models()

    async def begin(self, request: ResponseRequest, tenant: str, asker_for: AskerFor) -> ResponseAnswer:
        """Start a response in the background and return its first state. Raises the errors of `events`."""
        events = self.events(request, tenant, asker_for)
        return await self._background.begin(tenant, events, streamed=bool(request.stream))

    async def listen(self, tenant: str, response: str, after: int = -1) -> AsyncGenerator[Event]:
        """Yield the events after that number of a response with `background` and `stream`, to the end.

        Raises `ResponseRefused` and `StoreError` before the first event.
        """
        await self.stored.read(tenant, response)
        return await self._background.listen(tenant, response, after)

    async def read(self, tenant: str, response: str) -> StoredResponse:
        """Return the current response, `failed` if its process has died. Raises `ResponseRefused` and `StoreError`."""
        await self.stored.read(tenant, response)
        return await self._background.current(tenant, response)

    async def cancel(self, tenant: str, response: str) -> ResponseAnswer:
        """Stop a background response; one that has ended stays unchanged. Raises `ResponseRefused` and `StoreError`."""
        kept = await self.read(tenant, response)
        if not kept.response["background"]:
            message = "only a response with background: true can be cancelled; hang up on any other"
            raise ResponseRefused("not_background", message, param="id")
        await self._background.stop(tenant, response)
        ended = await self.stored.end(tenant, response, {"status": "cancelled"})
        await self._background.stop_elsewhere(response)
        return ended.response

    async def delete(self, tenant: str, response: str) -> None:
        """Stop and delete a response, or forget what is kept of one that is not stored.

        Raises `ResponseRefused` and `StoreError`.
        """
        stored = await self.stored.status(tenant, response) is not None
        if not stored and await self.stored.forget_for_healing(tenant, response):
            return
        await self.stored.read(tenant, response)
        await self._background.stop(tenant, response)
        await self.stored.delete(tenant, response)
        await self._background.stop_elsewhere(response)

    async def finish(self) -> None:
        """Let the background responses go on for a moment: their calls have ended."""
        await self._background.finish()

    async def aclose(self) -> None:
        """Stop all background responses, which are stored as `cancelled`."""
        await self._background.aclose()

    async def _read_continued(self, request: ResponseRequest, tenant: str) -> list[StoredResponse]:
        chain = await self.stored.conversation(tenant, request.previous_response_id or "")
        if not chain[-1].is_over:
            message = "the response to continue is still made; wait for its end, or cancel it"
            raise ResponseRefused("invalid_request", message, param="previous_response_id")
        return chain

    async def _complete_input(self, request: ResponseRequest, tenant: str, history: Sequence[Item]) -> ResponseRequest:
        """Return the request with the referenced items, and the hosted ones that its client has left out, in place.

        A hosted call without output is a reference too: clients omit what they consider readable on the server.
        """
        items = checked_items(request.input)
        if len(items) > MANY_ITEMS:
            await asyncio.sleep(0)  # others run before the loop reads as many
        references = [index for index, item in enumerate(items) if _is_reference(item)]
        for index in references:
            item_id, at = str(items[index].get("id")), f"input[{index}].id"
            found = await self.stored.item(tenant, item_id)
            if found is None and items[index]["type"] == "item_reference":
                raise ResponseRefused("item_not_found", f"{at}: no stored item has the id {item_id!r}", param=at)
            items[index] = found or items[index]
        healed = await self.stored.heal(tenant, history, items)
        return request.model_copy(update={"input": healed}) if references or healed is not items else request


def _is_reference(item: Item) -> bool:
    return item["type"] == "item_reference" or (is_hosted_call(item["type"]) and item.get("output") is None)


async def _keep(keeping: ResponseWriter, draft: ResponseBuilder, event: Event) -> Event:
    """Return the event after the response is stored; if the final state cannot be stored, an event that says so.

    Earlier states that cannot be stored are stored with the next one. Raises `StoreConflict`, and `StoreError` at the
    first event, before the client knows the response.
    """
    try:
        await keeping.write()
    except StoreConflict:
        raise
    except StoreError as error:
        if event["type"] == "response.created":
            raise
        _LOG.error("a response is not kept: %s", error)
        if draft.status in FINAL:
            failed = draft.fail("store_unavailable", "the store cannot keep the response now")
            return {**failed, "sequence_number": event["sequence_number"]}
    return event
