"""`/v1/openapi.json`: everything merged, valid, and true."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import get_type_hints

import jsonschema_rs
import pytest
import schemathesis
from httpx2 import AsyncClient
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.http.conftest import ROOT, settings
from tests.http.served import served

from toolplug import open_host
from toolplug.host.file.part_sections import built_in
from toolplug.http import create_app
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.routes import described_routes

pytestmark = pytest.mark.anyio

WRITTEN_BY_HAND = {
    "call_tool",
    "call_in_session",
    "call_operation",
    "call_chosen_operation",
    "list_tools",
    "show_catalog",
    "session_metadata",
    "create_response",
    "create_chat_completion",
    "read_response",
    "cancel_response",
    "export_toolset",
}
"""Handlers whose answer is bytes already: the hot paths, and texts that the host keeps."""


def test_every_handler_returns_what_the_document_describes() -> None:
    described = {route.operation: route for route in described_routes(built_in()) if route.answered.model is not None}
    assert set(described) > WRITTEN_BY_HAND
    for name in set(described) - WRITTEN_BY_HAND:
        returned = get_type_hints(described[name].endpoint)["return"]
        assert returned == OrjsonResponse[described[name].answered.model], name


@pytest.mark.requirement("C-5-openapi")
async def test_the_document_names_every_route_of_the_host_and_of_the_providers(client: AsyncClient) -> None:
    document = (await client.get("/v1/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    named = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert named >= {
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/"),
        ("GET", "/toolplug.js"),
        ("GET", "/v1/openapi.json"),
        ("GET", "/openapi.json"),
        ("GET", "/v1/tools"),
        ("POST", "/v1/tool-calls"),
        ("POST", "/v1/tools/{name}"),
        ("GET", "/v1/providers"),
        ("POST", "/v1/providers/{key}/enable"),
        ("POST", "/v1/providers/{key}/disable"),
        ("POST", "/v1/reload"),
        ("GET", "/v1/explain"),
        ("GET", "/v1/samples"),
        ("GET", "/v1/samples/{name}"),
        ("DELETE", "/v1/samples/{name}"),
        ("PUT", "/v1/plain/{rest}"),
    }
    assert document["paths"]["/v1/open"]["get"]["security"] == []
    assert document["paths"]["/v1/samples"]["get"]["security"] == [{"bearer": []}, {"apiKey": []}]
    removed = document["paths"]["/v1/samples/{name}"]["delete"]
    assert removed["parameters"] == [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}
    ]
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.requirement("C-5-openapi")
async def test_every_schema_in_the_document_is_valid_and_every_reference_leads_somewhere(client: AsyncClient) -> None:
    text = (await client.get("/v1/openapi.json")).text
    document = json.loads(text)
    schemas = document["components"]["schemas"]
    for name in schemas:
        whole = {**schemas[name], "components": document["components"]}
        jsonschema_rs.validator_for(whole)
        assert f"#/components/schemas/{name}" in text
        for field in schemas[name].get("properties", {}).values():
            if "default" in field:
                jsonschema_rs.validate({**field, "components": document["components"]}, field["default"])
    parts = text.split('"$ref":"#/components/schemas/')[1:]
    assert {part.partition('"')[0] for part in parts} <= set(schemas)


@pytest.mark.requirement("C-5-openapi")
async def test_the_document_follows_the_providers(client: AsyncClient) -> None:
    before = (await client.get("/v1/openapi.json")).json()["paths"]
    await client.post("/v1/providers/sample/disable", headers=ROOT)
    without = (await client.get("/v1/openapi.json")).json()["paths"]
    assert "/v1/samples" in before
    assert [path for path in without if path.startswith(("/v1/samples", "/v1/plain")) or path == "/v1/open"] == []
    assert set(without) < set(before)


CHECKS = [status_code_conformance, response_schema_conformance, content_type_conformance]
NOT_SUPPORTED = {"/v1/responses/input_tokens", "/v1/responses/compact"}
"""Operations of OpenAI that the host does not have: they answer 501, and say so in the document."""
BOUNDS = bounds(max_examples=6, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.long(80)
@pytest.mark.judge
@pytest.mark.timeout(1200)
@pytest.mark.requirement("C-5-openapi", "C-5-calls-4xx")
def test_whatever_is_sent_is_answered_as_the_document_says(sample_package: None) -> None:
    host = open_host(settings(), environ={})
    with served(host, create_app(host)) as port:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/v1/openapi.json").include(tag="toolplug")
        operations = [result.ok() for result in schema.get_all_operations()]
        described = {f"{route.method} {route.path.replace(':path}', '}')}" for route in described_routes(built_in())}
        assert {operation.label for operation in operations} >= described
        for operation in operations:
            for mode in GenerationMode:
                _exercise(operation, mode)


def _exercise(operation: APIOperation, mode: GenerationMode) -> None:
    """Call one operation with what fits its description, or with what does not."""

    @BOUNDS
    @given(case=operation.as_strategy(generation_mode=mode))
    def exercised(case: Case) -> None:
        answer = case.call_and_validate(headers=ROOT, checks=CHECKS)
        assert answer.status_code < 500 or (answer.status_code == 501 and operation.path in NOT_SUPPORTED)

    with suppress(Unsatisfiable):
        exercised()


@pytest.mark.requirement("C-5-openapi")
async def test_parameters_bodies_and_answers_are_described_as_they_are_taken(client: AsyncClient) -> None:
    paths = (await client.get("/v1/openapi.json")).json()["paths"]

    def pattern(method: str, path: str, name: str) -> str | None:
        found = next(item for item in paths[path][method]["parameters"] if item["name"] == name)
        return found["schema"].get("pattern")

    code = "^[A-Z2-7]{8}$"
    for path in (path for path in paths if "{code}" in path):
        assert all(pattern(method, path, "code") == code for method in paths[path]), path
    for path in ("/v1/tools", "/api/catalog", "/api/toolsets"):
        assert pattern("get", path, "session") == code
    assert pattern("get", "/api/toolsets/{name}", "name") == "^[a-z0-9-]{2,50}$"
    assert pattern("get", "/api/mcp-servers/{id}", "id") == "^[a-z][a-z0-9_-]{0,63}$"
    assert pattern("post", "/v1/providers/{key}/enable", "key") == "^[a-z][a-z0-9_]{0,63}$"
    assert paths["/api/sessions"]["post"]["requestBody"]["required"] is False
    assert paths["/v1/tool-calls"]["post"]["requestBody"]["required"] is True
    export = paths["/api/toolsets/{name}/export"]["get"]["responses"]["200"]["content"]
    assert export["application/yaml"] == export["application/json"], "the same document in another form"
    stream = paths["/api/sessions/{code}/stream"]["get"]["responses"]["200"]["content"]
    assert stream == {"text/event-stream": {}}
