"""`mount:` in a provider's entry: two instances of one routed type both serve their routes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from httpx2 import AsyncClient
from tests.host.conftest import Package
from tests.http.conftest import ALICE, client_of, settings

from toolplug import open_host
from toolplug.errors import ConfigError
from toolplug.host.file.configuration import read_configuration
from toolplug.http import create_app
from toolplug.packages.entry_points import find_installed

NOTES = """
    from prometheus_client import Counter
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from toolplug import FunctionProvider, route

    class Notes(FunctionProvider):
        @route("GET", "/v1/notes/{name}")
        async def read(self, request):
            return {"key": self.key, "name": request.path_params["name"], "root": request.scope["root_path"]}

        @route("GET", "/v1/open", public=True)
        async def open(self, request):
            return self.key

        def routes(self):
            async def plain(request):
                return JSONResponse([self.key, request.url.path])

            return [Route("/v1/plain", plain)]

        def collectors(self):
            written = Counter("notes_written", "Notes written", registry=None)
            written.inc()
            return [written]
"""
TWO = {
    "notes": {"enabled": True},
    "handbook": {"enabled": True, "type": "notes", "mount": "/handbook/de", "public_routes": True},
}


@pytest.fixture
async def client(package: Package) -> AsyncIterator[AsyncClient]:
    package("toolplug-mounted", {"notes": "mounted_mod:Notes"}, mounted_mod=NOTES)
    async with (
        open_host(settings(providers=TWO), environ={}) as host,
        client_of(create_app(host)) as opened,
    ):
        yield opened


@pytest.mark.anyio
@pytest.mark.requirement("C-1-mount")
async def test_two_instances_of_a_routed_type_serve_their_own_routes(client: AsyncClient) -> None:
    async def answer(path: str) -> object:
        answered = await client.get(path, headers=ALICE)
        return answered.json() if answered.status_code == 200 else answered.status_code

    assert await answer("/v1/notes/a") == {"key": "notes", "name": "a", "root": ""}
    mounted = {"key": "handbook", "name": "b", "root": "/handbook/de"}
    assert await answer("/handbook/de/v1/notes/b") == mounted
    assert await answer("/v1/plain") == ["notes", "/v1/plain"]
    assert await answer("/handbook/de/v1/plain") == ["handbook", "/handbook/de/v1/plain"]
    assert [await answer(path) for path in ("/handbook/v1/plain", "/de/v1/plain", "/handbook/de")] == [404, 404, 404]
    assert (await client.get("/v1/open")).status_code == 401
    assert (await client.get("/handbook/de/v1/open")).json() == "handbook"
    assert (await client.get("/handbook/de/v1/notes/b")).status_code == 401


@pytest.mark.anyio
@pytest.mark.requirement("C-1-mount", "C-5-metric-api-path")
async def test_metrics_have_the_declared_template_and_each_document_names_both_paths(client: AsyncClient) -> None:
    await client.get("/v1/notes/a", headers=ALICE)
    await client.get("/handbook/de/v1/notes/b", headers=ALICE)
    await client.post("/handbook/de/v1/notes/b", headers=ALICE)
    lines = (await client.get("/metrics")).text.splitlines()
    for provider, method, status in (("notes", "GET", 200), ("handbook", "GET", 200), ("handbook", "_other", 405)):
        labels = f'method="{method}",path="/v1/notes/{{name}}",provider="{provider}",status="{status}"'
        assert f"antwort_builtin_api_requests_total{{{labels}}} 1.0" in lines
    assert [line for line in lines if line.startswith("notes_written_total")] == [
        'notes_written_total{provider="notes"} 1.0',
        'notes_written_total{provider="handbook"} 1.0',
    ]
    paths = (await client.get("/v1/openapi.json")).json()["paths"]
    operations = {path: paths[path]["get"]["operationId"] for path in paths if path.endswith("/v1/notes/{name}")}
    assert operations["/v1/notes/{name}"] == "notes_get_v1_notes_name"
    assert operations["/handbook/de/v1/notes/{name}"] == "handbook_get_handbook_de_v1_notes_name"
    shown = (await client.get("/v1/providers", headers=ALICE)).json()["providers"][1]["routes"]
    assert shown == ["GET /handbook/de/v1/notes/{name}", "GET /handbook/de/v1/open", "GET /handbook/de/v1/plain"]


@pytest.mark.requirement("C-1-mount", "C-3-conflict-route", "C-3-reserved-route")
@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({}, {}, ("route_taken", "declares GET /v1/notes/{name}, which is a route of provider 'first'")),
        ({"mount": "/a"}, {"mount": "/a"}, ("mount_taken", "the mount '/a' is that of provider 'first'")),
        ({}, {"mount": "/api"}, ("wrong_value", "/api is a path of the host itself; choose another")),
        ({}, {"mount": "/v1/tools/x"}, ("wrong_value", "/v1/tools/x is a path of the host itself; choose another")),
        ({}, {"mount": "/mcp"}, ("wrong_value", "/mcp is a path of the host itself; choose another")),
        ({}, {"mount": "handbook"}, ("wrong_value", "")),
        ({}, {"mount": "/Handbook"}, ("wrong_value", "")),
        ({}, {"mount": "/handbook/"}, ("wrong_value", "")),
        ({}, {"mount": "/"}, ("wrong_value", "")),
        ({}, {"mount": "/a{b}"}, ("wrong_value", "")),
    ],
)
def test_a_mount_that_cannot_be_is_a_problem_of_the_file(
    package: Package, first: dict[str, str], second: dict[str, str], told: tuple[str, str]
) -> None:
    package("toolplug-mounted", {"notes": "mounted_mod:Notes"}, mounted_mod=NOTES)
    entries = {
        "first": {"enabled": True, "type": "notes", **first},
        "second": {"enabled": True, "type": "notes", **second},
    }
    with pytest.raises(ConfigError) as caught:
        read_configuration({"providers": entries, "store": "memory://"}, {}, find_installed())
    found = [problem for problem in caught.value.problems if problem.code == told[0]]
    assert found
    assert told[1] in found[0].message
    assert found[0].path.startswith("providers.second")
