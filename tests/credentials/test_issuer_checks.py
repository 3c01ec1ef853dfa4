"""What a server and an issuer say of themselves is checked before a browser is sent there, and a sign-in is short."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.virtual_time import VIRTUAL, virtual_clock

from toolplug.catalog.call import Principal
from toolplug.execution.user_auth import AuthOwner, UserOAuth
from toolplug.host.keys.host_key import Sealer
from toolplug.parts.credentials.issuers import SignInFailed, find_issuer
from toolplug.parts.credentials.records import LIFE_S, BegunSignIn, SignIns, UserTokens
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import name_digest

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I38-sign-in")]

SERVER = AuthOwner("mcp", "who", "https://who.example/mcp")
ISSUER = "https://id.example"
NAMED = {"resource": SERVER.url, "authorization_servers": [ISSUER]}
DESCRIBED = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/auth",
    "token_endpoint": f"{ISSUER}/token",
    "response_types_supported": ["code"],
    "code_challenge_methods_supported": ["S256"],
}


@pytest.fixture
def anyio_backend() -> object:
    """Let the tests run in virtual time."""
    return VIRTUAL


def naming(server: dict[str, Any], issuer: dict[str, Any]) -> httpx2.AsyncClient:
    """A client of a server that says this of itself, and of its issuer."""

    async def refuse(request: Request) -> Response:
        return Response(status_code=401)

    async def resource(request: Request) -> Response:
        return JSONResponse(server)

    async def metadata(request: Request) -> Response:
        return JSONResponse(issuer)

    routes = [
        Route("/mcp", refuse),
        Route("/.well-known/oauth-protected-resource/mcp", resource),
        Route("/.well-known/oauth-authorization-server", metadata),
    ]
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(Starlette(routes=routes)))


async def test_a_server_whose_issuer_is_the_one_of_its_entry_is_taken() -> None:
    async with naming(NAMED, DESCRIBED) as http:
        found = await find_issuer(http, SERVER, UserOAuth(issuer=ISSUER, scopes=("read",)))
    assert (found.name.rstrip("/"), found.resource, found.scope) == (ISSUER, SERVER.url, "read")


@pytest.mark.parametrize(
    ("server", "issuer", "pinned", "said"),
    [
        ({"authorization_servers": ["https://other.example"]}, {}, ISSUER, "does not name the issuer of its entry"),
        ({"resource": "https://other.example/mcp"}, {}, None, "another resource than its url"),
        ({}, {"issuer": "https://other.example"}, None, "that of another one"),
        ({}, {"code_challenge_methods_supported": ["plain"]}, None, "does not support PKCE"),
        ({}, {"code_challenge_methods_supported": []}, None, "does not support PKCE"),
        ({}, {"code_challenge_methods_supported": "plain"}, None, "code_challenge_methods_supported cannot be used"),
        ({}, {"authorization_endpoint": "javascript:alert(1)"}, None, "authorization_endpoint cannot be used"),
        ({}, {"authorization_endpoint": f"{ISSUER}/auth#there"}, None, "has a fragment"),
        ({}, {"token_endpoint": None}, None, "token_endpoint cannot be used"),
    ],
)
async def test_any_other_is_refused(
    server: dict[str, Any], issuer: dict[str, Any], pinned: str | None, said: str
) -> None:
    async with naming(NAMED | server, DESCRIBED | issuer) as http:
        with pytest.raises(SignInFailed, match=said):
            await find_issuer(http, SERVER, UserOAuth(issuer=pinned))


async def test_what_nobody_needs_of_metadata_is_left_out_if_it_cannot_be_used(caplog: pytest.LogCaptureFixture) -> None:
    server = {"scopes_supported": None, "bearer_methods_supported": 5, "resource_documentation": ""}
    odd = {"scopes_supported": "read write", "jwks_uri": 5, "op_policy_uri": "", "ui_locales_supported": ["en"] * 1001}
    absent = dict.fromkeys(["grant_types_supported", "token_endpoint_auth_methods_supported", "registration_endpoint"])
    async with naming(NAMED | server, DESCRIBED | odd | absent) as http:
        found = await find_issuer(http, SERVER, UserOAuth(scopes=("read",)))
    assert str(found.metadata.token_endpoint) == DESCRIBED["token_endpoint"]
    assert [record.getMessage() for record in caplog.records if record.name == "toolplug.oauth"] == [
        "left out of the metadata of an issuer or server: /bearer_methods_supported, /resource_documentation",
        "left out of the metadata of an issuer or server: /op_policy_uri, /scopes_supported, /ui_locales_supported",
    ]


async def test_a_link_and_a_sign_in_end_after_ten_minutes() -> None:
    async def sealing() -> Sealer:
        return Sealer(lambda: [b"0" * 32], lambda: None, "credentials")

    async with MemoryStore(clock=virtual_clock) as store:
        sign_ins = SignIns(store, sealing)
        link = await sign_ins.link(SERVER, Principal("ada", "acme"), "https://host.example")
        assert link.expires_at == virtual_clock() + LIFE_S
        secret = link.url.rpartition("/")[2]
        asked = await sign_ins.find_link(secret)
        assert asked is not None
        begun = BegunSignIn(
            asked=asked,
            start=UserTokens(access=""),
            issuer=ISSUER,
            metadata="{}",
            scope="",
            verifier="v",
            browser=name_digest("hers"),
        )
        for state in ("early", "late"):
            await sign_ins.begin(state, begun)
        await asyncio.sleep(LIFE_S - 1)
        assert await sign_ins.find_link(secret) == asked
        assert await sign_ins.take_state("early", "hers") == begun
        await asyncio.sleep(2)
        assert await sign_ins.press(secret) is None
        assert await sign_ins.take_state("late", "hers") is None
