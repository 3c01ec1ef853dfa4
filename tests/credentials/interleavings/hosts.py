"""A host of the simulation: the product's service of tokens, with a store and an issuer that are a way off.

The process can be killed at each of its awaits: from then on nothing that it does arrives anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import httpx2
from tests.credentials.interleavings.issuer import ISSUER, Issuer
from tests.virtual_time import virtual_clock

from toolplug.errors import StoreUnavailable
from toolplug.execution.user_auth import AuthOwner, UserAuth
from toolplug.host.file.settings import Auth
from toolplug.host.keys import Sealer
from toolplug.part_protocols.host_part import PartServices
from toolplug.parts.credentials.exchange import ExchangedTokens
from toolplug.parts.credentials.oauth import OAuthCredentials
from toolplug.parts.credentials.records import LEASES, TOKENS
from toolplug.parts.credentials.service import TokenService
from toolplug.stores.store import DelegatingStore, Record, Store

T = TypeVar("T")

TRIP_S = 0.2
SERVERS = {name: AuthOwner("mcp", name, f"https://{name}.example/mcp") for name in ("jira", "wiki")}
"""Servers at whose issuer users sign in."""
SIGNING_IN = UserAuth.model_validate({"oauth": {"scopes": ["read"]}})
GRAPH = AuthOwner("provider", "graph")
EXCHANGING = UserAuth.model_validate({"exchange": {"endpoint": f"{ISSUER}/token", "client_id": "us"}})
_AUTH = Auth.model_validate(
    {"jwt": {"algorithms": ["ES256"], "jwks_url": f"{ISSUER}/keys", "issuer": ISSUER, "audience": "toolplug"}}
)
_KEY = b"0" * 32


class ProcessDied(BaseException):
    """Ends what a killed process does. No `Exception`: nothing may go on by handling it."""


class Way(DelegatingStore):
    """The way of one host to the store: trips take a while, and a part of the changes is not known to have arrived."""

    def __init__(self, store: Store, host: SimulatedHost, failing: float, spoil: Callable[[str], None]) -> None:
        super().__init__(store)
        self._host = host
        self._failing = failing
        self._spoil = spoil

    async def read(self, key: str) -> Record | None:
        """Make a trip."""
        return await self._host.trip(lambda: self._store.read(key))

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Make a trip."""
        return await self._host.trip(lambda: self._store.keys(prefix, after=after, limit=limit))

    async def commit(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int | None = None,
        ttl_s: float | None = None,
        events: Sequence[bytes] = (),
        to: str | None = None,
    ) -> int:
        """Make a trip; note which users' tokens are being renewed."""
        user = key.removeprefix(LEASES).removeprefix(TOKENS)
        if key.startswith(LEASES) and value is not None:
            self._host.renewing.add(user)
        fails = self._host.numbers.random() < self._failing
        if fails:
            self._spoil(user)
        if not fails or self._host.numbers.random() < 0.5:
            revision = await self._host.trip(
                lambda: self._store.commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
            )
        else:
            revision = 0
            await self._host.pause()
        if fails:
            raise StoreUnavailable("the way to the store is cut")
        if key.startswith(LEASES) and value is None:
            self._host.renewing.discard(user)
        return revision


class SimulatedHost:
    """One process. `deadly` is how likely it is killed at an await; `on_death` is called when it is."""

    def __init__(
        self,
        store: Store,
        issuer: Issuer,
        numbers: Random,
        oauth: type[OAuthCredentials] = OAuthCredentials,
        exchanged: type[ExchangedTokens] = ExchangedTokens,
        *,
        failing: float = 0.0,
        spoil: Callable[[str], None] = lambda user: None,
        on_death: Callable[[SimulatedHost], None] = lambda host: None,
    ) -> None:
        self.numbers = numbers
        self.deadly = 0.0
        self.dead = False
        self.renewing: set[str] = set()
        self._on_death = on_death
        self._issuer = issuer
        self._client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._ask), trust_env=False)
        way, sealer = Way(store, self, failing, spoil), Sealer(lambda: [_KEY], lambda: None, "credentials")

        async def sealing(purpose: str = "credentials") -> Sealer:
            return sealer

        self.sealing = sealing
        settings = SimpleNamespace(auth=_AUTH, egress=SimpleNamespace(allow=()))
        services = SimpleNamespace(store=way, sealing=sealing, configuration=lambda: SimpleNamespace(settings=settings))
        self.service = TokenService(cast("PartServices", services))
        self.service.oauth = oauth(way, sealing, cast("Any", None))
        self.service.oauth.http = self._http
        self.service.exchanged = exchanged(self.service.oauth, lambda: _AUTH)

    async def pause(self) -> None:
        """Let others run, for a while or not at all. Raises `ProcessDied`."""
        self._check()
        if self.deadly and self.numbers.random() < self.deadly:
            self.dead = True
            self._on_death(self)
            raise ProcessDied
        await asyncio.sleep(self.numbers.choice((0.0, 0.0, self.numbers.random() * TRIP_S)))
        self._check()

    async def trip(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Go there, do it, and come back."""
        await self.pause()
        answer = await operation()
        await self.pause()
        return answer

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.aclose()

    def _check(self) -> None:
        if self.dead:
            raise ProcessDied

    @asynccontextmanager
    async def _http(self, owner: AuthOwner, issuer: str) -> AsyncGenerator[httpx2.AsyncClient]:
        yield self._client

    async def _ask(self, request: httpx2.Request) -> httpx2.Response:
        sent_at = virtual_clock()
        return await self.trip(lambda: self._issuer.answer(request, sent_at))
