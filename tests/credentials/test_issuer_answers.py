"""What issuers send, and how it is read: tokens, refusals, metadata, and registrations of the host."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import httpx2
import pytest

from toolplug.catalog.call import Principal
from toolplug.errors import ToolUnavailable
from toolplug.execution.user_auth import AuthOwner, UserOAuth
from toolplug.host.keys import Sealer
from toolplug.net.egress import Egress
from toolplug.net.issuer_answers import MAX_TOKEN_CHARS, InvalidAnswer, IssuedTokens, read_tokens
from toolplug.parts.credentials.issuers import UnknownClient
from toolplug.parts.credentials.oauth import CLIENTS, OAuthCredentials
from toolplug.parts.credentials.records import AskedSignIn, BegunSignIn, UserConnection, UserTokens, user_key
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I38-sign-in")]

SERVER = AuthOwner("mcp", "who", "https://who.example/mcp")
ISSUER = "https://id.example"
ADA = Principal("ada", "acme")
BASE = "http://127.0.0.1:1"
OAUTH = UserOAuth(scopes=("read",), client="registration")


def tokens(**fields: object) -> bytes:
    return json.dumps({"access_token": "secret", **fields}).encode()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(60, 60.0), ("60", 60.0), (60.5, 60.5), (None, 0.0), (0, 0.0), (-5, 0.0), (1e30, 0.0), ("soon", 0.0), (True, 0.0)],
)
def test_a_life_is_read_as_issuers_write_it(given: object, seconds: float) -> None:
    assert read_tokens(tokens(expires_in=given)).expires_in == seconds


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"scope": ["read", "write"], "refresh_token": "again"}, IssuedTokens("secret", "again", 0.0, "read write")),
        ({"scope": None, "refresh_token": None, "token_type": None}, IssuedTokens("secret")),
        ({"scope": 5, "refresh_token": 5, "token_type": "bearer", "id_token": {}}, IssuedTokens("secret")),
        ({"scope": ""}, IssuedTokens("secret", scope="")),
    ],
)
def test_fields_of_a_token_that_cannot_be_used_are_left_out(fields: dict[str, object], found: IssuedTokens) -> None:
    assert read_tokens(tokens(**fields)) == found


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (tokens(access_token=""), "no token"),
        (tokens(access_token=5), "no token"),
        (tokens(access_token=None), "no token"),
        (tokens(access_token="a\r\nX-Other: 1"), "cannot be sent"),
        (tokens(access_token="é"), "cannot be sent"),
        (tokens(access_token="token "), "cannot be sent"),
        (tokens(token_type="DPoP"), "type Bearer"),
        (tokens(token_type="N_A"), "type Bearer"),
        (tokens(token_type=5), "type Bearer"),
        (tokens(access_token="x" * (MAX_TOKEN_CHARS + 1)), "more than 16,384 characters"),
        (tokens(refresh_token="x" * (MAX_TOKEN_CHARS + 1)), "more than 16,384 characters"),
        (b"<html>", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no JSON object"),
        (b"null", "no JSON object"),
    ],
)
def test_what_is_no_token_is_refused_without_its_text(answer: bytes, why: str) -> None:
    with pytest.raises(InvalidAnswer, match=why) as refused:
        read_tokens(answer)
    assert "secret" not in str(refused.value)


def test_a_token_of_the_longest_length_is_taken() -> None:
    longest = "x" * MAX_TOKEN_CHARS
    assert read_tokens(tokens(access_token=longest, refresh_token=longest)).access == longest


class ScriptedIssuer:
    """A server and its issuer. `answer` is what its token endpoint answers; `registered` what a registration does."""

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, str]], httpx2.Response] = lambda form: httpx2.Response(200, content=tokens())
        self.registered: dict[str, object] = {}
        self.registrations = 0
        self.forms: list[dict[str, str]] = []

    def reply(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/token":
            self.forms.append(dict(parse_qsl(request.content.decode())))
            return self.answer(self.forms[-1])
        if request.url.path == "/register":
            self.registrations += 1
            return httpx2.Response(201, json={"client_id": f"client-{self.registrations}", **self.registered})
        if request.url.path == "/.well-known/oauth-protected-resource/mcp":
            return httpx2.Response(200, json={"resource": SERVER.url, "authorization_servers": [ISSUER]})
        if request.url.path == "/.well-known/oauth-authorization-server":
            endpoints = {f"{name}_endpoint": f"{ISSUER}/{path}" for name, path in ENDPOINTS}
            both = {"token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"]}
            return httpx2.Response(200, json={"issuer": ISSUER, **endpoints, **both})
        return httpx2.Response(401)


ENDPOINTS = (("authorization", "auth"), ("token", "token"), ("registration", "register"))


class Served(OAuthCredentials):
    """The product's service of tokens, whose requests go to a script."""

    def __init__(self, store: MemoryStore, issuer: ScriptedIssuer) -> None:
        async def sealing() -> Sealer:
            return Sealer(lambda: [b"0" * 32], lambda: None, "credentials")

        super().__init__(store, sealing, lambda: Egress(()))
        self._transport = httpx2.MockTransport(issuer.reply)

    @asynccontextmanager
    async def http(self, owner: AuthOwner, issuer: str | None) -> AsyncGenerator[Any]:
        async with httpx2.AsyncClient(transport=self._transport, trust_env=False) as client:
            yield client

    async def press(self) -> BegunSignIn:
        """Let a browser press a link, and return what was begun."""
        link = await self.sign_ins.link(SERVER, ADA, BASE)
        asked = await self.sign_ins.press(link.url.rpartition("/")[2])
        assert isinstance(asked, AskedSignIn)
        url = httpx2.URL(await self.begin(asked, OAUTH, "browser"))
        begun = await self.sign_ins.take_state(url.params["state"], "browser")
        assert begun is not None
        return begun

    async def keep(self, access: str = "old", *, life_s: float = 3600.0) -> None:
        """Keep tokens of Ada's as a sign-in does."""
        now = self.now()
        connection = UserConnection(
            tenant=ADA.tenant,
            subject=ADA.subject,
            kind=SERVER.kind,
            key=SERVER.key,
            issuer=ISSUER,
            connected_at=now,
            expires_at=now + life_s,
        )
        kept = UserTokens(access=access, refresh="refresh", client_id="us", token_endpoint=f"{ISSUER}/token")
        await self.records.write(user_key(SERVER, ADA), SERVER, connection, kept, expected=None)

    async def token(self, refused: str = "") -> str:
        """Return what a call of Ada's sends, or the code of what it answers instead."""
        try:
            return await self.credential(SERVER, OAUTH, ADA, BASE, refused)
        except ToolUnavailable as error:
            return str(error.code)


class Clock:
    """The time of the store, which a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> ScriptedIssuer:
    return ScriptedIssuer()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def served(issuer: ScriptedIssuer, clock: Clock) -> AsyncGenerator[Served]:
    async with MemoryStore(clock=clock) as store:
        yield Served(store, issuer)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": "invalid_grant"}, "sign_in_needed"),
        (401, {"error": "invalid_client"}, "sign_in_needed"),
        (403, "no JSON", "sign_in_needed"),
        (200, {"error": "bad_refresh_token"}, "sign_in_needed"),
        (400, {"error": "temporarily_unavailable"}, "issuer_down"),
        (503, {"error": "invalid_grant"}, "issuer_down"),
        (200, {"access_token": ""}, "issuer_down"),
        (429, {}, "issuer_down"),
    ],
)
async def test_a_refusal_costs_a_sign_in_and_a_failure_the_call(
    served: Served, issuer: ScriptedIssuer, status: int, body: object, code: str
) -> None:
    issuer.answer = lambda form: httpx2.Response(status, json=body)
    await served.keep()
    assert await served.token(refused="old") == code
    issuer.answer = lambda form: httpx2.Response(200, content=tokens(access_token="new"))
    assert await served.token(refused="old") == ("new" if code == "issuer_down" else "sign_in_needed")


@pytest.mark.parametrize("life_s", [1e-9, -5, 0])
async def test_a_token_is_renewed_once_for_a_call_however_soon_the_new_one_ends(
    served: Served, issuer: ScriptedIssuer, clock: Clock, life_s: float
) -> None:
    def answer(form: dict[str, str]) -> httpx2.Response:
        clock.now += 1
        return httpx2.Response(200, content=tokens(access_token=f"new-{len(issuer.forms)}", expires_in=life_s))

    issuer.answer = answer
    await served.keep(life_s=-1)
    assert await served.token() == "new-1"
    assert len(issuer.forms) == 1


async def test_an_issuer_that_gives_the_refused_token_again_is_asked_once(
    served: Served, issuer: ScriptedIssuer
) -> None:
    issuer.answer = lambda form: httpx2.Response(200, content=tokens(access_token="old", expires_in=1e-9))
    await served.keep(life_s=-1)
    assert await served.token(refused="old") == "sign_in_needed"
    assert len(issuer.forms) == 1


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_the_host_is_the_client_that_the_issuer_has_registered(
    served: Served, issuer: ScriptedIssuer, method: str
) -> None:
    issuer.registered = {"client_secret": "shh", "token_endpoint_auth_method": method, "contacts": "nobody"}
    for _ in range(2):
        await served.finish(await served.press(), OAUTH, "code", None)
    assert issuer.registrations == 1
    assert [form.get("client_secret") for form in issuer.forms] == [None if method.endswith("basic") else "shh"] * 2


async def test_a_client_whose_secret_has_ended_is_registered_again(
    served: Served, issuer: ScriptedIssuer, clock: Clock
) -> None:
    issuer.registered = {
        "client_secret": "shh",
        "token_endpoint_auth_method": "client_secret_post",
        "client_secret_expires_at": int(served.now()) + 60,
    }
    assert (await served.press()).start.client_id == "client-1"
    assert (await served.press()).start.client_id == "client-1"
    clock.now += 61
    assert (await served.press()).start.client_id == "client-2"


async def test_a_client_that_the_issuer_has_lost_is_registered_again(served: Served, issuer: ScriptedIssuer) -> None:
    begun = await served.press()
    issuer.answer = lambda form: httpx2.Response(401, json={"error": "invalid_client"})
    with pytest.raises(UnknownClient, match="does not know the host as its client"):
        await served.finish(begun, OAUTH, "code", None)
    assert (await served.press()).start.client_id == "client-2"


async def test_a_client_without_a_secret_is_kept_as_it_was_by_earlier_releases(
    served: Served, issuer: ScriptedIssuer
) -> None:
    issuer.registered = {"token_endpoint_auth_method": "none"}
    assert (await served.press()).start.client_id == "client-1"
    [key] = await served._store.keys(CLIENTS)
    record = await served._store.read(key)
    assert record is not None
    sealer, bound = await served._sealer(), key.removeprefix(CLIENTS).encode()
    kept = json.loads(sealer.unseal(record.value, bound))
    assert (kept["id"], kept["secret"]) == ("client-1", None)
    await served._store.commit(key, sealer.seal(json.dumps({"id": "client-0", "secret": None}).encode(), bound))
    begun = await served.press()
    assert (begun.start.client_id, begun.start.auth_method) == ("client-0", "none")
