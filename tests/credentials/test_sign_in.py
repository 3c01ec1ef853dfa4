"""Users who sign in at the issuer of a server: the link, the browser, the calls, the renewal, and the end."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from httpx2 import ASGITransport, AsyncClient
from httpx2 import Response as Answer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.credentials.oauth_server import LISTING, Accounts, serving_oauth
from tests.http.served import serving_apart
from tests.responses.backend.script import Call, calls, says
from tests.responses.backend.scripted import ScriptedBackend

from toolplug import Host, Principal, open_host
from toolplug.errors import HostKeyError
from toolplug.execution.user_auth import AuthOwner
from toolplug.host.keys.host_key import FILE, rotate_keys
from toolplug.http import create_app
from toolplug.parts.credentials.issuers import is_same_issuer
from toolplug.parts.credentials.oauth import OAuthCredentials
from toolplug.parts.credentials.records import user_key
from toolplug.parts.credentials.running import RunningCredentials
from toolplug.parts.credentials.service import tokens_of

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

KEYS = [
    {"key": "ada-key", "subject": "ada", "tenant": "acme"},
    {"key": "ben-key", "subject": "ben", "tenant": "acme"},
    {"key": "boss-key", "subject": "eve", "tenant": "acme", "scopes": ["admin"]},
]


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


@pytest.fixture
def url(accounts: Accounts) -> Iterator[str]:
    with serving_oauth(accounts) as found:
        yield found


def settings(url: str, tmp_path: Path) -> dict[str, Any]:
    entry = {
        "url": url,
        "headers": {"Authorization": f"Bearer {LISTING}"},
        "prefix": "who",
        "user_auth": {"oauth": {"scopes": ["read"]}},
    }
    return {
        "store": f"sqlite:///{tmp_path}/state.db",
        "auth": {"api_keys": KEYS},
        "http": {"allowed_hosts": ["127.0.0.1"]},
        "egress": {"allow": ["loopback"]},
        "mcp_servers": {"who": entry},
    }


@asynccontextmanager
async def hosting(config: dict[str, Any]) -> AsyncGenerator[tuple[Host, AsyncClient]]:
    async with open_host(config, environ={}) as host:
        async with asyncio.timeout(20):
            while "who.whoami" not in host.executor_for(Principal("ada", "acme")).catalog:
                await asyncio.sleep(0.01)
        async with browser(host) as client:
            yield host, client


def browser(host: Host) -> AsyncClient:
    """A client that keeps cookies, as a browser does."""
    return AsyncClient(transport=ASGITransport(create_app(host)), base_url="http://127.0.0.1:8080")


async def call(client: AsyncClient, who: str) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {who}-key"}
    answer = await client.post("/v1/tool-calls", json={"name": "who.whoami", "arguments": {}}, headers=headers)
    return answer.json()


async def press(client: AsyncClient, link: str) -> Answer:
    """Press the button, sign in at the issuer, and come back."""
    begun = await client.post(urlsplit(link).path)
    assert begun.status_code == 303, begun.text
    async with AsyncClient() as at_issuer:
        back = (await at_issuer.get(begun.headers["location"])).headers["location"]
    return await client.get(back)


async def signed_in(client: AsyncClient, accounts: Accounts, who: str) -> None:
    accounts.user = who
    needed = await call(client, who)
    assert (await press(client, needed["metadata"]["sign_in"]["url"])).status_code == 200


@pytest.mark.requirement("I38-sign-in")
async def test_each_user_signs_in_once_and_calls_as_itself(accounts: Accounts, url: str, tmp_path: Path) -> None:
    async with hosting(settings(url, tmp_path)) as (host, client), browser(host) as other:
        needed = await call(client, "ada")
        assert (needed["status"], needed["metadata"]["code"]) == ("unavailable", "sign_in_needed")
        link = needed["metadata"]["sign_in"]
        assert (set(link), link["server"]) == ({"url", "server", "expires_at"}, "who")
        assert link["url"].startswith("http://127.0.0.1:8080/connect/")
        assert link["url"] in needed["output"]
        assert (await call(client, "ada"))["metadata"]["sign_in"] == link  # the same, until it is pressed

        page = await client.get(urlsplit(link["url"]).path)
        assert page.status_code == 200
        assert all(text in page.text for text in ("who", "ada", "acme", "read", "<button>"))
        assert (await client.get(urlsplit(link["url"]).path)).status_code == 200  # a look changes nothing
        assert (await press(client, link["url"])).status_code == 200
        assert (await call(client, "ada"))["output"] == "ada"

        await signed_in(other, accounts, "ben")
        assert [(await call(client, who))["output"] for who in ("ada", "ben", "ada")] == ["ada", "ben", "ada"]
        asked = accounts.asked[0]
        assert (asked.resource, asked.scopes) == (url, ["read"])
        assert len(accounts.clients) == 1  # registered once


@pytest.mark.requirement("I38-sign-in")
async def test_an_application_with_one_key_names_the_person_of_each_call(
    accounts: Accounts, url: str, tmp_path: Path
) -> None:
    config = settings(url, tmp_path)
    scopes = ["tools:read", "tools:call", "delegate"]
    config["auth"]["api_keys"] = [{"key": "app-key", "subject": "app", "tenant": "acme", "scopes": scopes}]

    async def call_for(client: AsyncClient, who: str) -> dict[str, Any]:
        sent = {"authorization": "Bearer app-key", "toolplug-principal": f"tenant=acme&subject={who}"}
        body = {"name": "who.whoami", "arguments": {}}
        return (await client.post("/v1/tool-calls", json=body, headers=sent)).json()

    async with hosting(config) as (_, client):
        for who in ("ada", "ben"):
            accounts.user = who
            needed = (await call_for(client, who))["metadata"]
            assert needed["code"] == "sign_in_needed"
            assert (await press(client, needed["sign_in"]["url"])).status_code == 200
        assert [(await call_for(client, who))["output"] for who in ("ada", "ben", "ada")] == ["ada", "ben", "ada"]
        assert (await call(client, "app"))["metadata"]["code"] == "sign_in_needed"  # the application is nobody of them


@pytest.mark.requirement("I38-sign-in")
async def test_a_link_is_used_once_and_by_the_browser_that_has_pressed_it(
    accounts: Accounts, url: str, tmp_path: Path
) -> None:
    async with hosting(settings(url, tmp_path)) as (host, client), browser(host) as other:
        path = urlsplit((await call(client, "ada"))["metadata"]["sign_in"]["url"]).path
        begun = await client.post(path)
        assert (await client.post(path)).status_code == 410
        assert (await client.get(path)).status_code == 410
        async with AsyncClient() as at_issuer:
            back = (await at_issuer.get(begun.headers["location"])).headers["location"]
        assert (await other.get(back)).status_code == 410  # a browser that has not pressed
        foreign = back + "&iss=https://other.example"
        assert (await client.get(foreign)).status_code == 502
        assert (await client.get(back)).status_code == 410  # used up
        assert (await call(client, "ada"))["metadata"]["code"] == "sign_in_needed"
        accounts.user = None
        link = (await call(client, "ada"))["metadata"]["sign_in"]["url"]
        denied = await press(client, link)
        assert (denied.status_code, "access_denied" in denied.text) == (400, True)
        assert (await client.get("/connect/guess")).status_code == 410


@pytest.mark.requirement("I38-renewal")
async def test_a_refused_token_is_renewed_once_by_a_thousand_calls_and_over_two_processes(
    accounts: Accounts, url: str, tmp_path: Path
) -> None:
    config = settings(url, tmp_path)
    config["store"] += "?shared=true"
    async with hosting(config) as (_, client), hosting(config) as (_, second):
        await signed_in(client, accounts, "ada")
        assert [(await call(each, "ada"))["output"] for each in (client, second)] == ["ada", "ada"]
        accounts.expire()
        calls = [call(client if n % 2 else second, "ada") for n in range(40)]
        assert {result["output"] for result in await asyncio.gather(*calls)} == {"ada"}
        assert len(accounts.refreshes) == 1


@pytest.mark.requirement("I38-renewal")
async def test_a_refresh_token_that_no_longer_holds_costs_one_sign_in(
    accounts: Accounts, url: str, tmp_path: Path
) -> None:
    async with hosting(settings(url, tmp_path)) as (_, client):
        await signed_in(client, accounts, "ada")
        accounts.tokens.clear()
        assert (await call(client, "ada"))["metadata"]["code"] == "sign_in_needed"
        await signed_in(client, accounts, "ada")
        assert (await call(client, "ada"))["output"] == "ada"


@pytest.mark.requirement("I38-renewal")
async def test_a_refresh_token_of_a_process_that_has_died_while_it_renewed_is_not_shown_again(
    accounts: Accounts, url: str, tmp_path: Path
) -> None:
    async with hosting(settings(url, tmp_path)) as (host, client):
        await signed_in(client, accounts, "ada")
        part = host.part(RunningCredentials)
        assert part is not None
        records, (owner, _) = tokens_of(part).oauth.records, part.entries()["who"]
        user = user_key(owner, Principal("ada", "acme"))
        kept = await records.read(user, owner)
        assert kept is not None
        assert kept.tokens is not None
        marked = kept.connection.model_copy(update={"renewing": "of-the-dead"})
        await records.write(user, owner, marked, kept.tokens, expected=kept.revision)
        assert (await call(client, "ada"))["metadata"]["code"] == "sign_in_needed"
        assert accounts.refreshes == []


@pytest.mark.requirement("I38-connections-route")
async def test_a_caller_sees_and_ends_its_connections_and_an_admin_those_of_its_tenant(
    accounts: Accounts, url: str, tmp_path: Path
) -> None:
    def of(who: str) -> dict[str, str]:
        return {"authorization": f"Bearer {who}-key"}

    async with hosting(settings(url, tmp_path)) as (_, client):
        (before,) = (await client.get("/v1/connections", headers=of("ada"))).json()["connections"]
        assert (before["server"], before["kind"], before["connected"]) == ("who", "mcp", False)
        made = (await client.post("/v1/connections/who", headers=of("ada"))).json()
        assert (await press(client, made["url"])).status_code == 200
        (after,) = (await client.get("/v1/connections", headers=of("ada"))).json()["connections"]
        assert (after["connected"], after["scopes"]) == (True, ["read"])
        assert "access" not in str(after)
        assert "refresh" not in str(after)
        query = {"caller": "ada"}
        assert (await client.get("/v1/connections", headers=of("ben"), params=query)).status_code == 403
        (seen,) = (await client.get("/v1/connections", headers=of("boss"), params=query)).json()["connections"]
        assert seen["connected"]
        ended = await client.delete("/v1/connections/who", headers=of("boss"), params=query)
        assert ended.json() == {"server": "who", "connected": False, "revoked": True}
        assert len(accounts.revoked) == 1
        assert (await call(client, "ada"))["metadata"]["code"] == "sign_in_needed"
        assert (await client.delete("/v1/connections/who", headers=of("ada"))).status_code == 404
        assert (await client.post("/v1/connections/nothing", headers=of("ada"))).status_code == 404


@pytest.mark.requirement("I38-sealed")
async def test_no_token_stands_in_the_store_in_clear(accounts: Accounts, url: str, tmp_path: Path) -> None:
    async with hosting(settings(url, tmp_path)) as (_, client):
        await signed_in(client, accounts, "ada")
        assert (await call(client, "ada"))["output"] == "ada"
    (refresh,) = accounts.tokens
    (access,) = accounts.tokens[refresh].access
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    assert b"credentials/token/" in stored
    assert access.encode() not in stored
    assert refresh.encode() not in stored


async def test_the_document_of_the_host_as_a_client_names_its_callback(url: str, tmp_path: Path) -> None:
    async with hosting(settings(url, tmp_path)) as (_, client):
        document = (await client.get("/connect/client.json")).json()
        assert document["client_id"] == "http://127.0.0.1:8080/connect/client.json"
        assert document["redirect_uris"] == ["http://127.0.0.1:8080/connect/callback"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://id.example", "https://id.example", True),
        ("https://id.example/", "https://id.example", True),
        ("https://id.example/a", "https://id.example/a/", False),
        ("https://id.example", "http://id.example", False),
        ("https://id.example", "https://id.example.org", False),
        ("https://id.example//", "https://id.example", False),
    ],
)
def test_an_issuer_has_one_name_and_a_root_its_slash_or_not(one: str, other: str, same: bool) -> None:
    assert is_same_issuer(one, other) is same is is_same_issuer(other, one)


@pytest.mark.requirement("I38-host-key")
async def test_the_key_is_rotated_beside_running_hosts_and_nobody_signs_in_again(
    accounts: Accounts, url: str, tmp_path: Path
) -> None:
    config = settings(url, tmp_path)
    config["store"] += "?shared=true"
    operator = Principal("root", scopes=frozenset({"admin", "operator"}))
    async with hosting(config) as (host, client), hosting(config) as (_, second):
        await signed_in(client, accounts, "ada")
        assert rotate_keys(tmp_path / FILE) == 2
        await host.reload(by=operator)
        await signed_in(client, accounts, "ben")  # sealed with the new key
        assert [(await call(second, who))["output"] for who in ("ada", "ben")] == ["ada", "ben"]
        accounts.expire()
        assert [(await call(second, who))["output"] for who in ("ada", "ben")] == ["ada", "ben"]
    async with hosting(config) as (_, client):
        assert [(await call(client, who))["output"] for who in ("ada", "ben")] == ["ada", "ben"]
    lines = (tmp_path / FILE).read_text("utf-8").split()
    (tmp_path / FILE).write_text("\n".join(lines[1:]), "utf-8")  # the former key alone
    with pytest.raises(HostKeyError, match="key is not that of this store"):
        async with hosting(config):
            pass


@pytest.mark.requirement("I38-renewal")
async def test_the_issuer_is_asked_under_a_lease_and_after_the_record_says_so(
    accounts: Accounts, url: str, tmp_path: Path
) -> None:
    async with hosting(settings(url, tmp_path)) as (host, client):
        await signed_in(client, accounts, "ada")
        part = host.part(RunningCredentials)
        assert part is not None
        records, (owner, _) = tokens_of(part).oauth.records, part.entries()["who"]
        user = user_key(owner, Principal("ada", "acme"))
        accounts.expire()
        accounts.hold.clear()
        calling = asyncio.ensure_future(call(client, "ada"))
        async with asyncio.timeout(20):
            while not accounts.refreshes:
                await asyncio.sleep(0.01)
        kept = await records.read(user, owner)
        assert kept is not None
        assert kept.connection.renewing
        assert await records.is_leased(user)
        accounts.hold.set()
        assert (await calling)["output"] == "ada"
        kept = await records.read(user, owner)
        assert kept is not None
        assert not kept.connection.renewing
        assert not await records.is_leased(user)


@pytest.mark.requirement("I38-sign-in")
async def test_browsers_come_back_to_the_public_url_alone(accounts: Accounts, url: str, tmp_path: Path) -> None:
    config = settings(url, tmp_path)
    config["http"] = {"public_url": "https://tools.example", "allowed_hosts": ["127.0.0.1", "other.example"]}
    async with hosting(config) as (_, client):
        headers = {"authorization": "Bearer ada-key", "host": "other.example:8080"}
        body = {"name": "who.whoami", "arguments": {}}
        needed = (await client.post("/v1/tool-calls", json=body, headers=headers)).json()
        link = needed["metadata"]["sign_in"]["url"]
        assert link.startswith("https://tools.example/connect/")
        begun = await client.post(urlsplit(link).path, headers={"host": "other.example:8080"})
        assert begun.status_code == 303
        sent = parse_qs(urlsplit(begun.headers["location"]).query)
        assert sent["redirect_uri"] == ["https://tools.example/connect/callback"]
        assert sent["code_challenge_method"] == ["S256"]
        assert "secure" in begun.headers["set-cookie"].lower()
        assert "httponly" in begun.headers["set-cookie"].lower()
    del config["http"]["public_url"]
    async with hosting(config) as (_, client):
        needed = (await client.post("/v1/tool-calls", json=body, headers=headers)).json()
        assert needed["metadata"]["code"] == "credential_needed"  # a name that a request brings is no place for a link
        assert "http.public_url" in needed["output"]


@pytest.mark.requirement("I38-sign-in")
async def test_an_issuer_at_a_private_address_is_refused_and_the_page_names_the_setting(tmp_path: Path) -> None:
    with serving_apart(naming("http://10.1.2.3:8443")) as port:
        config = settings(f"http://127.0.0.1:{port}/mcp", tmp_path)
        del config["egress"]
        async with open_host(config, environ={}) as host, browser(host) as client:
            made = await client.post("/v1/connections/who", headers={"authorization": "Bearer ada-key"})
            refused = await client.post(urlsplit(made.json()["url"]).path)
            assert (refused.status_code, "egress.allow" in refused.text) == (502, True), refused.text


def naming(issuer: str) -> Starlette:
    """A server that names an issuer, and has nothing else."""

    async def endpoint(request: Request) -> Response:
        described = f"{request.base_url}.well-known/oauth-protected-resource"
        return Response(status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{described}"'})

    async def metadata(request: Request) -> JSONResponse:
        return JSONResponse({"resource": f"{request.base_url}mcp", "authorization_servers": [issuer]})

    return Starlette(routes=[Route("/mcp", endpoint), Route("/.well-known/oauth-protected-resource", metadata)])


@pytest.mark.requirement("I38-sign-in")
@pytest.mark.parametrize("pinned", [False, True])
async def test_the_address_of_an_issuer_is_allowed_by_the_file_alone(
    accounts: Accounts, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pinned: bool
) -> None:
    allowed: list[str | None] = []
    opening = OAuthCredentials.http

    def http(self: OAuthCredentials, owner: AuthOwner, issuer: str | None) -> Any:
        allowed.append(issuer)
        return opening(self, owner, issuer)

    monkeypatch.setattr(OAuthCredentials, "http", http)
    config, named = settings(url, tmp_path), url.removesuffix("/mcp") if pinned else None
    config["mcp_servers"]["who"]["user_auth"]["oauth"] |= {"issuer": named} if named else {}
    async with hosting(config) as (_, client):
        await signed_in(client, accounts, "ada")
        assert (await call(client, "ada"))["output"] == "ada"
        accounts.expire()
        assert (await call(client, "ada"))["output"] == "ada"
        headers = {"authorization": "Bearer ada-key"}
        assert (await client.delete("/v1/connections/who", headers=headers)).json()["revoked"]
    assert allowed == [named] * 4  # for the link, the code, the renewal and the end


@pytest.mark.requirement("I38-sign-in")
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_the_link_is_in_what_a_model_gets_and_a_client_is_shown(url: str, tmp_path: Path, path: str) -> None:
    backend = ScriptedBackend()
    backend.plays(calls(Call("who__whoami", "{}", "c1")), says("Sign in first."))
    with serving_apart(backend) as port:
        config = settings(url, tmp_path)
        config["responses"] = {"backend": {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "k", "model": "m"}}
        async with hosting(config) as (_, client):
            chat = path.endswith("completions")
            asked = {"messages": [{"role": "user", "content": "Who?"}]} if chat else {"input": "Who?"}
            body = {"model": "m", **asked}
            headers = {"authorization": "Bearer ada-key"}
            answer = (await client.post(path, json=body, headers=headers)).json()
    [link] = set(re.findall(r"http://127\.0\.0\.1:8080/connect/[\w-]+", json.dumps(backend.asked[-1].body)))
    shown = json.dumps(answer)
    assert chat or link in shown, shown
