"""The Responses API of a host: what asks the model's server, loaded when it is first needed, and the conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import cast

from toolplug.execution.own_thread import in_own_thread
from toolplug.host.conversations import Conversations
from toolplug.host.file.responses_settings import BackendSettings, ResponsesSettings
from toolplug.responses.backend import Backend
from toolplug.responses.service import Responses
from toolplug.stores.store import Store

_CLIENT = "toolplug.responses.openai_backend"


class ResponsesDesk:
    """`service` makes the responses, None without a model's server; `over` closes what a conversation had open."""

    def __init__(self, store: Store, settings: ResponsesSettings | None, over: Callable[[str], object]) -> None:
        self.conversations: Conversations = Conversations(over)
        self._responses = Responses(store, self._backend)
        self._settings: ResponsesSettings | None = None
        self._loading: asyncio.Future[Backend] | None = None
        self._closing: list[asyncio.Future[Backend]] = []
        self.configure(settings)

    @property
    def service(self) -> Responses | None:
        """What makes responses."""
        return None if self._settings is None else self._responses

    def configure(self, settings: ResponsesSettings | None) -> None:
        """Hold to these from the next response on."""
        before, self._settings = self._settings, settings
        if settings is not None:
            self._responses.configure(max_turns=settings.max_turns, ttl_s=settings.ttl)
        changed = before is None or settings is None or before.backend != settings.backend
        if changed and self._loading is not None:
            self._closing.append(self._loading)
            self._loading = None

    async def aclose(self) -> None:
        """Stop what is made in the background, and close the connections."""
        self.conversations.stop()
        await self._responses.aclose()
        for loading in [*self._closing, *([] if self._loading is None else [self._loading])]:
            await (await loading).aclose()

    async def _backend(self) -> Backend:
        if self._loading is None:
            settings = self._settings
            assert settings is not None, "only a host with a model's server makes responses"
            make = partial(_client, settings.backend)  # it takes a second
            self._loading = asyncio.ensure_future(in_own_thread(make))
        return await asyncio.shield(self._loading)


def _client(settings: BackendSettings) -> Backend:
    make = import_module(_CLIENT).OpenAIBackend  # the one place that decides to import the client
    key = None if settings.api_key is None else settings.api_key.get_secret_value()
    made = make(settings.base_url, key, settings.model, timeout_s=settings.timeout, retries=settings.retries)
    return cast("Backend", made)  # a module that is imported by name has no types
