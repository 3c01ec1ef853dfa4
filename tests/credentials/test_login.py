"""Browsers that sign in to the host before they connect a caller, and must be the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
from httpx2 import AsyncClient, Response
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route
from tests.credentials.oauth_server import Accounts, serving_oauth
from tests.credentials.test_exchange import PRIVATE, PUBLIC
from tests.credentials.test_sign_in import call, hosting, settings
from tests.http.served import serving_apart
from tests.kept_port import kept_port

from toolplug import ConfigError, open_host

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("I38-login")]

CLIENT = "toolplug-browser"


class Issuer:
    """An OpenID provider whose people sign in at once; `claims` of its ID tokens replace those that are right."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.user = "ada"
        self.claims: dict[str, Any] = {}
        self.key: Any = PRIVATE
        self.nonces: dict[str, str] = {}
        self.forms: list[dict[str, Any]] = []
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.metadata),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
            ]
        )

    async def metadata(self, request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "issuer": self.origin,
                "authorization_endpoint": f"{self.origin}/authorize",
                "token_endpoint": f"{self.origin}/token",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def authorize(self, request: Request) -> RedirectResponse:
        asked = request.query_params
        assert (asked["client_id"], asked["scope"], bool(asked["code_challenge"])) == (CLIENT, "openid", True)
        self.nonces["code"] = asked["nonce"]
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({'code': 'code', 'state': asked['state']})}", 303)

    async def token(self, request: Request) -> JSONResponse:
        self.forms.append(dict(await request.form()))
        claims = {
            "iss": self.origin,
            "aud": CLIENT,
            "sub": self.user,
            "tenant": "acme",
            "exp": int(time() + 60),
            "nonce": self.nonces["code"],
            **self.claims,
        }
        return JSONResponse(
            {"access_token": "unused", "token_type": "Bearer", "id_token": jwt.encode(claims, self.key, "ES256")}
        )


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


@pytest.fixture
def url(accounts: Accounts) -> Iterator[str]:
    with serving_oauth(accounts) as found:
        yield found


@contextmanager
def serving_issuer() -> Iterator[Issuer]:
    with kept_port() as port:
        issuer = Issuer(f"http://127.0.0.1:{port}")
        with serving_apart(issuer.app, port=port):
            yield issuer


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving_issuer() as found:
        yield found


def with_login(url: str, tmp_path: Path, issuer: Issuer) -> dict[str, Any]:
    config = settings(url, tmp_path)
    tokens = {"algorithms": ["ES256"], "public_key": PUBLIC, "issuer": issuer.origin, "audience": "toolplug"}
    config["auth"]["jwt"] = {**tokens, "tenant_claim": "tenant"}
    config["credentials"] = {"login": {"client_id": CLIENT}}
    return config


async def follow(browser: AsyncClient, location: str) -> Response:
    """Go to an issuer, which signs the person in at once, and come back to the host."""
    async with AsyncClient() as at_issuer:
        back = (await at_issuer.get(location)).headers["location"]
    return await browser.get(back)


async def begin(browser: AsyncClient) -> Response:
    """Have Ada make a call, and press the link that it gives."""
    needed = await call(browser, "ada")
    begun = await browser.post(urlsplit(needed["metadata"]["sign_in"]["url"]).path)
    assert begun.status_code == 303, begun.text
    return begun


async def test_a_browser_that_is_signed_in_as_the_caller_is_sent_on(
    accounts: Accounts, url: str, tmp_path: Path, issuer: Issuer
) -> None:
    async with hosting(with_login(url, tmp_path, issuer)) as (_, client):
        begun = await begin(client)
        assert begun.headers["location"].startswith(f"{issuer.origin}/authorize?")
        assert "resource" not in parse_qs(urlsplit(begun.headers["location"]).query)
        known = await follow(client, begun.headers["location"])
        assert (known.status_code, urlsplit(known.headers["location"]).port) == (303, urlsplit(url).port)
        assert (await follow(client, known.headers["location"])).status_code == 200
        assert (await call(client, "ada"))["output"] == "ada"
        assert issuer.forms[0]["code_verifier"]


WRONG = [
    ({"sub": "ben"}, "another user"),
    ({"tenant": "umbrella"}, "another user"),
    ({"nonce": "of-another-request"}, "no valid ID token"),
    ({"aud": "toolplug"}, "no valid ID token"),
    ({"aud": [CLIENT, "other"], "azp": "other"}, "no valid ID token"),
    ({"iss": "https://other.example"}, "no valid ID token"),
    ({"exp": 1}, "no valid ID token"),
]


@pytest.mark.parametrize(("claims", "why"), WRONG)
async def test_any_other_browser_connects_nobody(
    accounts: Accounts, url: str, tmp_path: Path, issuer: Issuer, claims: dict[str, Any], why: str
) -> None:
    issuer.claims = claims
    async with hosting(with_login(url, tmp_path, issuer)) as (_, client):
        refused = await follow(client, (await begin(client)).headers["location"])
        assert (refused.status_code, why in refused.text) == (502, True), refused.text
        assert accounts.asked == []
        assert (await call(client, "ada"))["metadata"]["code"] == "sign_in_needed"


async def test_a_login_needs_an_issuer_of_tokens() -> None:
    config = {"store": "memory://", "credentials": {"login": {"client_id": CLIENT}}}
    with pytest.raises(ConfigError) as wrong:
        async with open_host(config, environ={}):
            pass
    assert [problem.path for problem in wrong.value.problems] == ["credentials.login"]
