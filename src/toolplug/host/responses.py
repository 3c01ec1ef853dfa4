"""The Responses API of a host: the model's backend, loaded on first use, and conversations as toolset sessions."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import cast

from toolplug.host.file.settings import BackendSettings, ResponsesSettings
from toolplug.responses.backend import Backend
from toolplug.responses.service import Responses
from toolplug.runtime.threads import in_own_thread
from toolplug.stores.processes import Processes
from toolplug.stores.store import Store

IDLE_S = 1800.0
"""Seconds without use after which the toolsets of a conversation are closed; they are opened again when it goes on."""
MOST = 10_000
"""Conversations with open toolsets; beyond it, those of the least recently used one are closed."""


class Conversations:
    """The conversations that may have open toolsets. `over` is called once for each that ends."""

    def __init__(self, over: Callable[[str], object], *, idle_s: float = IDLE_S) -> None:
        self._over = over
        self._idle_s = idle_s
        self._used: OrderedDict[str, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def use(self, key: str) -> None:
        """Note the use of a conversation, which begins or continues it."""
        now = asyncio.get_running_loop().time()
        self._used[key] = now
        self._used.move_to_end(key)
        if len(self._used) > MOST:
            self._end(next(iter(self._used)))
        self._watch(now)

    def stop(self) -> None:
        """Stop the timer; `over` is not called any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, now: float) -> None:
        if self._timer is None and self._used:
            quietest = next(iter(self._used.values()))
            delay = max(quietest + self._idle_s - now, 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for key in [key for key, used in self._used.items() if used + self._idle_s <= now]:
            self._end(key)
        self._watch(now)

    def _end(self, key: str) -> None:
        del self._used[key]
        self._over(key)


_CLIENT = "toolplug.responses.openai_backend"


class ResponsesService:
    """The Responses API of one host; `over` closes what a conversation has open.

    `processes` are those that share the store, where there can be several.
    """

    def __init__(
        self,
        store: Store,
        settings: ResponsesSettings | None,
        over: Callable[[str], object],
        processes: Processes | None = None,
    ) -> None:
        self.conversations: Conversations = Conversations(over)
        self._responses = Responses(store, self.backend, processes)
        self._settings: ResponsesSettings | None = None
        self._loading: list[asyncio.Future[Backend]] = []
        self._changed = True
        self.configure(settings)

    @property
    def service(self) -> Responses | None:
        """The service that makes responses, None without a configured model server."""
        return None if self._settings is None else self._responses

    def configure(self, settings: ResponsesSettings | None) -> None:
        """Apply the settings to the next responses; a former backend is closed with the host."""
        before, self._settings = self._settings, settings
        if settings is not None:
            self._responses.configure(max_turns=settings.max_turns, style=settings.items, ttl_s=settings.ttl)
        if before is None or settings is None or before.backend != settings.backend:
            self._changed = True

    async def aclose(self) -> None:
        """Stop the responses in the background, and close the connections."""
        self.conversations.stop()
        await self._responses.aclose()
        for loading in self._loading:
            await (await loading).aclose()

    async def backend(self) -> Backend:
        """Return the client of the configured model's server."""
        if self._changed:
            settings = self._settings
            assert settings is not None, "only a host with a model's server makes responses"
            make = partial(_client, settings.backend)  # importing the client takes a second
            self._loading.append(asyncio.ensure_future(in_own_thread(make)))
            self._changed = False
        return await asyncio.shield(self._loading[-1])


def _client(settings: BackendSettings) -> Backend:
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
