"""An application with a session, and what it and its clients send over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from httpx2 import AsyncClient, Response
from starlette.types import ASGIApp
from tests.http.conftest import ALICE, client_of, settings

from toolplug import Host, open_host
from toolplug.http import create_app

Json = dict[str, Any]

SCHEMA: Json = {"type": "object", "properties": {"rows": {"type": "integer"}}}


def tool(name: str, **more: object) -> Json:
    """A good definition."""
    return {"name": name, "inputSchema": SCHEMA, **more}


class Served(NamedTuple):
    """A host, its application, and a client of it without credentials."""

    host: Host
    app: ASGIApp
    client: AsyncClient


@asynccontextmanager
async def sessions_host(*, providers: object = None, **sections: object) -> AsyncIterator[Served]:
    """A host without providers that takes many updates; a section that is given replaces its own."""
    whole = settings(**{"sessions": {"max_updates_per_minute": 1000}, **sections}, providers=providers)
    async with open_host(whole, environ={}) as host:
        app = create_app(host)
        async with client_of(app) as client:
            yield Served(host, app, client)


class Plugin:
    """One session as its application sees it: every request carries its token."""

    def __init__(self, client: AsyncClient, created: Mapping[str, Any]) -> None:
        self.code: str = created["code"]
        self.headers = {"Authorization": f"Bearer {created['pluginToken']}"}
        self.place = f"/api/sessions/{self.code}"
        self._client = client

    async def send(self, path: str, body: object, **headers: str) -> Response:
        """POST as the application."""
        return await self._client.post(f"{self.place}/{path}", headers={**self.headers, **headers}, json=body)

    async def register(self, *tools: object, **more: object) -> Response:
        return await self.send("register-tools", {"pluginType": "table", "tools": tools, **more})

    async def update(self, *, reason: str = "changed", if_match: str = "*", **changes: object) -> Response:
        return await self.send("update-tools", {"toolUpdates": changes, "reason": reason}, **{"If-Match": if_match})

    async def answer(self, request_id: str, **body: object) -> Response:
        return await self.send("tool-results", {"id": request_id, **body})

    async def metadata(self) -> Json:
        answer = await self._client.get(f"{self.place}/metadata", headers=self.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def names(self) -> list[str]:
        return [shown["name"] for shown in (await self.metadata())["tools"]]


async def new_plugin(client: AsyncClient, *tools: object, headers: Mapping[str, str] = ALICE, **body: object) -> Plugin:
    """A new session, with these tools where there are any."""
    created = await client.post("/api/sessions", headers=headers, json=body)
    assert created.status_code == 201, created.text
    plugin = Plugin(client, created.json())
    if tools:
        assert (await plugin.register(*tools)).status_code == 201
    return plugin


def refusal(answer: Response) -> tuple[int, str, str | None]:
    """Status, code and param of an error."""
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]
