"""Servers that want a token, which is fetched by client credentials and kept in memory."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.mcp.client.conftest import nobody
from tests.mcp.client.hostile_http import sane
from tests.mcp.client.serving import serving

from toolplug.execution.egress import Egress
from toolplug.mcp.connection import ConnectionFailed
from toolplug.mcp.sdk.client import connector
from toolplug.mcp.server_config import ClientCredentials, Endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

SECRET = "s3cret-of-the-client"


class Guarded:
    """An MCP server and its authorization server. `issuer` is the one that it names, `good` the token that it takes."""

    def __init__(self) -> None:
        self.issuer = ""
        self.good = "token-1"
        self.fetched: list[dict[str, object]] = []
        self.app = Starlette(
            routes=[
                Route("/mcp", self.mcp, methods=["GET", "POST"]),
                Route("/.well-known/oauth-protected-resource/mcp", self.resource),
                Route("/.well-known/oauth-authorization-server", self.metadata),
                Route("/token", self.token, methods=["POST"]),
            ]
        )

    async def mcp(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.good}":
            where = request.url.replace(path="/.well-known/oauth-protected-resource/mcp")
            return Response(status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where}"'})
        if request.method == "GET":
            return Response(status_code=405)
        message = await request.json()
        return JSONResponse(sane(message)) if "id" in message else Response(status_code=202)

    async def resource(self, request: Request) -> Response:
        url = str(request.url.replace(path="/mcp"))
        return JSONResponse({"resource": url, "authorization_servers": [self.issuer]})

    async def metadata(self, request: Request) -> Response:
        endpoints = {"authorization_endpoint": f"{self.issuer}/authorize", "token_endpoint": f"{self.issuer}/token"}
        methods = {
            "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }
        return JSONResponse({"issuer": self.issuer, **endpoints, **methods})

    async def token(self, request: Request) -> Response:
        given = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        self.fetched.append({**dict(await request.form())})
        if given != f"us:{SECRET}":
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        return JSONResponse({"access_token": f"token-{len(self.fetched)}", "token_type": "Bearer", "expires_in": 3600})


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


@pytest.fixture
async def url(guarded: Guarded) -> AsyncIterator[str]:
    async with serving(guarded.app) as port:
        guarded.issuer = f"http://127.0.0.1:{port}"
        yield f"http://127.0.0.1:{port}/mcp"


def endpoint(url: str, secret: str = SECRET, issuer: str | None = None) -> Endpoint:
    return Endpoint(
        url=url,
        oauth=ClientCredentials(client_id="us", client_secret=secret, scope="tools", issuer=issuer),
        trusted=True,
    )


@pytest.mark.parametrize("named", [False, True], ids=["any issuer", "the named issuer"])
async def test_a_token_is_fetched_once_and_kept_for_the_next_connection(
    tmp_path: Path, guarded: Guarded, url: str, named: bool
) -> None:
    connect = connector(Egress(), tmp_path)
    wanted = endpoint(url, issuer=guarded.issuer if named else None)
    for _ in range(2):
        async with connect(wanted, nobody) as connection:
            assert len(await connection.tools()) == 2
    assert guarded.fetched == [{"grant_type": "client_credentials", "resource": url, "scope": "tools"}]


async def test_a_token_that_is_no_longer_taken_is_fetched_again(tmp_path: Path, guarded: Guarded, url: str) -> None:
    async with connector(Egress(), tmp_path)(endpoint(url), nobody) as connection:
        guarded.good = "token-2"
        assert len(await connection.tools()) == 2
    assert len(guarded.fetched) == 2


async def test_credentials_that_are_refused_are_said_to_be_without_the_secret(
    tmp_path: Path, guarded: Guarded, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConnectionFailed, match="it refuses our credentials") as failed:
        async with connector(Egress(), tmp_path)(endpoint(url, "wr0ng-secret"), nobody):
            pass
    assert "wr0ng" not in f"{failed.value}{caplog.text}"


async def test_a_token_that_is_never_taken_is_a_refusal_too(tmp_path: Path, guarded: Guarded, url: str) -> None:
    guarded.good = "another"
    with pytest.raises(ConnectionFailed, match=r"it refuses our credentials \(HTTP 401 Unauthorized\)"):
        async with connector(Egress(), tmp_path)(endpoint(url), nobody):
            pass


@pytest.mark.requirement("H-trust-urls", "C-2-operator-url")
async def test_a_trusted_server_cannot_lend_its_trust_to_who_gives_the_tokens(
    tmp_path: Path, guarded: Guarded, url: str
) -> None:
    guarded.issuer = guarded.issuer.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(ConnectionFailed, match=r"'127\.0\.0\.2' has an address which is not public"):
        async with connector(Egress(), tmp_path)(endpoint(url), nobody):
            pass


async def test_credentials_go_to_no_other_issuer_than_the_named_one(tmp_path: Path, guarded: Guarded, url: str) -> None:
    wanted = endpoint(url, issuer=guarded.issuer)
    guarded.issuer = guarded.issuer.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(ConnectionFailed):
        async with connector(Egress(("loopback",)), tmp_path)(wanted, nobody):
            pass
    assert guarded.fetched == []
