"""Links with which users sign in: made by a call that needs a token, pressed in a browser, answered by the issuer.

`credentials/link/<digest of the link's secret>`   who is to sign in where; until it is pressed, at most ten minutes
`credentials/state/<digest of the state>`          what was sent to the issuer, and which browser has pressed

Both are sealed, and used once. The state is another secret than the link: who has sent a link to a user knows neither
the state nor the cookie of the browser.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pydantic import BaseModel

from toolplug.catalog.call import Principal
from toolplug.errors import StoreConflict, Unsealable
from toolplug.execution.user_auth import AuthOwner
from toolplug.host.keys import Sealer
from toolplug.parts.credentials.tokens import UserTokens
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.stores.store import Store, name_digest

LINKS = "credentials/link/"
STATES = "credentials/state/"
LIFE_S = 600.0
"""Of a link, and of a sign-in at the issuer: a person finds a second factor in that time."""
_FRESH_S = 300.0
"""A link is given once more while it holds at least so long: a model repeats a call, and its user presses one link."""
MAX_FRESH = 10_000
_SECRET_BYTES = 32


class AskedSignIn(BaseModel, frozen=True):
    """Who is to sign in where. `base` is the URL of the host that the browser knows; `expires_at` in epoch seconds."""

    tenant: str
    subject: str
    kind: str
    key: str
    url: str = ""
    base: str
    expires_at: float

    @property
    def owner(self) -> AuthOwner:
        return AuthOwner(self.kind, self.key, self.url)

    @property
    def principal(self) -> Principal:
        return Principal(self.subject, self.tenant)


class BegunSignIn(BaseModel, frozen=True):
    """What was sent to the issuer, and the digest of the browser's cookie; `start` has the client, and no tokens.

    With a `nonce` it is the sign-in of the browser to the host itself, before that at the issuer of the server.
    `is_named`: the issuer's name is known, so that its answers have to name it.
    """

    asked: AskedSignIn
    start: UserTokens
    issuer: str
    metadata: str
    scope: str
    verifier: str
    browser: str
    nonce: str = ""
    is_named: bool = True


class SignInLink(NamedTuple):
    """A link for a user, and until when it holds, in epoch seconds."""

    url: str
    expires_at: float


class SignIns:
    """The links and states of all processes. Methods raise `StoreError` and `HostKeyError`."""

    def __init__(self, store: Store, sealer: Callable[[], Awaitable[Sealer]]) -> None:
        self._store = store
        self._sealer = sealer
        self._fresh: LeastRecentlyUsed[tuple[str, ...], tuple[str, AskedSignIn]] = LeastRecentlyUsed(MAX_FRESH)

    async def link(self, owner: AuthOwner, principal: Principal, base: str) -> SignInLink:
        """Return a link for this user, the last one if it has not been pressed."""
        who = (principal.tenant, principal.subject, *owner, base)
        fresh = self._fresh.get(who)
        if (
            fresh is None
            or fresh[1].expires_at - self._store.now() < _FRESH_S
            or await self.find_link(fresh[0]) is None
        ):
            expires_at = self._store.now() + LIFE_S
            user = {"tenant": principal.tenant, "subject": principal.subject, **owner._asdict()}
            asked = AskedSignIn(**user, base=base, expires_at=expires_at)
            fresh = secrets.token_urlsafe(_SECRET_BYTES), asked
            await self._write(LINKS, fresh[0], asked)
            self._fresh.put(who, fresh)
        return SignInLink(f"{base}/connect/{fresh[0]}", fresh[1].expires_at)

    async def find_link(self, secret: str) -> AskedSignIn | None:
        """Return what a link is for; None for an unknown, used or expired one."""
        found = await self._read(LINKS, secret)
        return None if found is None else AskedSignIn.model_validate_json(found[0])

    async def press(self, secret: str) -> AskedSignIn | None:
        """Use a link up, and return what it is for; None as `find_link`."""
        found = await self._read(LINKS, secret)
        if found is None or not await self._use(LINKS, secret, found[1]):
            return None
        return AskedSignIn.model_validate_json(found[0])

    async def begin(self, state: str, begun: BegunSignIn) -> None:
        """Keep what was sent to the issuer until its answer."""
        await self._write(STATES, state, begun)

    async def take_state(self, state: str, browser: str) -> BegunSignIn | None:
        """Use a state up, and return its sign-in; None for an unknown, used or expired one, or of another browser."""
        found = await self._read(STATES, state)
        if found is None:
            return None
        begun = BegunSignIn.model_validate_json(found[0])
        if not secrets.compare_digest(begun.browser, name_digest(browser)):
            return None
        return begun if await self._use(STATES, state, found[1]) else None

    async def _write(self, kind: str, secret: str, value: BaseModel) -> None:
        name = name_digest(secret)
        sealed = (await self._sealer()).seal(value.model_dump_json().encode(), f"{kind}{name}".encode())
        await self._store.commit(kind + name, sealed, expected=0, ttl_s=LIFE_S)

    async def _read(self, kind: str, secret: str) -> tuple[bytes, int] | None:
        name = name_digest(secret)
        record = await self._store.read(kind + name)
        if record is None:
            return None
        try:
            return (await self._sealer()).unseal(record.value, f"{kind}{name}".encode()), record.revision
        except Unsealable:
            return None

    async def _use(self, kind: str, secret: str, revision: int) -> bool:
        try:
            await self._store.commit(kind + name_digest(secret), None, expected=revision)
        except StoreConflict:
            return False
        return True
