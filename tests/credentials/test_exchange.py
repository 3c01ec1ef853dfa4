"""Tokens for which the JWT of a caller is exchanged at an endpoint that checks it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from httpx2 import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.http.served import serving_apart
from tests.responses.backend.script import Call, calls, says
from tests.responses.backend.scripted import ScriptedBackend

from toolplug import CallContext, ConfigError, FunctionProvider, Host, open_host, tool
from toolplug.cli.serving.listening import check_reach
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ISSUER = "https://issuer.example"
PRIVATE = ec.generate_private_key(ec.SECP256R1())
PUBLIC = PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class Exchange:
    """The endpoint: it verifies the JWT, and gives a token that says whose it is."""

    def __init__(self) -> None:
        self.forms: list[dict[str, Any]] = []
        self.basic: list[str | None] = []
        self.life_s: int | None = 3600
        self.takes_s = 0.0
        self.more: dict[str, Any] = {}
        self.app = Starlette(routes=[Route("/token", self.token, methods=["POST"])])

    async def token(self, request: Request) -> Response:
        form = dict(await request.form())
        self.forms.append(form)
        self.basic.append(request.headers.get("authorization"))
        await asyncio.sleep(self.takes_s)
        try:
            claims = jwt.decode(form["subject_token"], PUBLIC, ["ES256"], audience="toolplug", issuer=ISSUER)  # type: ignore[arg-type]
        except jwt.PyJWTError:
            return JSONResponse({"error": "invalid_request"}, status_code=400)
        answer = {"access_token": f"{claims['sub']}-{len(self.forms)}", "token_type": "Bearer"}
        return JSONResponse(answer | ({} if self.life_s is None else {"expires_in": self.life_s}) | self.more)


class Graph(FunctionProvider):
    """Says with what it would act."""

    @tool
    async def me(self, context: CallContext, refused: str = "") -> str:
        """Return the token."""
        return await context.credential(refused)


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


@pytest.fixture
def endpoint(exchange: Exchange) -> Iterator[str]:
    with serving_apart(exchange.app) as port:
        yield f"http://127.0.0.1:{port}/token"


def settings(endpoint: str, **auth: Any) -> dict[str, Any]:
    client = {"client_id": "us", "client_secret": "s3cret"}
    user_auth = {"exchange": {"endpoint": endpoint, "audience": "graph", **client}}
    tokens = {"algorithms": ["ES256"], "public_key": PUBLIC, "issuer": ISSUER, "audience": "toolplug"}
    return {
        "store": "memory://",
        "auth": {"jwt": tokens, "api_keys": [{"key": "a-key", "subject": "ada"}], **auth},
        "http": {"allowed_hosts": ["127.0.0.1"]},
        "providers": {"graph": {"enabled": True, "user_auth": user_auth}},
    }


@asynccontextmanager
async def hosting(endpoint: str) -> AsyncGenerator[tuple[Host, AsyncClient]]:
    async with open_host(settings(endpoint), environ={}, providers={"graph": Graph}) as host:
        base = "http://127.0.0.1:8080"
        async with AsyncClient(transport=ASGITransport(create_app(host)), base_url=base) as client:
            yield host, client


def token_of(subject: str, life_s: float = 600, **claims: Any) -> str:
    payload = {"iss": ISSUER, "aud": "toolplug", "sub": subject, "exp": int(time() + life_s), **claims}
    return jwt.encode(payload, PRIVATE, "ES256")


async def call(client: AsyncClient, token: str, refused: str = "", **headers: str) -> dict[str, Any]:
    body = {"name": "me", "arguments": {"refused": refused}}
    sent = {"authorization": f"Bearer {token}", **headers}
    return (await client.post("/v1/tool-calls", json=body, headers=sent)).json()


@pytest.mark.requirement("I38-exchange")
async def test_a_thousand_first_calls_of_a_user_are_one_exchange_of_its_own_jwt(
    exchange: Exchange, endpoint: str
) -> None:
    exchange.takes_s = 0.2
    async with hosting(endpoint) as (_, client):
        ada, ben = token_of("ada"), token_of("ben")
        results = await asyncio.gather(*(call(client, ada) for _ in range(1_000)))
        assert {result["output"] for result in results} == {"ada-1"}
        assert len(exchange.forms) == 1
        form = exchange.forms[0]
        assert form["subject_token"] == ada
        assert (form["audience"], form["grant_type"].rpartition(":")[2]) == ("graph", "token-exchange")
        assert exchange.basic == ["Basic dXM6czNjcmV0"]
        assert (await call(client, ben))["output"] == "ben-2"


@pytest.mark.requirement("I38-exchange")
async def test_another_client_or_other_scopes_of_a_user_have_a_token_of_their_own(
    exchange: Exchange, endpoint: str
) -> None:
    async with hosting(endpoint) as (_, client):
        tokens = [token_of("ada"), token_of("ada", azp="app"), token_of("ada", scope="tools:call")]
        outputs = [(await call(client, token))["output"] for token in (*tokens, *tokens)]
        assert outputs == ["ada-1", "ada-2", "ada-3"] * 2


@pytest.mark.requirement("I38-exchange")
async def test_an_exchanged_token_lives_no_longer_than_the_jwt(exchange: Exchange, endpoint: str) -> None:
    async with hosting(endpoint) as (_, client):
        assert (await call(client, token_of("ada", life_s=3)))["output"] == "ada-1"
        await asyncio.sleep(3.1)
        assert (await call(client, token_of("ada")))["output"] == "ada-2"


@pytest.mark.requirement("I38-exchange")
async def test_an_exchange_is_read_as_issuers_write_it(exchange: Exchange, endpoint: str) -> None:
    exchange.more = {"scope": None, "expires_in": "3600", "refresh_token": None, "token_type": "bearer"}
    async with hosting(endpoint) as (_, client):
        assert (await call(client, token_of("ada")))["output"] == "ada-1"
        exchange.more = {"token_type": "N_A"}  # of a token that is none for requests: RFC 8693, section 2.2.1
        refused = await call(client, token_of("ben"))
    assert refused["metadata"]["code"] == "credential_needed"
    assert refused["output"].endswith("the token of the issuer is none of the type Bearer")


@pytest.mark.requirement("I38-exchange")
async def test_no_other_credential_than_the_jwt_of_the_caller_is_exchanged(exchange: Exchange, endpoint: str) -> None:
    async with hosting(endpoint) as (_, client):
        by_key = await call(client, "a-key")
        assert (by_key["status"], by_key["metadata"]["code"]) == ("unavailable", "credential_needed")
        assert "call with a JWT" in by_key["metadata"]["credential"]["reason"]
        both = await call(client, token_of("ada"), **{"x-api-key": "a-key"})
        assert both["metadata"]["code"] == "credential_needed"  # the key counts
        assert exchange.forms == []


@pytest.mark.requirement("I38-exchange")
async def test_a_refused_token_is_exchanged_again_once_and_forgotten_on_request(
    exchange: Exchange, endpoint: str
) -> None:
    async with hosting(endpoint) as (_, client):
        ada = token_of("ada")
        first = (await call(client, ada))["output"]
        refused = await call(client, ada, refused=first)
        assert refused["metadata"]["code"] == "credential_needed"  # it was new
        assert (await call(client, ada))["output"] == "ada-2"
        headers = {"authorization": f"Bearer {ada}"}
        (shown,) = (await client.get("/v1/connections", headers=headers)).json()["connections"]
        assert (shown["server"], shown["connected"]) == ("graph", True)
        assert (await client.post("/v1/connections/graph", headers=headers)).status_code == 409
        assert (await client.delete("/v1/connections/graph", headers=headers)).status_code == 200
        (shown,) = (await client.get("/v1/connections", headers=headers)).json()["connections"]
        assert not shown["connected"]


WRONG = [
    ({"exchange": {"endpoint": "https://a.example/token", "client_id": "us"}}, "providers.graph.user_auth.exchange"),
    ({"oauth": {"scopes": ["read"]}}, "providers.graph.user_auth.oauth"),
]


@pytest.mark.parametrize(("auth", "path"), WRONG)
async def test_what_an_entry_lacks_is_said_before_a_start(auth: dict[str, Any], path: str, tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    entry = {"enabled": True, "type": "hello", "user_auth": auth}
    file.write_text(json.dumps({"store": "memory://", "providers": {"graph": entry}}))
    with pytest.raises(ConfigError) as wrong:
        async with open_host(file, environ={}):
            pass
    assert [problem.path for problem in wrong.value.problems] == [path]


@pytest.mark.requirement("I38-reach")
def test_without_auth_a_host_whose_callers_act_as_themselves_is_served_on_the_loopback_only() -> None:
    for address in ("127.0.0.1", "localhost", "::1"):
        check_reach(address, has_auth=False, insecure_no_auth=True, user_auth=["graph"])
    check_reach("0.0.0.0", has_auth=True, insecure_no_auth=False, user_auth=["graph"])
    check_reach("0.0.0.0", has_auth=False, insecure_no_auth=True)
    with pytest.raises(ConfigError, match="'graph' has user_auth"):
        check_reach("0.0.0.0", has_auth=False, insecure_no_auth=True, user_auth=["graph"])


@pytest.mark.requirement("I38-exchange")
async def test_a_response_in_the_background_uses_a_token_that_is_there_and_stores_no_jwt(
    exchange: Exchange, endpoint: str, tmp_path: Path
) -> None:
    backend = ScriptedBackend()
    with serving_apart(backend) as port:
        config = settings(endpoint)
        config["store"] = f"sqlite:///{tmp_path}/state.db"
        config["responses"] = {"backend": {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "k", "model": "m"}}
        async with open_host(config, environ={}, providers={"graph": Graph}) as host:
            base = "http://127.0.0.1:8080"
            async with AsyncClient(transport=ASGITransport(create_app(host)), base_url=base) as client:
                ada = token_of("ada")

                async def respond() -> str:
                    """Make a response in the background, and return what its call has given."""
                    backend.plays(calls(Call("me", "{}", "call_me")), says("done"))
                    headers = {"authorization": f"Bearer {ada}"}
                    body = {"model": "m", "input": "Who am I?", "background": True}
                    made = (await client.post("/v1/responses", json=body, headers=headers)).json()
                    async with asyncio.timeout(30):
                        while made["status"] in {"queued", "in_progress"}:
                            await asyncio.sleep(0.02)
                            made = (await client.get(f"/v1/responses/{made['id']}", headers=headers)).json()
                    return json.dumps(made["output"])

                assert "whose token is kept for its request only" in await respond()
                assert exchange.forms == []
                assert (await call(client, ada))["output"] == "ada-1"
                assert "ada-1" in await respond()
                assert len(exchange.forms) == 1
        stored = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
        assert b"Who am I?" in stored
        assert ada.encode() not in stored


_FIRST_EXCHANGE = """
import asyncio, sys, threading
from importlib.abc import MetaPathFinder
from toolplug import Principal
from toolplug.net.egress import Egress
from toolplug.parts.credentials import oauth
from toolplug.runtime import import_in_thread

class Watch(MetaPathFinder):
    at = []
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("httpx2", "httpcore2"):
            self.at.append(threading.current_thread() is threading.main_thread())

sys.meta_path.insert(0, Watch())

class Tokens(oauth.OAuthCredentials):
    def __init__(self):
        self._egress = lambda: Egress(())

class Owner:
    url = None

async def main():
    await import_in_thread("httpx2")
    async with Tokens().http(Owner(), "https://issuer.example/token"):
        pass

asyncio.run(main())
assert Watch.at and not any(Watch.at), Watch.at
"""


def test_the_client_of_http_is_imported_beside_the_loop() -> None:
    """The first exchanged call held every other one for more than a tenth of a second."""
    subprocess.run([sys.executable, "-c", _FIRST_EXCHANGE], check=True, timeout=60)
