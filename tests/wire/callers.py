"""Callers of a deployment: each has a key, which names tenant, subject, scopes and agents."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from secrets import token_hex
from typing import Any

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

USUAL = "tools:read tools:call sessions:write approvals:write"
ISSUER, AUDIENCE = "https://issuer.example", "toolplug"
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a test knows of the hosts: where they are, and how to get keys. `far` is another host with MCP."""

    name: str
    url: str
    signing_key: ec.EllipticCurvePrivateKey
    far: str

    def key(self, tenant: str, scope: str = USUAL, subject: str = "alice", **claims: object) -> str:
        """A key of its own."""
        whole = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 3600, "sub": subject}
        whole |= {"tenant": tenant, "scope": scope, **claims}
        return jwt.encode(whole, self.signing_key, "ES256")


def jwt_section(signing_key: ec.EllipticCurvePrivateKey) -> dict[str, object]:
    """The settings with which hosts accept what the key has signed."""
    public = signing_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return {"algorithms": ["ES256"], "public_key": public, "issuer": ISSUER, "audience": AUDIENCE}


def new_name(what: str) -> str:
    """A name that nothing else in a deployment has."""
    return f"{what}-{token_hex(6)}"


@asynccontextmanager
async def client_of(url: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """A client whose requests have connections of their own, so that each may reach another process."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    transport = httpx2.AsyncHTTPTransport(verify=_no_tls(), limits=limits)
    async with httpx2.AsyncClient(transport=transport, base_url=url, headers=headers, timeout=PATIENCE_S) as client:
        yield client


Caller = Callable[..., Any]


@asynccontextmanager
async def callers(deployment: Deployment) -> AsyncIterator[Caller]:
    """Makes callers: by default alice, of a tenant that nobody else has. They end with the block."""
    async with AsyncExitStack() as life:

        async def caller(tenant: str = "", **claims: Any) -> httpx2.AsyncClient:
            key = deployment.key(tenant or new_name("tenant"), **claims)
            return await life.enter_async_context(client_of(deployment.url, {"Authorization": f"Bearer {key}"}))

        yield caller


@cache
def _no_tls() -> ssl.SSLContext:
    """Shared by all clients: to make one takes longer than a request."""
    return ssl.create_default_context()
