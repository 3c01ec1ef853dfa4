"""Who comes in: API keys, what a host adds, scopes, tenants, and the one answer for everybody else."""

from __future__ import annotations

import hashlib
import inspect
import re
from pathlib import Path

import pytest
from httpx2 import AsyncClient
from starlette.authentication import (
    AuthCredentials,
    AuthenticationBackend,
    AuthenticationError,
    BaseUser,
    SimpleUser,
    UnauthenticatedUser,
)
from starlette.requests import HTTPConnection
from tests.http.conftest import ALICE, BOB, ROOT, as_holder, client_of, settings

from toolplug import Host, Principal, open_host
from toolplug.errors import ConfigError
from toolplug.http import create_app
from toolplug.http.auth import authentication

pytestmark = pytest.mark.anyio

EMPTY = {"name": "whoami"}


async def who(client: AsyncClient, headers: dict[str, str]) -> dict[str, object]:
    answer = await client.post("/v1/tool-calls", headers=headers, json=EMPTY)
    assert answer.status_code == 200, answer.text
    return answer.json()["structured"]


@pytest.mark.requirement("C-5-auth-bearer")
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer alice-key"},
        {"Authorization": "bearer  alice-key "},
        {"X-API-Key": "alice-key"},
        {"Authorization": "Bearer unknown", "X-API-Key": "alice-key"},
    ],
)
async def test_a_key_travels_as_bearer_or_in_its_own_header(client: AsyncClient, headers: dict[str, str]) -> None:
    assert (await who(client, headers))["subject"] == "alice"


@pytest.mark.requirement("C-5-401", "H-trust-constant-401", "REG-US2-1", "FR-009")
@pytest.mark.parametrize("path", ["/v1/tools", "/v1/samples"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer alice-ke"},
        {"Authorization": "Bearer alice-key1"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic YWxpY2U6YWxpY2Uta2V5"},
        {"Authorization": "alice-key"},
        {"X-API-Key": ""},
        {"X-API-Key": "Bearer alice-key"},
        {"Authorization": "Bearer a.b.c"},
        {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."},
        {"Cookie": "key=alice-key"},
    ],
)
async def test_missing_and_wrong_credentials_get_one_constant_answer(
    client: AsyncClient, headers: dict[str, str], path: str
) -> None:
    answer = await client.get(path, headers={**headers, "X-Request-Id": "same"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json() == {
        "error": {
            "type": "invalid_request",
            "code": "authentication_required",
            "message": "no valid credentials; send Authorization: Bearer KEY, or X-API-Key: KEY",
            "param": None,
            "request_id": "same",
        }
    }


async def test_credentials_in_a_url_are_none(client: AsyncClient) -> None:
    assert (await client.get("/v1/tools?api_key=alice-key&access_token=alice-key")).status_code == 401


@pytest.mark.requirement("C-5-auth-constant")
async def test_every_key_is_compared_whichever_fits(client: AsyncClient) -> None:
    source = inspect.getsource(authentication)
    assert "compare_digest(known, digest)" in source
    assert "sha256(key).digest()" in source
    assert {(await who(client, headers))["subject"] for headers in (ALICE, BOB, ROOT)} == {"alice", "bob", "root"}


@pytest.mark.requirement("C-5-auth-sha256", "C-2-key-file")
async def test_a_key_may_stand_as_its_hash_or_in_a_file(sample_package: None, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("filed-key\n")
    keys = [
        {"sha256": hashlib.sha256(b"hashed-key").hexdigest(), "subject": "hashed"},
        {"key_file": str(tmp_path / "key"), "subject": "filed"},
    ]
    async with open_host(settings(auth={"api_keys": keys}), environ={}) as host, client_of(create_app(host)) as client:
        assert (await who(client, as_holder("hashed-key")))["subject"] == "hashed"
        assert (await who(client, as_holder("filed-key")))["subject"] == "filed"
        digest = hashlib.sha256(b"hashed-key").hexdigest()
        assert (await client.get("/v1/tools", headers=as_holder(digest))).status_code == 401


@pytest.mark.requirement("C-5-auth-empty")
@pytest.mark.parametrize("auth", [{}, {"api_keys": []}, {"basic": {"user": "x"}}, []])
async def test_an_auth_section_that_is_empty_or_of_an_unknown_kind_stops_the_start(
    sample_package: None, auth: object
) -> None:
    with pytest.raises(ConfigError):
        async with open_host(settings(auth=auth), environ={}):
            raise AssertionError("it must not start")


@pytest.mark.requirement("C-5-default-scopes", "C-5-default-tenant", "C-5-providers-admin")
async def test_a_key_without_scopes_and_tenant_reads_and_calls_in_the_default_tenant(sample_package: None) -> None:
    auth = {"api_keys": [{"key": "plain-key", "subject": "plain"}]}
    async with open_host(settings(auth=auth), environ={}) as host, client_of(create_app(host)) as client:
        plain = as_holder("plain-key")
        assert (await who(client, plain))["tenant"] == "default"
        assert (await client.get("/v1/tools", headers=plain)).status_code == 200
        for path in ("/v1/reload", "/v1/providers/sample/enable", "/v1/providers/sample/disable"):
            refused = await client.post(path, headers=plain)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")


@pytest.mark.requirement("C-5-scope-read", "C-5-scope-call", "C-5-scope-own", "C-5-scope-missing", "C-5-scope-admin")
@pytest.mark.parametrize(
    ("method", "path", "scope", "holders"),
    [
        ("GET", "/v1/tools", "tools:read", {"reader-key", "root-key"}),
        ("GET", "/v1/providers", "tools:read", {"reader-key", "root-key"}),
        ("POST", "/v1/tool-calls", "tools:call", {"caller-key", "root-key"}),
        ("GET", "/v1/samples", "tools:call", {"caller-key", "root-key"}),
        ("DELETE", "/v1/samples/7", "samples:write", {"samples-key", "root-key"}),
        ("POST", "/v1/reload", "operator", {"root-key"}),
    ],
)
async def test_each_route_asks_for_its_scope(
    client: AsyncClient, method: str, path: str, scope: str, holders: set[str]
) -> None:
    for key in ("reader-key", "caller-key", "samples-key", "root-key"):
        body = EMPTY if path == "/v1/tool-calls" else None
        answer = await client.request(method, path, headers=as_holder(key), json=body)
        if key in holders:
            assert answer.status_code == 200, (key, answer.text)
        else:
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (403, "insufficient_scope", scope)


@pytest.mark.requirement("REG-auth-automatic", "FR-009")
async def test_every_route_of_a_provider_asks_who_is_there_though_its_author_wrote_nothing_of_it(
    host: Host, client: AsyncClient
) -> None:
    routes = [(item.route.method, item.route.path) for item in host.registry.routes]
    answers = [(await client.request(method, re.sub(r"{[^}]*}", "1", path))).status_code for method, path in routes]
    opened = [place for place, status in zip(routes, answers, strict=True) if status != 401]
    assert opened == [("GET", "/v1/open")]
    assert ("DELETE", "/v1/samples/{number:int}") in routes


@pytest.mark.requirement("C-5-public")
async def test_a_public_route_is_open_only_where_the_operator_agrees(sample_package: None) -> None:
    for agreed, status in ((True, 200), (False, 401)):
        providers = {"sample": {"enabled": True, "public_routes": agreed}}
        async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
            assert (await client.get("/v1/open")).status_code == status
            assert (await client.get("/v1/samples")).status_code == 401


@pytest.mark.requirement("C-5-tenant-everywhere", "FR-013", "REG-US2-3", "C-12-route-tenant")
async def test_the_tenant_is_in_the_context_the_request_and_the_running_code(client: AsyncClient) -> None:
    for headers, tenant in ((ALICE, "t1"), (BOB, "t2")):
        called = await who(client, headers)
        assert (called["tenant"], called["current"]) == (tenant, tenant)
        answered = (await client.get("/v1/samples", headers=headers)).json()
        assert (answered["tenant"], answered["current"]) == (tenant, tenant)


async def test_a_request_leaves_no_tenant_behind_in_its_callers_context(client: AsyncClient) -> None:
    await client.get("/v1/samples", headers=ALICE)
    assert (await client.get("/v1/open")).json() == "default"


def by_header(name: str) -> object:
    """An authenticator that knows one caller, abstains for others, and rejects or fails on demand."""

    async def authenticate(connection: HTTPConnection) -> Principal | None:
        said = connection.headers.get("x-caller")
        if said == "rejected":
            raise AuthenticationError("no")
        if said == "down":
            raise ConnectionError("the user database, with its password")
        return Principal(subject=name, tenant=name, scopes=frozenset({"tools:call"})) if said == name else None

    return authenticate


@pytest.mark.requirement("C-5-auth-chain", "C-5-auth-unknown-key")
async def test_authenticators_answer_abstain_or_reject_one_after_the_other(host: Host) -> None:
    app = create_app(host, authenticators=[by_header("ann"), by_header("ben")])  # type: ignore[list-item]
    async with client_of(app) as client:
        assert (await who(client, ALICE))["subject"] == "alice"
        assert (await who(client, {"X-API-Key": "unknown", "X-Caller": "ann"}))["subject"] == "ann"
        assert (await who(client, {"X-Caller": "ben"}))["tenant"] == "ben"
        assert (await who(client, {**ALICE, "X-Caller": "ben"}))["subject"] == "alice"
        assert (await client.get("/v1/tools", headers={"X-Caller": "nobody"})).status_code == 401
        assert (await client.get("/v1/tools", headers={"X-Caller": "rejected"})).status_code == 401


class Proxied(AuthenticationBackend):
    """Believes what a proxy says in a header: tenant and subject."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser]:
        user = SimpleUser(conn.headers["x-subject"])
        user.tenant = conn.headers["x-tenant"]  # type: ignore[attr-defined]
        return AuthCredentials(["tools:read", "tools:call"]), user


@pytest.mark.requirement("C-5-auth-jwt-names")
@pytest.mark.parametrize("odd", [b"", b"\xa0", b"t\xad1", b"t" * 257])
async def test_a_name_in_a_trusted_header_that_looks_like_another_is_no_principal(host: Host, odd: bytes) -> None:
    async with client_of(create_app(host, authenticators=[Proxied()])) as client:
        good = {"X-Subject": b"ann", "X-Tenant": b"t1"}
        assert (await client.get("/v1/tools", headers=good)).status_code == 200  # type: ignore[arg-type]
        for name in good:
            answer = await client.get("/v1/tools", headers={**good, name: odd})  # type: ignore[arg-type]
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "authentication_required")


@pytest.mark.requirement("H-trust-fail-closed")
async def test_a_credential_store_that_is_down_is_503(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(host, authenticators=[by_header("ann")])  # type: ignore[list-item]
    async with client_of(app) as client:
        for path in ("/v1/tools", "/v1/samples"):
            answer = await client.get(path, headers={"X-Caller": "down"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "auth_unavailable")
            assert "password" not in answer.text + caplog.text
        assert (await client.get("/v1/tools", headers=ALICE)).status_code == 200


class Member(BaseUser):
    """A user with a tenant and agents."""

    is_authenticated = True
    display_name = "Mia Member"
    identity = "mia"
    tenant = "members"
    agents = ("researcher",)


class Backend(AuthenticationBackend):
    """Knows Mia, somebody plain, and a visitor who is nobody."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        users: dict[str, BaseUser] = {"mia": Member(), "plain": SimpleUser("plain"), "nobody": UnauthenticatedUser()}
        user = users.get(conn.headers.get("x-caller", ""))
        return None if user is None else (AuthCredentials(["tools:read", "tools:call"]), user)


@pytest.mark.requirement("C-5-auth-backend")
async def test_a_backend_of_starlette_is_an_authenticator(host: Host) -> None:
    async with client_of(create_app(host, authenticators=[Backend()])) as client:
        assert (await client.get("/v1/tools", headers={"X-Caller": "mia"})).json() == {"tools": []}, "her one agent's"
        assert (await client.get("/v1/samples", headers={"X-Caller": "mia"})).status_code == 403, "nor its routes"
        host.register_toolset("samples", "s", host.registry)
        await host.toolsets.allow("researcher", ("samples",), by=Principal("root", "members"), request_id="")
        called = await client.post("/v1/tool-calls", headers={"X-Caller": "mia"}, json={"name": "s.whoami"})
        assert called.json()["structured"]["tenant"] == "members"
        assert (await who(client, {"X-Caller": "plain"}))["subject"] == "plain"
        assert (await client.get("/v1/tools", headers={"X-Caller": "nobody"})).status_code == 401
        assert (await client.get("/v1/tools")).status_code == 401


@pytest.mark.requirement("C-5-loopback-only")
async def test_a_host_with_only_its_own_authenticators_is_not_open(sample_package: None) -> None:
    async with open_host(settings(auth=None), environ={}) as host:
        app = create_app(host, authenticators=[Backend()])
        async with client_of(app, peer="10.0.0.9") as client:
            assert (await client.get("/v1/tools")).status_code == 401
            assert (await client.get("/v1/tools", headers={"X-Caller": "plain"})).status_code == 200
