"""The provider of CONTRACT.md section 12, to the letter, in a package of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package
from tests.http.conftest import client_of

from toolplug import expand_builtin_tools, open_host
from toolplug.http import create_app

Write = Callable[[str], Path]

PROVIDER = '''\
from typing import Annotated
from prometheus_client import Counter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse
from toolplug import CallContext, FunctionProvider, ToolError, route, tool

class Notes(FunctionProvider):
    """Keeps short notes, one list a tenant."""

    class Config(BaseModel):
        limit: int = Field(100, ge=1, description="notes kept for each tenant")

    async def start(self, site):
        self.notes: dict[str, list[str]] = {}
        self.written = Counter("notes_written", "Notes written", registry=None)

    def collectors(self):
        return [self.written]

    @tool
    async def add_note(self, text: Annotated[str, Field(max_length=500)], context: CallContext) -> int:
        """Write one note and return how many there are."""
        mine = self.notes.setdefault(context.principal.tenant, [])
        if len(mine) >= self.config.limit:
            raise ToolError(f"{self.config.limit} notes are kept already; delete one first")
        mine.append(text)
        self.written.inc()
        return len(mine)

    @tool(read_only=True, stub="notes")
    async def find_notes(self, query: str, context: CallContext) -> list[str]:
        """Find the notes that contain the query."""
        return [note for note in self.notes.get(context.principal.tenant, []) if query in note]

    @route("GET", "/v1/notes", scope="notes:read")
    async def list_notes(self, request):
        return JSONResponse(self.notes.get(request.state.tenant, []))
'''
FILE = """
    providers: {notes: {enabled: true, limit: 1}}
    auth:
      api_keys:
        - {key: alice, subject: alice, tenant: t1, scopes: [tools:read, tools:call, "notes:read"]}
        - {key: bob, subject: bob, tenant: t2}
"""
ALICE, BOB = {"X-API-Key": "alice"}, {"X-API-Key": "bob"}
ADD_NOTE = {
    "name": "add_note",
    "description": "Write one note and return how many there are.",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 500}},
        "required": ["text"],
        "additionalProperties": False,
    },
}
FIND_NOTES = {
    "name": "find_notes",
    "description": "Find the notes that contain the query.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
        "additionalProperties": False,
    },
}


@pytest.mark.anyio
@pytest.mark.requirement("C-12-example-provider", "C-12-route-tenant", "FR-016", "SC-001")
async def test_the_documented_provider_runs_as_it_stands(package: Package, config: Write) -> None:
    package("toolplug-notes", {"notes": "documented_notes:Notes"}, documented_notes=PROVIDER)
    async with open_host(config(FILE), environ={}) as host, client_of(create_app(host)) as client:

        async def called(who: dict[str, str], name: str, **arguments: str) -> tuple[str, str]:
            body = {"name": name, "arguments": arguments}
            answer = (await client.post("/v1/tool-calls", headers=who, json=body)).json()
            return answer["status"], answer["output"]

        listed = (await client.get("/v1/tools", headers=ALICE)).json()["tools"]
        assert [entry["function"] for entry in listed] == [ADD_NOTE, FIND_NOTES]
        assert expand_builtin_tools([{"type": "notes"}], host.registry).tools == listed[1:]
        assert await called(ALICE, "add_note", text="otters") == ("success", "1")
        full = ("tool_error", "1 notes are kept already; delete one first")
        assert await called(ALICE, "add_note", text="seals") == full
        assert (await called(BOB, "add_note", text="x" * 501))[0] == "invalid_arguments"
        assert await called(ALICE, "find_notes", query="ott") == ("success", '["otters"]')
        assert await called(BOB, "find_notes", query="ott") == ("success", "[]")
        assert (await client.get("/v1/notes", headers=ALICE)).json() == ["otters"]
        assert (await client.get("/v1/notes", headers=BOB)).status_code == 403
        assert (await client.get("/v1/notes")).status_code == 401
        assert "\nnotes_written_total 1.0\n" in (await client.get("/metrics")).text
