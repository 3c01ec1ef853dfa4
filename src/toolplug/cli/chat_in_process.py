"""Answers for `toolplug chat` from a host that is opened in this process, with a loop in a thread of its own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from queue import SimpleQueue

from anyio.from_thread import BlockingPortal, start_blocking_portal

from toolplug.catalog.call import CallContext
from toolplug.cli.event_loop import entered
from toolplug.cli.options import operator
from toolplug.errors import ApiError
from toolplug.host.file.configuration import ConfigFiles
from toolplug.host.host import Host, open_host
from toolplug.host.parts import listed
from toolplug.responses.builder import Event
from toolplug.responses.offer import ToolCaller
from toolplug.responses.request import ResponseRequest
from toolplug.toolsets.first_use import LazyExecutor


class OpenedHost:
    """The answers of one host to the operator in a tenant, with the tools of an agent or a session if one is named."""

    def __init__(self, portal: BlockingPortal, host: Host, tenant: str, agent: str | None, session: str | None) -> None:
        self._portal = portal
        self._host = host
        self._caller = operator(tenant)
        self._agent = agent
        self._session = session

    def is_ready(self) -> bool:
        """Return whether a model is configured. Raises `AccessError` for a session that does not exist."""
        if self._session is not None:
            self._portal.call(self._host.sessions.find, self._session, self._caller.tenant)
        return self._host.responses.service is not None

    def events(self, request: dict[str, object]) -> Generator[Event]:
        """Yield the events of a new response; closing cancels it. Raises the errors of `Responses.events`."""
        queue: SimpleQueue[Event | None] = SimpleQueue()
        making = self._portal.start_task_soon(self._make, ResponseRequest.model_validate(request), queue)
        making.add_done_callback(lambda _: queue.put(None))
        try:
            while (event := queue.get()) is not None:
                yield event
            making.result()
        finally:
            making.cancel()

    async def _make(self, request: ResponseRequest, queue: SimpleQueue[Event | None]) -> None:
        service = self._host.responses.service
        assert service is not None, "only a host with a model is asked"
        events = service.of(self._caller).events(request, self._caller.tenant, self._tool_caller)
        async with aclosing(events):
            async for event in events:
                queue.put(event)

    async def _tool_caller(self, conversation: str) -> ToolCaller:
        host = self._host
        tools = host.executor_for(self._caller, agent=self._agent, session=self._session, within=conversation)
        if isinstance(tools, LazyExecutor):
            host.responses.conversations.use(conversation)
        context = CallContext(self._caller, self._session, self._agent, conversation=conversation)
        return ToolCaller(tools, context, partial(listed, tools), host.registry.search, self._decide)

    async def _decide(self, ticket: str, approve: bool) -> None:
        """Decide a ticket; an earlier decision stays."""
        with suppress(ApiError):
            decision = "approve" if approve else "deny"
            await self._host.approvals.decide(ticket, decision, self._caller, decided="command")


@contextmanager
def opened(config: ConfigFiles, tenant: str, agent: str | None, session: str | None) -> Generator[OpenedHost]:
    """Open a host for the length of the block. Raises the errors of entering it."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(entered(open_host(config, serving=False))) as host,
    ):
        yield OpenedHost(portal, host, tenant, agent, session)
