"""Which path leads where: parameters, fixed paths first, methods, and what no route has."""

from __future__ import annotations

from types import ModuleType

import pytest
from httpx2 import AsyncClient
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.http.conftest import ALICE, ROOT, client_of

from toolplug import Host
from toolplug.http import create_app, pages
from toolplug.http.routing import routes_in

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-route-not-found")]


def code(answer: object) -> str:
    return answer.json()["error"]["code"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "path", "status", "code_"),
    [
        ("GET", "/api/sessions/AAAAAAAA/metadata", 404, "session_not_found"),
        ("GET", "/api/sessions/{code}/metadata", 400, "invalid_session_code"),
        ("GET", "/api/sessions/AAAAAAAA/tool-calls/x", 404, "session_not_found"),
        ("POST", "/v1/providers/nobody/enable", 404, "provider_not_found"),
        ("GET", "/api/toolsets/nothing", 404, "toolset_not_found"),
        ("GET", "/api/toolsets/active", 404, "no_toolset_equipped"),
    ],
)
async def test_a_path_is_found_with_its_parameters(
    client: AsyncClient, method: str, path: str, status: int, code_: str
) -> None:
    answer = await client.request(method, path, headers=ROOT)
    assert (answer.status_code, code(answer)) == (status, code_)


@pytest.mark.parametrize(
    "path",
    [
        "/api",
        "/api/",
        "/v1/tools/",
        "/v1/tools/x/y",
        "/healthz/",
        "/healthz%0A",
        "/api/sessions//metadata",
        "/api/sessions/AAAAAAAA/metadata/",
        "/api/sessions/AAAAAAAA/metadata/x",
        "/api/sessions/AAAAAAAA/nowhere",
        "/api/toolsets/",
    ],
)
async def test_a_path_that_no_route_has_is_not_found_and_never_redirected(client: AsyncClient, path: str) -> None:
    answer = await client.get(path, headers=ALICE)
    assert (answer.status_code, code(answer)) == (404, "route_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/toolsets/active", "GET"),
        ("PATCH", "/api/toolsets/one", "DELETE, GET"),
        ("PUT", "/api/sessions", "GET, POST"),
        ("HEAD", "/v1/tool-calls", "POST"),
        ("OPTIONS", "/v1/tools", "GET"),
    ],
)
async def test_a_method_that_a_path_lacks_is_refused_with_those_of_this_path_alone(
    client: AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await client.request(method, path, headers=ALICE)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_head_is_answered_as_get_without_a_body(client: AsyncClient) -> None:
    whole = await client.get("/v1/tools", headers=ALICE)
    head = await client.head("/v1/tools", headers=ALICE)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))
    refused = await client.head("/v1/tools")
    assert (refused.status_code, refused.content) == (401, b"")


async def test_a_mounted_host_answers_at_its_mount_point(host: Host) -> None:
    app = Starlette(routes=[Mount("/tools/{kind}", create_app(host))])
    async with client_of(app) as client:
        page = await client.get("/tools/a/")
        assert (page.status_code, 'href="/tools/a/v1/tools"' in page.text) == (200, True)
        assert (await client.get("/tools/a/v1/tools", headers=ALICE)).status_code == 200
        missing = await client.get("/tools/a/nowhere", headers=ALICE)
        assert (missing.status_code, code(missing)) == (404, "route_not_found")


def test_a_module_has_the_routes_it_defines_not_those_it_imports() -> None:
    module = ModuleType("elsewhere")
    vars(module).update({name: value for name, value in vars(pages).items() if name != "__name__"})
    assert routes_in(pages)
    assert routes_in(module) == ()
