"""The tools of an OpenAPI document with the other two ways of `user_auth`: a token exchanged, a credential brought."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.credentials.test_exchange import Exchange, endpoint, exchange, settings, token_of
from tests.http.served import serving_apart

from toolplug import open_host
from toolplug.http import create_app

__all__ = ["endpoint", "exchange"]

pytestmark = [pytest.mark.anyio, pytest.mark.process]

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "crm", "version": "1"},
    "paths": {"/me": {"get": {"operationId": "me", "responses": {"200": {"description": "who"}}}}},
}


@contextmanager
def serving_crm() -> Iterator[str]:
    """An API that answers with the credential that it was sent."""

    async def describe(request: Request) -> Response:
        return JSONResponse(DOCUMENT)

    async def me(request: Request) -> Response:
        return JSONResponse({"sent": request.headers.get("authorization")})

    with serving_apart(Starlette(routes=[Route("/openapi.json", describe), Route("/me", me)])) as port:
        yield f"http://127.0.0.1:{port}"


def config(endpoint: str, origin: str, user_auth: object) -> dict[str, Any]:
    entry = {"type": "openapi", "enabled": True, "document": f"{origin}/openapi.json", "user_auth": user_auth}
    return settings(endpoint) | {"egress": {"allow": ["loopback"]}, "providers": {"crm": entry}}


async def call(config: dict[str, Any], token: str, **headers: str) -> Any:
    async with open_host(config, environ={}) as host:
        base = "http://127.0.0.1:8080"
        async with AsyncClient(transport=ASGITransport(create_app(host)), base_url=base) as client:
            sent = {"authorization": f"Bearer {token}", **headers}
            return (await client.post("/v1/tool-calls", json={"name": "me", "arguments": {}}, headers=sent)).json()


@pytest.mark.requirement("I38-exchange")
async def test_an_api_is_sent_the_token_for_which_the_jwt_of_its_caller_is_exchanged(
    exchange: Exchange, endpoint: str
) -> None:
    user_auth = settings(endpoint)["providers"]["graph"]["user_auth"]
    with serving_crm() as origin:
        ada = token_of("ada")
        found = await call(config(endpoint, origin, user_auth), ada)
    assert found["structured"] == {"sent": "Bearer ada-1"}
    assert [form["subject_token"] for form in exchange.forms] == [ada]


@pytest.mark.requirement("I38-provider")
async def test_an_api_is_sent_the_credential_that_its_caller_brings(endpoint: str) -> None:
    user_auth = {"header": "Authorization", "format": "Bearer {}", "from": "credential:crm"}
    with serving_crm() as origin:
        given = config(endpoint, origin, user_auth)
        found = await call(given, token_of("ada"), **{"X-Toolplug-Credential-crm": "of-ada"})
        without = await call(given, token_of("ada"))
    assert found["structured"] == {"sent": "Bearer of-ada"}
    assert (without["status"], without["metadata"]["code"]) == ("unavailable", "credential_needed")
    assert without["metadata"]["credential"] == {"header": "X-Toolplug-Credential-crm"}
