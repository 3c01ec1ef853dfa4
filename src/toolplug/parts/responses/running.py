"""The Responses API of a host: the model's backend, loaded at the start, and conversations as toolset sessions."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import cast

from toolplug.catalog.call import CallContext, Principal
from toolplug.catalog.catalog import Catalog
from toolplug.cluster.processes import Processes
from toolplug.execution.call_hooks import LiveCallHooks
from toolplug.execution.executor import LazyExecutor, open_catalog
from toolplug.host.host import Host
from toolplug.part_protocols.host_part import PartServices, RunningPart
from toolplug.parts.responses.backend import Backend
from toolplug.parts.responses.items.tool_list import PrefixChanges
from toolplug.parts.responses.limits import IDLE_S, MOST, MOST_OF_CALLER
from toolplug.parts.responses.offer import Decide, ToolCaller
from toolplug.parts.responses.service import Responses
from toolplug.parts.responses.settings import BackendSettings, ResponsesSettings
from toolplug.parts.responses.stored import CIPHERS
from toolplug.runtime.threads import in_own_thread
from toolplug.stores.store import Store

Caller = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Conversation:
    """A conversation that may have open toolsets; `busy` counts its responses in progress."""

    caller: Caller
    used: float
    busy: int = 0


class Conversations:
    """The conversations that may have open toolsets. `over` is called once for each that ends.

    Over a limit, the one that was used least recently ends, of the caller's own first. One in which a response is made
    ends only if there is no other.
    """

    def __init__(self, over: Callable[[str], object], *, idle_s: float = IDLE_S) -> None:
        self._over = over
        self._idle_s = idle_s
        self._all: OrderedDict[str, _Conversation] = OrderedDict()
        self._of: dict[Caller, OrderedDict[str, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def use(self, principal: Principal, key: str) -> Callable[[], None]:
        """Note the use of a conversation, which begins or continues it; return what to call when the response ends."""
        caller, now = (principal.tenant, principal.subject), asyncio.get_running_loop().time()
        conversation = self._all.get(key)
        if conversation is None:
            conversation = self._all[key] = _Conversation(caller, now)
        own = self._of.setdefault(conversation.caller, OrderedDict())
        own[key] = None
        self._touch(key, conversation)
        conversation.busy += 1
        if len(own) > MOST_OF_CALLER:
            self._end(self._quietest(own))
        elif len(self._all) > MOST:
            self._end(self._quietest(self._all))
        self._watch(now)
        return partial(self._leave, key, conversation)

    def stop(self) -> None:
        """Stop the timer; `over` is not called any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self, key: str, conversation: _Conversation) -> None:
        conversation.busy -= 1
        if self._all.get(key) is conversation:
            self._touch(key, conversation)

    def _touch(self, key: str, conversation: _Conversation) -> None:
        conversation.used = asyncio.get_running_loop().time()
        self._all.move_to_end(key)
        self._of[conversation.caller].move_to_end(key)

    def _quietest(self, keys: Iterable[str]) -> str:
        """Return the key that was used least recently, and of those that are not busy if there is one."""
        first = next(iter(keys))
        return next((key for key in keys if not self._all[key].busy), first)

    def _watch(self, now: float) -> None:
        if self._timer is None and self._all:
            quietest = next(iter(self._all.values())).used
            delay = max(quietest + self._idle_s - now, 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for key, conversation in [*self._all.items()]:
            if conversation.used + self._idle_s > now:
                break
            if conversation.busy:
                self._touch(key, conversation)
            else:
                self._end(key)
        self._watch(now)

    def _end(self, key: str) -> None:
        caller = self._all.pop(key).caller
        own = self._of[caller]
        del own[key]
        if not own:
            del self._of[caller]
        self._over(key)


_CLIENT = "toolplug.parts.responses.openai_backend"


async def open_responses(services: PartServices, settings: ResponsesSettings) -> ResponsesService:
    """Open the part; the client of the model's server is loaded where the host serves."""
    changes = PrefixChanges(services.namespace)
    services.metrics.register(changes.as_collector())
    running = ResponsesService(
        services.store, settings, services.end_conversation, services.processes, services.calls.hooks, changes
    )
    if services.serving:
        await running.load()
    return running


class ResponsesService(RunningPart[ResponsesSettings]):
    """The Responses API of one host; `over` closes what a conversation has open.

    `processes` are those that share the store, where there can be several; `hooks` are those of the plugins.
    """

    def __init__(
        self,
        store: Store,
        settings: ResponsesSettings | None,
        over: Callable[[str], object],
        processes: Processes | None = None,
        hooks: LiveCallHooks | None = None,
        prefix_changes: PrefixChanges | None = None,
    ) -> None:
        self.conversations: Conversations = Conversations(over)
        self._hooks = hooks
        self._responses = Responses(store, self.backend, processes, prefix_changes)
        self._settings: ResponsesSettings | None = None
        self._loading: list[asyncio.Future[Backend]] = []
        self._changed = True
        self.configure(settings)

    @property
    def service(self) -> Responses | None:
        """The service that makes responses, None without a configured model server."""
        return None if self._settings is None else self._responses

    def tools_of(
        self, host: Host, context: CallContext, conversation: str, decide: Decide, *, strict: bool = False
    ) -> ToolCaller:
        """Return the tools of the caller of this context in a conversation. Raises `AccessError`.

        `decide` decides on the ticket of a call that waits for an approval.
        """
        caller = context.principal
        tools = host.executor_for(caller, agent=context.agent, session=context.session, within=conversation)
        lazy = isinstance(tools, LazyExecutor)
        leave = self.conversations.use(caller, conversation) if lazy else lambda: None
        search = host.registry.search
        hooks = None if self._hooks is None else self._hooks.current
        asker = ToolCaller(tools, context, lambda: open_catalog(tools), search, decide, strict=strict, leave=leave)
        asker = asker._replace(is_live=partial(_has_live_source, host, context))
        return asker if hooks is None else asker._replace(tracers=hooks.tracers)

    def configure(self, settings: ResponsesSettings | None) -> None:
        """Apply the settings to the next responses; a former backend is closed with the host."""
        before, self._settings = self._settings, settings
        if settings is not None:
            self._responses.configure(
                max_turns=settings.max_turns,
                style=settings.items,
                ttl_s=settings.ttl,
                heal_s=settings.heal,
                tool_changes=settings.tool_changes,
            )
        if before is None or settings is None or before.backend != settings.backend:
            self._changed = True

    async def finish(self) -> None:
        """Let the responses in the background go on for a moment."""
        await self._responses.finish()

    async def aclose(self) -> None:
        """Stop the responses in the background, and close the connections."""
        self.conversations.stop()
        await self._responses.aclose()
        for loaded in await asyncio.gather(*self._loading, return_exceptions=True):
            if not isinstance(loaded, BaseException):
                await loaded.aclose()

    async def load(self) -> None:
        """Load the client of the model's server, if one is configured, so that the first request does not wait for it.

        A client that cannot be loaded fails the requests, not the start.
        """
        if self._settings is not None:
            await asyncio.gather(self.backend(), return_exceptions=True)

    async def backend(self) -> Backend:
        """Return the client of the configured model's server."""
        if self._changed:
            settings = self._settings
            assert settings is not None, "only a host with a model's server makes responses"
            make = partial(_client, settings.backend)  # importing the client takes a second
            self._loading.append(asyncio.ensure_future(in_own_thread(make)))
            self._changed = False
        return await asyncio.shield(self._loading[-1])


def _has_live_source(host: Host, context: CallContext, catalog: Catalog) -> bool:
    """Return whether tools of the catalog are of a session, or of a server that announces changes of its list."""
    if context.session is not None:
        return True
    announcing = {view.id for view in host.servers.servers(context.principal.tenant) if view.record.announces_changes}
    for tool in catalog.definitions():
        if tool.ref.kind == "session" or (tool.ref.kind == "mcp" and tool.ref.source in announcing):
            return True
    return False


def _client(settings: BackendSettings) -> Backend:
    import_module(CIPHERS)  # here, where no request waits for it
    key = None if settings.api_key is None else settings.api_key.get_secret_value()
    made = import_module(_CLIENT).OpenAIBackend(  # the only place that imports the client
        settings.base_url,
        key,
        settings.model,
        timeout_s=settings.timeout,
        deadline_s=settings.deadline,
        retries=settings.retries,
    )
    return cast("Backend", made)  # a module that is imported by name has no types
