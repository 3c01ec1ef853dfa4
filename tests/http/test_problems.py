"""Every error has one shape, and its type follows from its status."""

from __future__ import annotations

import ast
import json

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE, ROOT, as_holder
from tests.project.sources import sources

from toolplug.http.errors import STATUS, HttpProblem
from toolplug.http.tools import TOO_MANY_WAITING

pytestmark = pytest.mark.anyio

TYPES = {
    "invalid_request": (400, 401, 405, 406, 413, 415, 421, 422, 431),
    "forbidden": (403,),
    "not_found": (404, 410),
    "conflict": (409, 412),
    "too_many_requests": (429,),
    "server_error": (500, 503),
    "model_error": (502,),
}


@pytest.mark.requirement("C-5-error-types")
@pytest.mark.parametrize(("type_", "status"), [(kind, status) for kind, some in TYPES.items() for status in some])
def test_the_type_of_an_error_follows_from_its_status(type_: str, status: int) -> None:
    body = json.loads(HttpProblem(status, "code", "message", param="field").body("r-1"))
    assert body == {
        "error": {"type": type_, "code": "code", "message": "message", "param": "field", "request_id": "r-1"}
    }


def test_every_code_of_an_api_error_has_a_status() -> None:
    classes = {"ApiError", "ResponseRefused", "BackendFailed"}
    calls = [
        node.args[0]
        for source in sources("src/toolplug/**/*.py")
        if any(f"{name}(" in source.text for name in classes)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes
        if not (isinstance(node.args[0], ast.Name) and node.args[0].id == "code")  # of another error
    ]
    named = {TOO_MANY_WAITING: "TOO_MANY_WAITING"}
    codes = {ast.literal_eval(code) for code in calls if ast.unparse(code) not in named.values()} | {*named}
    assert codes == set(STATUS)


@pytest.mark.requirement("C-5-error-shape", "C-5-error-types")
@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("GET", "/v1/tools", {}, 401, "authentication_required"),
        ("GET", "/v1/tools?format=x", ALICE, 400, "invalid_request"),
        ("POST", "/v1/reload", ALICE, 403, "insufficient_scope"),
        ("GET", "/v1/tools?agent=x", as_holder("one-agent-key"), 403, "agent_not_allowed"),
        ("GET", "/v1/tools?session=x", ALICE, 400, "invalid_session_code"),
        ("GET", "/v1/tools?session=AAAAAAAA", ALICE, 404, "session_not_found"),
        ("GET", "/nowhere", {}, 404, "route_not_found"),
        ("POST", "/v1/providers/nobody/enable", ROOT, 404, "provider_not_found"),
        ("PUT", "/v1/tools", {}, 405, "method_not_allowed"),
        ("PUT", "/v1/samples", {}, 405, "method_not_allowed"),
        ("POST", "/v1/tool-calls", {**ALICE, "Content-Type": "text/plain"}, 415, "unsupported_media_type"),
        ("GET", "/healthz", {"Host": "evil.example"}, 421, "host_not_allowed"),
        ("GET", "/healthz", {"X-Big": "x" * 33_000}, 431, "headers_too_large"),
        ("GET", "/v1/broken/raises", ALICE, 500, "internal"),
        ("GET", "/v1/broken/store", ALICE, 503, "store_unavailable"),
    ],
)
async def test_each_error_has_its_status_code_and_request_id(
    client: AsyncClient, method: str, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    answer = await client.request(method, path, headers={**headers, "X-Request-Id": "mine"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert set(error) == {"type", "code", "message", "param", "request_id"}
    assert error["request_id"] == answer.headers["x-request-id"] == "mine"
    assert status in TYPES[error["type"]]
    assert error["message"]


@pytest.mark.requirement("C-5-foreign-404", "H-trust-one-answer")
async def test_what_belongs_to_others_and_what_is_not_there_answer_alike(client: AsyncClient) -> None:
    answers = [
        await client.get(f"/v1/tools?session={code}", headers={**ALICE, "X-Request-Id": "same"})
        for code in ("ABCDEFGH", "HGFEDCBA")
    ]
    assert answers[0].content == answers[1].content
