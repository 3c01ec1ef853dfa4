"""Answers for `toolplug chat` from a host that is opened in this process, with a loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import aclosing, closing, contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from toolplug.catalog.call import CallContext
from toolplug.cli.event_loop import cancel_leftovers, enter_host
from toolplug.cli.options import operator
from toolplug.errors import ApiError
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.host import Host, open_host
from toolplug.part_protocols.approvals import MAX_REASON, DecisionTerms
from toolplug.parts.responses.builder import Event
from toolplug.parts.responses.offer import ToolCaller
from toolplug.parts.responses.request import ResponseRequest
from toolplug.parts.responses.running import ResponsesService

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own.

    anyio's blocking portal is not used: it waits for every task, so a tool that ignores its cancellation would keep the
    process alive.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="toolplug-chat", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Start a task in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Return the result of a task. Raises what it raises."""
        return self.start(work).result()

    def call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancel the remaining tasks and end the thread; if some do not end, it is left to the end of the process."""
        if self.run(cancel_leftovers()):
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class OpenedHost:
    """The answers of one host to the operator in a tenant, with the tools of an agent or a session if one is named."""

    def __init__(self, loop: LoopThread, host: Host, tenant: str, agent: str | None, session: str | None) -> None:
        self._loop = loop
        self._host = host
        self._caller = operator(tenant)
        self._agent = agent
        self._session = session

    def is_ready(self) -> bool:
        """Return whether a model is configured. Raises `AccessError` for a session that does not exist."""
        if self._session is not None:
            self._loop.run(self._host.sessions.find(self._session, self._caller.tenant))
        return self._host.part(ResponsesService) is not None

    @property
    def _responses(self) -> ResponsesService:
        running = self._host.part(ResponsesService)
        assert running is not None, "only a host with a model is asked"
        return running

    def events(self, request: dict[str, object]) -> Generator[Event]:
        """Yield the events of a new response; closing cancels it. Raises the errors of `Responses.events`."""
        queue: SimpleQueue[Event | None] = SimpleQueue()
        making = self._loop.start(self._make(ResponseRequest.model_validate(request), queue))
        making.add_done_callback(lambda _: queue.put(None))
        try:
            while (event := queue.get()) is not None:
                yield event
            making.result()
        finally:
            making.cancel()

    async def _make(self, request: ResponseRequest, queue: SimpleQueue[Event | None]) -> None:
        service = self._responses.service
        assert service is not None, "only a host with a model is asked"
        events = service.of(self._caller).events(request, self._caller.tenant, self._tool_caller)
        async with aclosing(events):
            async for event in events:
                queue.put(event)

    async def _tool_caller(self, conversation: str) -> ToolCaller:
        context = CallContext(self._caller, self._session, self._agent, conversation=conversation)
        return self._responses.tools_of(self._host, context, conversation, self._decide)

    async def _decide(self, ticket: str, approve: bool, reason: str) -> None:
        """Decide a ticket; an earlier decision stays."""
        with suppress(ApiError):
            decision = "approve" if approve else "deny"
            terms = DecisionTerms(reason[:MAX_REASON] or None)
            await self._host.approvals.decide(ticket, decision, self._caller, decided="command", terms=terms)


@contextmanager
def open_chat_host(config: ConfigFiles, tenant: str, agent: str | None, session: str | None) -> Generator[OpenedHost]:
    """Open a host for the length of the block. Raises the errors of entering it."""
    opening: Future[Host] = Future()
    leaving = asyncio.Event()

    async def hold() -> None:
        async with enter_host(open_host(config, serving=False)) as host:
            opening.set_result(host)
            await leaving.wait()

    with closing(LoopThread()) as loop:
        holding = loop.start(hold())
        holding.add_done_callback(lambda done: opening.done() or opening.set_exception(done.exception()))
        try:
            yield OpenedHost(loop, opening.result(), tenant, agent, session)
        finally:
            loop.call(leaving.set)
            holding.result()
