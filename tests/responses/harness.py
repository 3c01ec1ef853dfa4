"""What a test of `/v1/responses` has at hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx2
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from tests.http.conftest import KEYS, with_agents_of_keys
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.fake_providers import Board
from tests.responses.judges.judged import Judged
from tests.responses.serving import serving

from toolplug import Host, open_host
from toolplug.http import create_app

MODEL = "scripted"
PATIENCE_S = 60.0
Prepare = Callable[[Host], None]


def call_id_of(response: Mapping[str, Any], name: str) -> str:
    """The id of the client's call of a function in a response."""
    (call_id,) = [item["call_id"] for item in response["output"] if item.get("name") == name]
    return call_id


def untouched(host: Host) -> None:
    """Leave the host as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """A served host: its backend, its board, and clients that are judged. `client` and `http` are alice's."""

    host: Host
    url: str
    backend: ScriptedBackend
    board: Board
    judged: Judged
    client: AsyncOpenAI
    http: httpx2.AsyncClient

    def clear(self) -> None:
        """Forget what was asked, written and seen; what a test left in the store stays there."""
        self.backend.clear()
        self.board.clear()
        self.judged.streams.clear()

    def client_of(self, key: str) -> AsyncOpenAI:
        """The `openai` client of another key's holder."""
        return self.client.with_options(api_key=key)

    async def create(self, asked: Any = "Hello", /, **members: Any) -> Response:
        """One plain response through the `openai` client."""
        return await self.client.responses.create(model=MODEL, input=asked, **members)

    async def stream(self, asked: Any = "Hello", /, **members: Any) -> list[ResponseStreamEvent]:
        """One streamed response through the `openai` client, read to its end."""
        return [
            event
            async for event in await self.client.responses.create(model=MODEL, input=asked, stream=True, **members)
        ]

    async def post(self, **body: Any) -> httpx2.Response:
        """One request as JSON, for what the `openai` client would not send."""
        return await self.http.post("/v1/responses", json=body)


@asynccontextmanager
async def opened_harness(
    backend: ScriptedBackend,
    reached: Mapping[str, object],
    board: str,
    sections: Mapping[str, object],
    items: str = "mcp_call",
    prepare: Prepare = untouched,
    *,
    sessions: bool = True,
    asking: object = "ask",
    tool_changes: object = None,
    more_providers: Mapping[str, object] = MappingProxyType({}),
) -> AsyncIterator[Harness]:
    """Open the host and its clients; a section that is given replaces the harness's own, None drops it.

    `sessions` False is for a host beside another one on the same store.
    """
    written_on = Board(board)
    whole: dict[str, object] = {
        "store": "memory://",
        "auth": KEYS,
        "providers": {
            "desk": {"enabled": True, "board": board, "tools": {"ask_first": asking}},
            "search": {"enabled": True, "board": board},
            "shelf": {"enabled": True, "offer": "on_request"},
            **more_providers,
        },
        "responses": {
            "backend": {"api_key": "backend-key", "model": MODEL, **reached},
            "items": items,
            **({} if tool_changes is None else {"tool_changes": tool_changes}),
        },
        **sections,
    }
    settings = with_agents_of_keys({name: value for name, value in whole.items() if value is not None})
    judged = Judged()
    host = open_host(settings, environ={}, sessions=sessions)
    prepare(host)
    async with (
        host,
        serving(create_app(host)) as url,
        httpx2.AsyncClient(
            transport=judged, base_url=url, headers={"Authorization": "Bearer alice-key"}, timeout=PATIENCE_S
        ) as http,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="alice-key", max_retries=0, http_client=http) as client,
    ):
        yield Harness(host=host, url=url, backend=backend, board=written_on, judged=judged, client=client, http=http)
