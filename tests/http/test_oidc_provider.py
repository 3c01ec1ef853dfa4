"""A real OpenID provider in front of a host, as docs/how-to/sign-in-with-oidc.md has it: tokens from its endpoint."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import httpx2
import pytest
from httpx2 import AsyncClient
from tests.http.conftest import client_of, settings
from tests.kept_port import kept_port
from tests.node.installed import PACKAGES, installed, node

from toolplug import open_host
from toolplug.http import create_app
from toolplug.http.auth import jwt

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.requirement("I32-oidc"), pytest.mark.leaves("thread")]

RESOURCE = "https://tools.example.org"
ISSUER = PACKAGES / "oidc" / "issuer.mjs"
REFUSED = (401, "authentication_required")
AGENTS: Any = {
    "toolsets": {"desk": {"prefix": "desk", "from": "provider:sample"}},
    "agents": {"clerk": {"toolsets": ["desk"]}},
}


@contextmanager
def provider(port: int) -> Iterator[str]:
    """An OpenID provider with a new key; gives its issuer."""
    place = installed("oidc")
    (place / ISSUER.name).write_bytes(ISSUER.read_bytes())  # packages are looked for beside the program
    command = [str(node()), ISSUER.name, str(port)]
    running = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"ready\n"
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()


def token(
    issuer: str, resource: str = RESOURCE, scope: str = "tools:read tools:call", client: str = "assistant"
) -> dict[str, str]:
    """The header with a token for the resource, from the endpoint that the discovery document names."""
    found = httpx2.get(f"{issuer}/.well-known/openid-configuration").json()
    asked = {"grant_type": "client_credentials", "resource": resource, "scope": scope}
    answer = httpx2.post(found["token_endpoint"], data=asked, auth=(client, f"{client}-secret"))
    return {"Authorization": f"Bearer {answer.json()['access_token']}"}


@asynccontextmanager
async def host_of(issuer: str) -> AsyncIterator[AsyncClient]:
    jwks = httpx2.get(f"{issuer}/.well-known/openid-configuration").json()["jwks_uri"]
    tokens = {
        "algorithms": ["RS256"],
        "issuer": issuer,
        "audience": RESOURCE,
        "jwks_url": jwks,
        "tenant_claim": "tenant",
    }
    whole = settings(auth={"jwt": tokens}, **AGENTS)
    async with open_host(whole, environ={}) as host, client_of(create_app(host)) as client:
        yield client


async def status(client: AsyncClient, headers: dict[str, str]) -> Any:
    answer = await client.post("/v1/tools/desk__whoami", headers=headers)
    body = answer.json()
    return (
        (body["tenant"], body["subject"]) if answer.status_code == 200 else (answer.status_code, body["error"]["code"])
    )


async def test_tokens_of_a_real_provider_name_tenant_subject_and_agent(sample_package: None) -> None:
    with kept_port() as port, provider(port) as issuer:
        async with host_of(issuer) as client:
            good = token(issuer)
            assert await status(client, good) == ("t1", "assistant")
            names = [each["function"]["name"] for each in (await client.get("/v1/tools", headers=good)).json()["tools"]]
            assert all(name.startswith("desk__") for name in names), "the claim names the agent"
            assert await status(client, token(issuer, "https://other.example.org")) == REFUSED
            assert await status(client, token(issuer, scope="tools:read")) == (403, "insufficient_scope")
            assert await status(client, {"Authorization": "Bearer " + good["Authorization"][7:-4] + "AAAA"}) == REFUSED


async def test_a_token_expires_and_a_new_key_is_taken_at_once(
    sample_package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwt, "EARLY_EVERY_S", 0.0)  # a host asks for an unknown key once in five seconds
    async with AsyncExitStack() as stack:
        port = stack.enter_context(kept_port())
        with provider(port) as issuer:
            client = await stack.enter_async_context(host_of(issuer))
            old = token(issuer)
            assert await status(client, old) == ("t1", "assistant")
            short = token(issuer, client="brief")  # of one second, and none is allowed beyond it
            await asyncio.sleep(1.1)
            assert await status(client, short) == REFUSED
        with provider(port) as issuer:  # the same issuer with another key
            assert await status(client, token(issuer)) == ("t1", "assistant")
            assert await status(client, old) == REFUSED
