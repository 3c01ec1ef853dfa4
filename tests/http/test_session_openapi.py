"""How `/v1/openapi.json` describes the session routes, and that it is true."""

from __future__ import annotations

from contextlib import suppress

import pytest
import schemathesis
from httpx2 import AsyncClient, Client
from hypothesis import given
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.schemas import APIOperation
from tests.http.conftest import ROOT, settings
from tests.http.served import served
from tests.http.session_plugin import tool
from tests.http.test_openapi import BOUNDS, CHECKS

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.requirement("C-5-openapi")

CALLERS = [{"bearer": []}, {"apiKey": []}]
PLUGIN = [{"pluginToken": []}]


@pytest.mark.anyio
async def test_every_session_route_says_who_may_use_it_and_what_it_answers(client: AsyncClient) -> None:
    document = (await client.get("/v1/openapi.json")).json()
    described = {
        (method.upper(), path.removeprefix("/api/sessions")): (
            operation["security"],
            operation["description"],
            sorted(status for status in operation["responses"] if status.startswith(("2", "3"))),
        )
        for path, item in document["paths"].items()
        if path.startswith("/api/sessions")
        for method, operation in item.items()
    }
    reads = "Needs the scope `tools:read`."
    writes = "Needs the scope `sessions:write`."
    plugin = "For the session's plugin."
    either = "For the session's plugin; a caller needs the scope `tools:read`."
    assert described == {
        ("POST", ""): (CALLERS, writes, ["201"]),
        ("GET", ""): (CALLERS, reads, ["200"]),
        ("DELETE", "/{code}"): (CALLERS, writes, ["204"]),
        ("POST", "/{code}/register-tools"): (PLUGIN, plugin, ["201"]),
        ("POST", "/{code}/update-tools"): (PLUGIN, plugin, ["200"]),
        ("GET", "/{code}/metadata"): ([*CALLERS, *PLUGIN], either, ["200", "304"]),
        ("GET", "/{code}/prompt"): ([*CALLERS, *PLUGIN], either, ["200"]),
        ("GET", "/{code}/stream"): ([*CALLERS, *PLUGIN], either, ["200"]),
        ("GET", "/{code}/events"): (CALLERS, reads, ["200"]),
        ("POST", "/{code}/tool-calls"): (CALLERS, "Needs the scope `tools:call`.", ["200", "202"]),
        ("GET", "/{code}/tool-calls/{id}"): (CALLERS, reads, ["200"]),
        ("POST", "/{code}/tool-results"): (PLUGIN, plugin, ["200"]),
        ("POST", "/{code}/heartbeat"): (PLUGIN, plugin, ["200"]),
        ("POST", "/{code}/mcp"): (CALLERS, "Needs the scope `tools:call`.", ["200", "202"]),
        ("GET", "/{code}/mcp"): (CALLERS, "Needs the scope `tools:call`.", ["200"]),
        ("DELETE", "/{code}/mcp"): (CALLERS, "Needs the scope `tools:call`.", ["204"]),
    }
    assert set(document["components"]["securitySchemes"]) == {"bearer", "apiKey", "pluginToken"}


@pytest.mark.long(40)
@pytest.mark.judge
@pytest.mark.timeout(1200)
def test_whatever_an_application_sends_is_answered_as_the_document_says(sample_package: None) -> None:
    limits = {"max_updates_per_minute": 100_000, "max_sessions": 100_000, "grace": "1ms"}
    host = open_host(settings(sessions=limits), environ={})
    with served(host, create_app(host)) as port, Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        created = client.post("/api/sessions", headers=ROOT).json()
        token = {"Authorization": f"Bearer {created['pluginToken']}"}
        place = f"/api/sessions/{created['code']}"
        client.post(f"{place}/register-tools", headers=token, json={"pluginType": "table", "tools": [tool("add")]})
        schema = schemathesis.openapi.from_url(f"{client.base_url}/v1/openapi.json")
        found = [result.ok() for result in schema.get_all_operations()]
        for operation in found:
            if operation.path.startswith("/api/sessions/") and not _closes_or_stays(operation):
                of_plugin = operation.definition.raw["security"] == PLUGIN
                for mode in GenerationMode:
                    _exercise(operation, mode, created["code"], token if of_plugin else ROOT)
        assert client.get(f"{place}/metadata", headers=token).status_code == 200


def _closes_or_stays(operation: APIOperation) -> bool:
    return operation.method.upper() == "DELETE" or operation.path.endswith("/stream")


def _exercise(operation: APIOperation, mode: GenerationMode, code: str, headers: dict[str, str]) -> None:
    """Call one operation of this session with what fits its description, or with what does not."""

    @BOUNDS
    @given(case=operation.as_strategy(generation_mode=mode))
    def exercised(case: Case) -> None:
        case.path_parameters = {**(case.path_parameters or {}), "code": code}
        case.call_and_validate(headers=headers, checks=CHECKS)

    with suppress(Unsatisfiable):
        exercised()
