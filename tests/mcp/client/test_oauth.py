"""Servers that want a token, which is fetched by client credentials and kept in memory."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from httpx2 import AsyncClient, ConnectError
from httpx2 import Request as HttpRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.mcp.client.conftest import nobody
from tests.mcp.client.hostile_http import sane
from tests.mcp.client.serving import serving

from toolplug.net.egress import Egress
from toolplug.parts.mcp.client.connection import ConnectionFailed
from toolplug.parts.mcp.client.server_config import ClientCredentials, Endpoint
from toolplug.parts.mcp.sdk.client import connector
from toolplug.parts.mcp.sdk.oauth import ServerToken

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

SECRET = "s3cret-of-the-client"


class Guarded:
    """An MCP server and its authorization server. `issuer` is the one that it names, `good` the token that it takes."""

    def __init__(self) -> None:
        self.issuer = ""
        self.good = "token-1"
        self.fetched: list[dict[str, object]] = []
        self.sent: list[str | None] = []
        self.lives_s: float = 3600
        self.takes_s = 0.0
        self.more: dict[str, object] = {}
        self.says: dict[str, object] = {}
        self.refusal: dict[str, str] = {"error": "invalid_client"}
        self.app = Starlette(
            routes=[
                Route("/mcp", self.mcp, methods=["GET", "POST"]),
                Route("/.well-known/oauth-protected-resource/mcp", self.resource),
                Route("/.well-known/oauth-authorization-server", self.metadata),
                Route("/token", self.token, methods=["POST"]),
            ]
        )

    async def mcp(self, request: Request) -> Response:
        self.sent.append(request.headers.get("authorization"))
        if request.headers.get("authorization") != f"Bearer {self.good}":
            where = request.url.replace(path="/.well-known/oauth-protected-resource/mcp")
            return Response(status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where}"'})
        if request.method == "GET":
            return Response(status_code=405)
        message = await request.json()
        return JSONResponse(sane(message)) if "id" in message else Response(status_code=202)

    async def resource(self, request: Request) -> Response:
        url = str(request.url.replace(path="/mcp"))
        return JSONResponse({"resource": url, "authorization_servers": [self.issuer], **self.says})

    async def metadata(self, request: Request) -> Response:
        endpoints = {"authorization_endpoint": f"{self.issuer}/authorize", "token_endpoint": f"{self.issuer}/token"}
        methods = {
            "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }
        return JSONResponse({"issuer": self.issuer, **endpoints, **methods, **self.says})

    async def token(self, request: Request) -> Response:
        given = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        self.fetched.append({**dict(await request.form())})
        if given != f"us:{SECRET}":
            return JSONResponse(self.refusal, status_code=401)
        token = f"token-{len(self.fetched)}"
        await asyncio.sleep(self.takes_s)
        return JSONResponse({"access_token": token, "token_type": "Bearer", "expires_in": self.lives_s, **self.more})


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


@pytest.mark.parametrize("life_s", [60.5, "60", None, "soon", -5])
async def test_answers_are_read_as_issuers_write_them(
    tmp_path: Path, guarded: Guarded, url: str, life_s: object
) -> None:
    guarded.more = {"expires_in": life_s, "scope": ["tools"], "refresh_token": None, "token_type": "bearer"}
    guarded.says = {"scopes_supported": "tools", "jwks_uri": 5, "grant_types_supported": None}
    async with connector(Egress(), tmp_path)(endpoint(url), nobody) as connection:
        assert len(await connection.tools()) == 2
    assert len(guarded.fetched) == 1


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


@pytest.mark.parametrize("status", [200, 401])
async def test_the_words_of_the_token_endpoint_are_in_no_log(
    tmp_path: Path, guarded: Guarded, url: str, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    guarded.refusal = {"error": "invalid_client", "error_description": f"us:{SECRET}x is not known"}
    if status == 200:
        guarded.app.router.routes[-1] = Route(
            "/token", lambda _: JSONResponse({"given": f"{SECRET}x"}), methods=["POST"]
        )
    with caplog.at_level(logging.DEBUG), pytest.raises(ConnectionFailed, match="it refuses our credentials") as failed:
        async with connector(Egress(), tmp_path)(endpoint(url, f"{SECRET}x"), nobody):
            pass
    logged = "\n".join([str(failed.value), *(logging.Formatter().format(record) for record in caplog.records)])
    assert "not known" not in logged
    assert SECRET not in logged


@pytest.mark.requirement("C-2-oauth")
async def test_whoever_needs_a_token_at_once_waits_for_the_same_one(tmp_path: Path, guarded: Guarded, url: str) -> None:
    connect = connector(Egress(), tmp_path)
    async with connect(endpoint(url), nobody) as one, connect(endpoint(url), nobody) as two:
        assert len(guarded.fetched) == 1
        guarded.good, guarded.takes_s = "token-2", 0.2
        calls = [connection.call("echo", {}, None) for connection in (one, two) for _ in range(25)]
        assert len(await asyncio.gather(*calls)) == 50
    assert len(guarded.fetched) == 2


@pytest.mark.requirement("C-2-oauth")
async def test_a_token_is_renewed_before_it_expires_and_nobody_waits_for_that(guarded: Guarded, url: str) -> None:
    now, sent = 0.0, []
    token = ServerToken(url, endpoint(url).oauth, clock=lambda: now)  # type: ignore[arg-type]
    guarded.lives_s = 100
    async with AsyncClient() as http:

        async def send(request: Request) -> Response:
            sent.append(str(request.url))
            return await http.send(request)

        request = HttpRequest("POST", url, json={})
        refused = await http.send(request)
        assert await token.after(None, request, refused, send) == "token-1"
        now = 79.0
        assert (await token.current(send), len(guarded.fetched)) == ("token-1", 1)
        now, guarded.takes_s = 80.0, 0.2
        asked = len(sent)
        renewing = asyncio.create_task(token.current(send))
        while len(guarded.fetched) == 1:
            await asyncio.sleep(0)
        assert await token.current(send) == "token-1", "it still holds"
        assert await renewing == "token-2"
        assert sent[asked:] == [f"{guarded.issuer}/token"], (
            "what is known of the authorization server is not asked again"
        )
        guarded.issuer = "http://127.0.0.1:9"
        now = 80.0 + 101
        renewals = await asyncio.gather(*(token.current(send) for _ in range(10)))
        assert set(renewals) == {"token-3"}, "one that has expired is waited for, by all"
    assert len(guarded.fetched) == 3


@pytest.mark.requirement("C-2-oauth")
async def test_a_renewal_that_fails_leaves_a_token_that_holds(guarded: Guarded, url: str) -> None:
    now = 0.0
    token = ServerToken(url, endpoint(url).oauth, clock=lambda: now)  # type: ignore[arg-type]
    guarded.lives_s = 100
    async with AsyncClient() as http:
        request = HttpRequest("POST", url, json={})
        await token.after(None, request, await http.send(request), http.send)

        async def down(request: Request) -> Response:
            attempts.append(now)
            raise ConnectError("down")

        attempts: list[float] = []
        for now in (80.0, 85.0, 91.0):  # noqa: B007
            assert await token.current(down) == "token-1"
        assert attempts == [80.0, 91.0]


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


async def test_a_wrong_issuer_is_no_refusal_of_the_credentials(tmp_path: Path, guarded: Guarded, url: str) -> None:
    wrong = endpoint(url, issuer=f"{guarded.issuer}/elsewhere")
    with pytest.raises(ConnectionFailed) as failed:
        async with connector(Egress(("loopback",)), tmp_path)(wrong, nobody):
            pass
    assert str(failed.value).startswith("our credentials were not sent: ")
    assert str(failed.value).endswith("; check its url and oauth.issuer")
    assert guarded.fetched == []
