"""A plugin's side of a session: the tools that it lends, and its requests as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.connection import Connection, request
from benchmarks.providers import SEARCH_SCHEMA
from benchmarks.serve import KEY

CLIENT = {"Authorization": f"Bearer {KEY}"}
"""Headers of a client, which may also make and end sessions."""

JSON = {"Content-Type": "application/json"}
CREATION = request("POST", "/api/sessions", {**CLIENT, **JSON}, b"{}")
UPDATE = b"event: tool-availability-update\n"


def definition(index: int, *, owner: str = "everybody", version: int = 0) -> dict[str, object]:
    """A tool with a schema as real ones are, 0.7 KB in all; whatever differs makes a tool of its own."""
    return {
        "name": f"search_{index}",
        "description": f"Search the documents of collection {index}, as of version {version}.",
        "inputSchema": {**SEARCH_SCHEMA, "title": f"Search {index} for {owner}"},
    }


def definitions(count: int, *, owner: str = "everybody") -> list[dict[str, object]]:
    """So many tools; those of one owner are the same each time."""
    return [definition(index, owner=owner) for index in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One session, and the token that its plugin was given."""

    code: str
    token: str

    @classmethod
    def of(cls, answer: bytes) -> Plugin:
        """The one that this answer to `CREATION` is for."""
        made: dict[str, str] = json.loads(answer)
        return cls(code=made["code"], token=made["pluginToken"])

    @classmethod
    def lending(cls, connection: Connection, tools: Sequence[Mapping[str, object]]) -> Plugin:
        """Make a session and register its tools."""
        plugin = cls.of(connection.ask(CREATION))
        connection.ask(plugin.registration(tools))
        return plugin

    def registration(self, tools: Sequence[Mapping[str, object]]) -> bytes:
        """Register these tools and no others."""
        return self._post("register-tools", {"pluginType": "bench", "tools": tools, "capabilities": []})

    def update(self, modified: Mapping[str, object]) -> bytes:
        """Give the tool of this name another definition."""
        return self._post("update-tools", {"toolUpdates": {"modified": [modified]}, "reason": "benchmark"})

    def answer(self, request_id: str, result: object) -> bytes:
        """Answer a call."""
        return self._post("tool-results", {"id": request_id, "result": result})

    def stream(self) -> bytes:
        """Open the plugin's own stream."""
        return request("GET", f"/api/sessions/{self.code}/stream", {"Authorization": f"Bearer {self.token}"})

    def reading(self) -> bytes:
        """Open a client's stream."""
        return request("GET", f"/api/sessions/{self.code}/stream", CLIENT)

    def metadata(self) -> bytes:
        """Read what the session offers now, as a client."""
        return request("GET", f"/api/sessions/{self.code}/metadata", CLIENT)

    def ending(self) -> bytes:
        """End the session, as the one who made it."""
        return request("DELETE", f"/api/sessions/{self.code}", CLIENT)

    def _post(self, route: str, body: Mapping[str, object]) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}", **JSON}
        return request("POST", f"/api/sessions/{self.code}/{route}", headers, json.dumps(body).encode())
