"""An API whose OpenAPI document says where its users sign in: callers act as themselves with no issuer in the file."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyHttpUrl, AnyUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.credentials.oauth_server import Accounts
from tests.credentials.test_sign_in import KEYS, browser, press
from tests.http.served import serving_apart
from tests.kept_port import kept_port

from toolplug import FunctionProvider, SignInEndpoints, open_host, tool
from toolplug.catalog.call import CallContext
from toolplug.errors import ConfigError

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("I38-document-endpoints")]

LIFE = {"type": "oauth2", "flows": {"authorizationCode": {"authorizationUrl": "/authorize", "tokenUrl": "/token"}}}
CLIENT = {"id": "crm", "secret": "crm-secret"}


class ApiWithUsers:
    """An API with users, its own authorization server, and its document; `refreshed_at` are the paths of renewals."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.accounts = Accounts()
        self.schemes: dict[str, object] = {"signed_in": LIFE}
        self.refreshed_at: list[str] = []
        self.accounts.clients["crm"] = OAuthClientInformationFull(
            client_id=CLIENT["id"],
            client_secret=CLIENT["secret"],
            redirect_uris=[AnyUrl("http://127.0.0.1:8080/connect/callback")],
            token_endpoint_auth_method="client_secret_basic",
            grant_types=["authorization_code", "refresh_token"],
            scope="read write",
        )

    async def describe(self, request: Request) -> Response:
        """Answer the document."""
        needs = [{name: ["read"]} for name in list(self.schemes)[:1]]
        look = {"operationId": "me", "security": needs, "responses": {"200": {"description": "who"}}}
        return JSONResponse(
            {
                "openapi": "3.1.0",
                "info": {"title": "crm", "version": "1"},
                "paths": {"/me": {"get": look}},
                "components": {"securitySchemes": self.schemes},
            }
        )

    async def me(self, request: Request) -> Response:
        """Answer whose the token is."""
        token = await self.accounts.load_access_token(request.headers.get("authorization", "").removeprefix("Bearer "))
        return JSONResponse({"me": token.subject}) if token is not None else JSONResponse({}, 401)

    def app(self) -> Starlette:
        """Return the API with its authorization server; new tokens are given at another path, too."""
        options = ClientRegistrationOptions(enabled=False), RevocationOptions(enabled=False)
        routes = create_auth_routes(self.accounts, AnyHttpUrl(self.origin), None, *options)  # pyright: ignore[reportArgumentType]
        (given,) = [each for each in routes if each.path == "/token"]

        async def renew(scope: Any, receive: Any, send: Any) -> None:
            self.refreshed_at.append(scope["path"])
            await given.app(scope, receive, send)

        class Renewal:
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                await renew(scope, receive, send)

        own = [Route("/openapi.json", self.describe), Route("/me", self.me)]
        return Starlette(routes=[*routes, *own, Route("/renew", Renewal(), methods=["POST"])])


@contextmanager
def serving_api() -> Iterator[ApiWithUsers]:
    with kept_port() as port:
        api = ApiWithUsers(f"http://127.0.0.1:{port}")
        with serving_apart(api.app(), port=port):
            yield api


@pytest.fixture
def api() -> Iterator[ApiWithUsers]:
    with serving_api() as found:
        yield found


def settings(api: ApiWithUsers, tmp_path: Path, oauth: Mapping[str, object], **more: Any) -> dict[str, Any]:
    document = f"{api.origin}/openapi.json"
    entry = {"type": "openapi", "enabled": True, "document": document, "user_auth": {"oauth": dict(oauth)}, **more}
    return {
        "store": f"sqlite:///{tmp_path}/state.db",
        "auth": {"api_keys": KEYS},
        "http": {"allowed_hosts": ["127.0.0.1"]},
        "egress": {"allow": ["loopback"]},
        "providers": {"crm": entry},
    }


@asynccontextmanager
async def hosting(config: dict[str, Any]) -> AsyncGenerator[AsyncClient]:
    async with open_host(config, environ={}) as host, browser(host) as client:
        yield client


async def call(client: AsyncClient, who: str, name: str = "me") -> dict[str, Any]:
    headers = {"authorization": f"Bearer {who}-key"}
    return (await client.post("/v1/tool-calls", json={"name": name, "arguments": {}}, headers=headers)).json()


async def sign_in(client: AsyncClient, api: ApiWithUsers, who: str) -> int:
    api.accounts.user = who
    link = (await call(client, who))["metadata"]["sign_in"]["url"]
    return (await press(client, link)).status_code


async def test_callers_sign_in_where_the_document_says(api: ApiWithUsers, tmp_path: Path) -> None:
    async with hosting(settings(api, tmp_path, {"client": CLIENT})) as client:
        needed = await call(client, "ada")
        assert (needed["status"], needed["metadata"]["code"]) == ("unavailable", "sign_in_needed")
        assert await sign_in(client, api, "ada") == 200
        assert api.accounts.asked[0].scopes == ["read"], "those that the operations need"
        client.cookies.clear()
        assert await sign_in(client, api, "ben") == 200
        assert [(await call(client, who))["structured"] for who in ("ada", "ben")] == [{"me": "ada"}, {"me": "ben"}]

        headers = {"authorization": "Bearer ada-key"}
        (shown,) = (await client.get("/v1/connections", headers=headers)).json()["connections"]
        assert (shown["connected"], shown["issuer"], shown["scopes"]) == (True, f"{api.origin}/token", ["read"])
        gone = (await client.delete("/v1/connections/crm", headers=headers)).json()
        assert gone == {"server": "crm", "connected": False, "revoked": False}, "a document names no such endpoint"
        made = (await client.post("/v1/connections/crm", headers=headers)).json()
        api.accounts.user = "ada"
        assert (await press(client, made["url"])).status_code == 200
        assert (await call(client, "ada"))["structured"] == {"me": "ada"}


async def test_new_tokens_come_from_where_the_document_says(api: ApiWithUsers, tmp_path: Path) -> None:
    flow = {"authorizationUrl": f"{api.origin}/authorize", "tokenUrl": f"{api.origin}/token", "refreshUrl": "/renew"}
    api.schemes = {"signed_in": {"type": "oauth2", "flows": {"authorizationCode": flow}}}
    async with hosting(settings(api, tmp_path, {"client": CLIENT, "scopes": ["write"]})) as client:
        assert await sign_in(client, api, "ada") == 200
        assert api.accounts.asked[0].scopes == ["write"], "those of the file"
        assert api.refreshed_at == []
        api.accounts.expire()
        assert (await call(client, "ada"))["structured"] == {"me": "ada"}
        assert api.refreshed_at == ["/renew"]


async def test_a_reload_with_other_endpoints_sends_no_former_token_there(api: ApiWithUsers, tmp_path: Path) -> None:
    file, config = tmp_path / "tools.yaml", settings(api, tmp_path, {"client": CLIENT})
    config["auth"]["api_keys"] = [*KEYS, {"key": "operator-key", "subject": "root", "scopes": ["admin", "operator"]}]
    file.write_text(json.dumps(config), "utf-8")
    async with open_host(file, environ={}) as host, browser(host) as client:
        assert await sign_in(client, api, "ada") == 200
        needed = (await call(client, "ben"))["metadata"]["sign_in"]["url"]
        pressed = await client.post(needed.removeprefix("http://127.0.0.1:8080"))

        flow = {"authorizationUrl": "/authorize", "tokenUrl": "/renew", "refreshUrl": "/renew"}
        api.schemes = {"signed_in": {"type": "oauth2", "flows": {"authorizationCode": flow}}}
        config["providers"]["crm"]["limits"] = {"timeout": 55}  # reads its document again
        file.write_text(json.dumps(config), "utf-8")
        answer = await client.post("/v1/reload", headers={"authorization": "Bearer operator-key"})
        assert answer.status_code == 200, answer.text

        api.accounts.expire()
        assert (await call(client, "ada"))["structured"] == {"me": "ada"}
        api.accounts.user = "ben"
        async with AsyncClient() as at_issuer:
            back = (await at_issuer.get(pressed.headers["location"])).headers["location"]
        assert (await client.get(back)).status_code == 200
        assert api.refreshed_at == [], "who had signed in, or begun to, stays at the former endpoints"

        client.cookies.clear()
        made = (await client.post("/v1/connections/crm", headers={"authorization": "Bearer ada-key"})).json()
        api.accounts.user = "ada"
        assert (await press(client, made["url"])).status_code == 200
        assert api.refreshed_at == ["/renew"]
        assert (await call(client, "ada"))["structured"] == {"me": "ada"}


async def test_an_issuer_of_open_id_connect_is_found_by_its_metadata(api: ApiWithUsers, tmp_path: Path) -> None:
    api.schemes = {"id": {"type": "openIdConnect", "openIdConnectUrl": "/.well-known/openid-configuration"}}
    async with hosting(settings(api, tmp_path, {"client": CLIENT})) as client:
        assert await sign_in(client, api, "ada") == 200
        assert (await call(client, "ada"))["structured"] == {"me": "ada"}
        headers = {"authorization": "Bearer ada-key"}
        (shown,) = (await client.get("/v1/connections", headers=headers)).json()["connections"]
        assert shown["issuer"].rstrip("/") == api.origin


async def test_endpoints_of_a_document_need_a_public_address_or_egress_allow(api: ApiWithUsers, tmp_path: Path) -> None:
    config = settings(api, tmp_path, {"client": CLIENT}, base_url=api.origin)
    del config["egress"]
    async with hosting(config) as client:
        api.accounts.user = "ada"
        link = (await call(client, "ada"))["metadata"]["sign_in"]["url"]
        answered = await press(client, link)
        assert answered.status_code == 502
        assert "Not connected" in answered.text
        assert api.accounts.tokens == {}
        assert (await call(client, "ada"))["metadata"]["code"] == "sign_in_needed"


async def test_an_answer_of_another_issuer_is_refused(api: ApiWithUsers, tmp_path: Path) -> None:
    async with hosting(settings(api, tmp_path, {"client": CLIENT})) as client:
        api.accounts.user = "ada"
        link = (await call(client, "ada"))["metadata"]["sign_in"]["url"]
        begun = await client.post(link.removeprefix("http://127.0.0.1:8080"))
        async with AsyncClient() as at_issuer:
            back = (await at_issuer.get(begun.headers["location"])).headers["location"]
        answered = await client.get(f"{back}&iss=https://other.example")
        assert (answered.status_code, "another issuer" in answered.text) == (502, True)


async def test_without_endpoints_or_a_client_it_says_what_to_set(api: ApiWithUsers, tmp_path: Path) -> None:
    async with hosting(settings(api, tmp_path, {})) as client:
        link = (await call(client, "ada"))["metadata"]["sign_in"]["url"]
        answered = await client.post(link.removeprefix("http://127.0.0.1:8080"))
        assert (answered.status_code, "set user_auth.oauth.client" in answered.text) == (502, True)
    api.schemes = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    with pytest.raises(ConfigError, match=r"names nowhere to sign in.*providers\.crm\.user_auth\.oauth\.issuer"):
        async with hosting(settings(api, tmp_path, {"client": CLIENT})):
            pass


class Shop(FunctionProvider):
    """Names what is no URL."""

    def sign_in_endpoints(self) -> SignInEndpoints:
        return SignInEndpoints(authorization="javascript:alert(1)", token="file:///etc/passwd")

    @tool
    async def me(self, context: CallContext) -> str:
        """Use the credential."""
        return await context.credential()


async def test_what_a_provider_names_must_be_urls(tmp_path: Path) -> None:
    config = {
        "store": f"sqlite:///{tmp_path}/state.db",
        "auth": {"api_keys": KEYS},
        "http": {"allowed_hosts": ["127.0.0.1"]},
        "providers": {"shop": {"enabled": True, "user_auth": {"oauth": {"client": CLIENT}}}},
    }
    async with open_host(config, environ={}, providers={"shop": Shop}) as host, browser(host) as client:
        link = (await call(client, "ada"))["metadata"]["sign_in"]["url"]
        answered = await client.post(link.removeprefix("http://127.0.0.1:8080"))
        assert (answered.status_code, "no http or https URLs" in answered.text) == (502, True)
