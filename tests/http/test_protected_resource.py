"""How a client of MCP finds the authorization server: protected resource metadata (RFC 9728)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from httpx2 import AsyncClient, Response
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.http.conftest import ALICE, KEYS, as_holder, client_of, settings
from tests.http.test_jwt import ISSUER, SECTION, bearing, token

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-rfc9728")]

WELL_KNOWN = "/.well-known/oauth-protected-resource"
SCOPE = 'scope="tools:read tools:call"'
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@asynccontextmanager
async def served(mount: str = "", **http: object) -> AsyncIterator[AsyncClient]:
    """A client of a host that takes keys and tokens, mounted under a prefix or not."""
    given = settings(auth={**KEYS, "jwt": SECTION}, http=http)
    async with open_host(given, environ={}) as host:
        app = Starlette(routes=[Mount(mount, create_app(host))]) if mount else create_app(host)
        async with client_of(app, base_url="http://localhost:8080") as client:
            yield client


def challenge(answer: Response) -> str:
    return answer.headers["www-authenticate"]


async def test_the_metadata_name_the_resource_its_authorization_server_and_scopes(sample_package: None) -> None:
    async with served() as client:
        for path, resource in [
            (WELL_KNOWN, "http://localhost:8080"),
            (f"{WELL_KNOWN}/mcp", "http://localhost:8080/mcp"),
        ]:
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (
                200,
                {
                    "resource": resource,
                    "authorization_servers": [ISSUER],
                    "scopes_supported": ["tools:read", "tools:call"],
                    "bearer_methods_supported": ["header"],
                },
            )


async def test_a_client_of_mcp_is_led_to_the_metadata_and_told_which_scopes_it_needs(sample_package: None) -> None:
    async with served() as client:
        metadata = f'resource_metadata="http://localhost:8080{WELL_KNOWN}/mcp"'
        for credentials in ({}, as_holder("wrong"), bearing(token(aud="another"))):
            refused = await client.post("/mcp", headers=credentials, json=PING)
            assert (refused.status_code, challenge(refused)) == (401, f"Bearer {metadata}, {SCOPE}")
        lacking = await client.post("/mcp", headers=bearing(token(scope="tools:read")), json=PING)
        assert (lacking.status_code, lacking.json()["error"]["code"]) == (403, "insufficient_scope")
        assert challenge(lacking) == f'Bearer error="insufficient_scope", {metadata}, {SCOPE}'
        of_a_session = await client.post("/api/sessions/ABCDEFGH/mcp", json=PING)
        assert challenge(of_a_session) == f'Bearer resource_metadata="http://localhost:8080{WELL_KNOWN}", {SCOPE}'
        assert challenge(await client.get("/v1/tools")) == "Bearer", "no client of MCP"


@pytest.mark.parametrize("given", ["https://tools.example/plug", "https://tools.example/plug/"])
async def test_the_base_is_the_public_url_where_there_is_one(sample_package: None, given: str) -> None:
    async with served(public_url=given) as client:
        base = "https://tools.example/plug"
        assert (await client.get(f"{WELL_KNOWN}/mcp")).json()["resource"] == f"{base}/mcp"
        assert f'"{base}{WELL_KNOWN}/mcp"' in challenge(await client.post("/mcp", json=PING))
        created = await client.post("/api/sessions", headers=ALICE)
        assert created.json()["streamUrl"].startswith(f"{base}/api/sessions/")


async def test_under_a_prefix_the_prefix_is_part_of_the_resource(sample_package: None) -> None:
    async with served("/plug") as client:
        refused = await client.post("/plug/mcp", json=PING)
        url = challenge(refused).split('"')[1]
        assert (await client.get(url)).json()["resource"] == "http://localhost:8080/plug/mcp"


async def test_without_tokens_there_are_no_metadata_and_the_challenge_is_plain(client: AsyncClient) -> None:
    for path in (WELL_KNOWN, f"{WELL_KNOWN}/mcp", f"{WELL_KNOWN}/other"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")
    assert challenge(await client.post("/mcp", json=PING)) == "Bearer"
    lacking = await client.post("/mcp", headers=as_holder("reader-key"), json=PING)
    assert (lacking.status_code, "www-authenticate" in lacking.headers) == (403, False)


async def test_a_listed_page_may_read_the_metadata_and_the_challenge(sample_package: None) -> None:
    page = {"Origin": "https://page.example"}
    async with served(allowed_origins=["https://page.example"]) as client:
        found = await client.get(f"{WELL_KNOWN}/mcp", headers=page)
        assert found.headers["access-control-allow-origin"] == "https://page.example"
        refused = await client.post("/mcp", headers=page, json=PING)
        assert "WWW-Authenticate" in refused.headers["access-control-expose-headers"]
