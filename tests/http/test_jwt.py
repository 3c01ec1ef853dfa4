"""JSON Web Tokens: the configured algorithm and claims, from a public key or a key set."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from httpx2 import AsyncClient
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm
from starlette.authentication import AuthenticationError
from starlette.requests import HTTPConnection
from tests.http.conftest import ALICE, client_of, settings
from tests.http.key_server import KeyServer

from toolplug import open_host
from toolplug.host.file.settings import Jwt
from toolplug.http import create_app
from toolplug.http.auth.jwt import EARLY_EVERY_S, Tokens
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.anyio

ISSUER = "https://issuer.example"
MINE = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHERS = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = MINE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
SECTION = {"algorithms": ["RS256"], "public_key": PEM, "issuer": ISSUER, "audience": "toolplug"}


def token(
    key: Any = MINE, algorithm: str = "RS256", headers: Mapping[str, object] | None = None, **changes: object
) -> str:
    """A good token, but for these claims; one that is None is left out."""
    claims = {"sub": "ann", "iss": ISSUER, "aud": "toolplug", "exp": int(time.time()) + 60, **changes}
    given_claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(given_claims, key, algorithm=algorithm, headers=dict(headers or {}))


def bearing(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@asynccontextmanager
async def served(**section: object) -> AsyncIterator[AsyncClient]:
    """A client of a host that takes tokens."""
    keys = [{"key": "alice-key", "subject": "alice"}]
    auth = {"api_keys": keys, "jwt": section or SECTION}
    async with open_host(settings(auth=auth), environ={}) as host, client_of(create_app(host)) as client:
        yield client


async def who(client: AsyncClient, text: str) -> dict[str, object]:
    answer = await client.post("/v1/tool-calls", headers=bearing(text), json={"name": "whoami"})
    assert answer.status_code == 200, answer.text
    return answer.json()["structured"]


@pytest.mark.requirement("C-5-auth-jwt", "C-5-auth-jwt-mapped")
async def test_a_token_is_a_principal_and_its_claims_say_which(sample_package: None) -> None:
    async with served() as client:
        plain = await who(client, token())
        assert (plain["subject"], plain["tenant"]) == ("ann", "default")
        other = await who(client, token(tenant="t9", scope="tools:call admin"))
        assert other["tenant"] == "t9"
        read_only = bearing(token(scope="tools:read"))
        assert (await client.get("/v1/tools", headers=read_only)).status_code == 200
        assert (await client.post("/v1/tool-calls", headers=read_only, json={"name": "whoami"})).status_code == 403
        nothing = await client.get("/v1/tools", headers=bearing(token(scope="")))
        assert nothing.status_code == 403, "a claim that is there counts, also when it is empty"
        agent = await client.get("/v1/tools", headers=bearing(token(agents=["researcher"])))
        assert agent.json() == {"tools": []}
        assert (await client.get("/v1/tools", headers=ALICE)).status_code == 200


@pytest.mark.requirement("C-5-auth-jwt-mapped")
async def test_the_claims_of_tenant_scopes_and_agents_may_have_other_names(sample_package: None) -> None:
    named = {**SECTION, "tenant_claim": "org", "scopes_claim": "scp", "agents_claim": "acts_as"}
    async with served(**named) as client:
        assert (await who(client, token(org="t5", tenant="no", scp=["tools:call"])))["tenant"] == "t5"
        listed = await client.get("/v1/tools", headers=bearing(token(org="t5", acts_as="one two")))
        assert listed.json()["error"]["code"] == "agent_required"


@pytest.mark.requirement("C-5-auth-jwt", "C-5-auth-jwt-claims", "C-5-auth-jwt-algorithm", "H-trust-jwt-audience")
async def test_a_token_that_is_not_as_configured_is_401(sample_package: None) -> None:
    forged = jwt.encode({"sub": "ann"}, "x" * 32, algorithm="HS256").split(".")
    elliptic = ec.generate_private_key(ec.SECP256R1())
    bad = {
        "audience": token(aud="another"),
        "no audience": token(aud=None),
        "issuer": token(iss="https://evil.example"),
        "no issuer": token(iss=None),
        "expired": token(exp=int(time.time()) - 60),
        "no expiry": token(exp=None),
        "not yet": token(nbf=int(time.time()) + 600),
        "other key": token(OTHERS),
        "other algorithm": token(MINE, "RS512"),
        "other kind of key": token(elliptic, "ES256"),
        "public key as a secret": _signed_with_the_public_key(),
        "no signature": jwt.encode({"sub": "ann", "iss": ISSUER, "aud": "toolplug"}, None, algorithm="none"),
        "cut": token()[:-5],
        "swapped payload": ".".join([token().split(".")[0], forged[1], token().split(".")[2]]),
        "tenant is no text": token(tenant=["t1", "t2"]),
        "scopes are no names": token(scope={"admin": True}),
        "agents are no names": token(agents=[1, 2]),
        "dots": "..",
    }
    for name, text in bad.items():
        async with served() as client:  # each with its own count of wrong credentials
            answer = await client.get("/v1/tools", headers=bearing(text))
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "authentication_required"), name


def _signed_with_the_public_key() -> str:
    """The classic forgery: HMAC with the public key's text as the secret."""

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    claims = {"sub": "ann", "iss": ISSUER, "aud": "toolplug", "exp": int(time.time()) + 60}
    signed = part({"alg": "HS256", "typ": "JWT"}) + b"." + part(claims)

    mac = hmac.new(PEM.encode(), signed, hashlib.sha256).digest()
    return (signed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


@pytest.fixture
def keys() -> Iterator[KeyServer]:
    """A key set with our own key under the id `first`."""
    with KeyServer().served() as server:
        server.body = {"keys": [public("first")]}
        yield server


def public(key_id: str, key: rsa.RSAPrivateKey = MINE) -> dict[str, object]:
    return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig", "alg": "RS256"}


def from_keys(keys: KeyServer) -> dict[str, object]:
    return {"algorithms": ["RS256"], "jwks_url": keys.url, "issuer": ISSUER, "audience": "toolplug"}


@pytest.mark.process
@pytest.mark.requirement("C-5-auth-jwt")
async def test_keys_of_a_key_set_are_fetched_once_and_found_by_id(sample_package: None, keys: KeyServer) -> None:
    async with served(**from_keys(keys)) as client:
        for _ in range(3):
            assert (await who(client, token(headers={"kid": "first"})))["subject"] == "ann"
        assert keys.asked == 1
        for bad in (token(), token(headers={"kid": "second"}), token(OTHERS, headers={"kid": "first"})):
            assert (await client.get("/v1/tools", headers=bearing(bad))).status_code == 401
        assert keys.asked == 2, "an unknown id fetches the set early, once in a few seconds"
        other = token(OTHERS, headers={"kid": "third"})
        keys.body = {"keys": [public("third", OTHERS)]}
        assert (await client.get("/v1/tools", headers=bearing(other))).status_code == 401
        assert keys.asked == 2


@pytest.mark.process
async def test_a_rotated_key_is_found_though_the_set_was_just_fetched(sample_package: None, keys: KeyServer) -> None:
    async with served(**from_keys(keys)) as client:
        assert (await who(client, token(headers={"kid": "first"})))["subject"] == "ann"
        keys.body = {"keys": [public("second", OTHERS)]}
        assert (await who(client, token(OTHERS, headers={"kid": "second"})))["subject"] == "ann"
        gone = await client.get("/v1/tools", headers=bearing(token(headers={"kid": "first"})))
        assert gone.status_code == 401


@pytest.mark.process
@pytest.mark.requirement("C-5-auth-jwt-rotation")
async def test_a_rotated_key_is_accepted_within_seconds_whatever_strangers_behind_its_address_send(
    sample_package: None, keys: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr("toolplug.http.auth.jwt.monotonic", clock)

    async def status(text: str) -> int:
        return (await client.get("/v1/tools", headers=bearing(text))).status_code

    async with served(**from_keys(keys)) as client:
        assert await status(token(headers={"kid": "first"})) == 200
        strangers = [token(OTHERS, headers={"kid": f"made-up-{number}"}) for number in range(30)]
        assert [await status(text) for text in strangers] == [401] * 30, "none counts that no fetch was made for"
        assert keys.asked == 2
        assert [await status("wrong") for _ in range(10)] == [401] * 9 + [429], "with the first of the strangers' ten"
        rotated = token(OTHERS, headers={"kid": "second"})
        assert (await status(rotated), await status("wrong")) == (401, 429), "it may be valid in a moment: no wait"
        keys.body = {"keys": [public("second", OTHERS)]}
        clock.now += EARLY_EVERY_S
        assert (await status(rotated), keys.asked) == (200, 3)


@pytest.mark.requirement("C-5-auth-jwt-claims")
@pytest.mark.parametrize("blank", ["\u00a0", "\n", "\t", "\u3000", "\u2028", "\x1f", "\u200b", '"', "\\", "é"])
async def test_scopes_are_separated_by_the_space_alone(sample_package: None, blank: str) -> None:
    async with served() as client:
        for claim in (f"tools:read{blank}admin", f"tools:read {blank}", [f"tools:read{blank}admin"]):
            answer = await client.get("/v1/tools", headers=bearing(token(scope=claim)))
            assert answer.status_code == 401, claim
            assert (await client.get("/v1/tools", headers=bearing(token(agents=claim)))).status_code == 401
        for claim in ("tools:read tools:call", " tools:read  tools:call ", ["tools:read", "tools:call"]):
            assert (await client.get("/v1/tools", headers=bearing(token(scope=claim)))).status_code == 200, claim
        assert (await client.get("/v1/tools", headers=bearing(token(scope=["tools:read admin"])))).status_code == 401


ODD = [
    "  ",
    " t1",
    "t1 ",
    "t1\n",
    "t\x001",
    "t\u202e1",
    "t\u200b1",
    "\ufeff",
    "t\u00a01",
    "t\u31641",
    "\ud800",
    "t" * 257,
    "t\t1",
]


@pytest.mark.requirement("C-5-auth-jwt-names")
@pytest.mark.parametrize("name", ODD, ids=ascii)
async def test_a_name_that_looks_like_another_or_like_none_is_refused_with_the_constant_401(
    sample_package: None, name: str
) -> None:
    async with served() as client:
        answers = [
            await client.get("/v1/tools", headers={**bearing(text), "X-Request-Id": "same"})
            for text in (token(tenant=name), token(sub=name), "wrong")
        ]
        assert [answer.status_code for answer in answers] == [401] * 3
        assert len({answer.content for answer in answers}) == 1


@pytest.mark.requirement("C-5-auth-jwt-names")
async def test_a_token_names_its_subject(sample_package: None) -> None:
    async with served() as client:
        for subject in ("", None):
            assert (await client.get("/v1/tools", headers=bearing(token(sub=subject)))).status_code == 401
        for subject in ("ann smith", "Müller", "李", "auth0|5f7c", "t" * 256):
            assert (await who(client, token(sub=subject)))["subject"] == subject


@pytest.mark.process
@pytest.mark.requirement("H-trust-fail-closed")
@pytest.mark.parametrize(
    "answer",
    [
        b"not json",
        b"[]",
        b'{"keys": []}',
        b'{"keys": 1}',
        b'{"keys": ["x"]}',
        b'{"keys": [{"kty": "?"}]}',
        b'{"keys": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        None,
    ],
    ids=["text", "list", "empty", "number", "texts", "unknown", "deep", "500"],
)
async def test_a_key_set_that_is_down_is_503(sample_package: None, keys: KeyServer, answer: bytes | None) -> None:
    good, keys.body, keys.broken = keys.body, answer or b"", answer is None
    async with served(**from_keys(keys)) as client:
        for _ in range(3):
            down = await client.get("/v1/tools", headers=bearing(token(headers={"kid": "first"})))
            assert (down.status_code, down.json()["error"]["code"]) == (503, "auth_unavailable")
        assert keys.asked == 1, "nobody waits for a set that was down a moment ago"
        assert (await client.get("/v1/tools", headers=ALICE)).status_code == 200
        assert good


@pytest.mark.process
async def test_a_key_set_of_1_mib_is_read_and_no_byte_more(sample_package: None, keys: KeyServer) -> None:
    whole = json.dumps(keys.body).encode()
    for size, status in ((1024 * 1024, 200), (1024 * 1024 + 1, 503)):
        keys.body = whole + b" " * (size - len(whole))
        async with served(**from_keys(keys)) as client:
            answer = await client.get("/v1/tools", headers=bearing(token(headers={"kid": "first"})))
            assert answer.status_code == status, size


@pytest.mark.process
async def test_a_key_server_that_drips_is_down_when_its_time_is_over(
    sample_package: None, keys: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolplug.http.auth.jwt.FETCH_S", 0.2)
    keys.drips = True
    async with served(**from_keys(keys)) as client:
        down = await client.get("/v1/tools", headers=bearing(token(headers={"kid": "first"})))
        assert (down.status_code, down.json()["error"]["code"]) == (503, "auth_unavailable")
        assert not keys.dripped_out, "nobody waited for the rest"


async def test_a_token_without_a_tenant_is_refused_where_one_is_required(sample_package: None) -> None:
    named, of_nobody = {**SECTION, "tenant_claim": "tenant"}, [token(), token(tenant=""), token(tenant=None)]
    for section, status in [
        (SECTION, 200),
        (named, 401),
        ({**named, "require_tenant": False}, 200),
        ({**SECTION, "require_tenant": True}, 401),
    ]:
        async with served(**section) as client:
            for text in of_nobody:
                assert (await client.get("/v1/tools", headers=bearing(text))).status_code == status, section
            assert (await who(client, token(tenant="t9")))["tenant"] == "t9"
            for blank in ("  ", "\u3000", "\u115f", "\u200b"):
                answer = await client.get("/v1/tools", headers=bearing(token(tenant=blank)))
                assert answer.status_code == 401, ascii(blank)


async def test_a_public_key_that_is_none_lets_nobody_in(sample_package: None) -> None:
    async with served(**{**SECTION, "public_key": "-----BEGIN PUBLIC KEY-----\nnone"}) as client:
        assert (await client.get("/v1/tools", headers=bearing(token()))).status_code == 503
        assert (await client.get("/v1/tools", headers=ALICE)).status_code == 503
        assert (await client.get("/nowhere")).status_code == 404


@given(st.binary(max_size=200))
async def test_no_bytes_in_the_place_of_a_token_are_anything_but_a_refusal(text: bytes) -> None:
    tokens = Tokens(Jwt.model_validate(SECTION))
    scope = {"type": "http", "headers": [(b"authorization", b"Bearer " + text + b".e30." + text)]}
    with suppress(AuthenticationError):
        assert await tokens(HTTPConnection(scope)) is None


@pytest.mark.process
def test_pyjwt_is_imported_only_where_tokens_are_configured() -> None:
    code = """
import asyncio, sys
from toolplug import open_host
from toolplug.http import create_app
async def main():
    async with open_host({"store": "memory://", "providers": {}}, environ={}) as host:
        async def receive(): return {"type": "http.request"}
        async def send(message): seen.append(message)
        seen = []
        scope = {"type": "http", "method": "GET", "path": "/readyz", "headers": [(b"host", b"localhost")],
                 "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1)}
        await create_app(host)(scope, receive, send)
        assert seen[0]["status"] == 200
asyncio.run(main())
print("jwt" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.process
def test_without_pyjwt_a_section_that_asks_for_tokens_says_what_to_install() -> None:
    code = """
import sys
import importlib.util
sys.modules["jwt"] = None
from toolplug import open_host
section = {"jwt": {"algorithms": ["RS256"], "jwks_url": "https://x", "issuer": "i", "audience": "a"}}
async def main():
    async with open_host({"auth": section}, environ={}):
        pass
import asyncio
from toolplug.errors import ConfigError
try:
    asyncio.run(main())
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert "jwt needs the extra: pip install 'toolplug[auth]'" in done.stdout, done.stderr
