"""Services with one mistake each, which the simulation must find."""

from __future__ import annotations

from typing import Any

from tests.credentials.interleavings.credentials_world import Parts

from toolplug.parts.credentials.exchange import ExchangedTokens
from toolplug.parts.credentials.oauth import LEASE_S, OAuthCredentials
from toolplug.parts.credentials.records import SignIns, TokenRecords
from toolplug.runtime.lru import LeastRecentlyUsed


class _OfTheTenant(LeastRecentlyUsed[str, Any]):
    """A cache whose keys have no subject."""

    def get(self, key: str) -> Any:
        return super().get(key.partition("/")[0])

    def put(self, key: str, value: Any) -> None:
        super().put(key.partition("/")[0], value)


class _OfTheUser(LeastRecentlyUsed[str, Any]):
    """A cache of exchanged tokens whose keys have no credential."""

    def get(self, key: str) -> Any:
        return super().get(key.rpartition("-")[0])

    def put(self, key: str, value: Any) -> None:
        super().put(key.rpartition("-")[0], value)


class _CachesForTheTenant(OAuthCredentials):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._cache = _OfTheTenant(100)


class _NoLeases(TokenRecords):
    async def lease(self, user: str, seconds: float) -> None:
        """Take none."""

    async def is_leased(self, user: str) -> bool:
        """There is none."""
        return False


class _RenewsWithoutALease(OAuthCredentials):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.records = _NoLeases(self._store, self._sealer)


class _AsksTooEarly(OAuthCredentials):
    async def _renew(self, user: Any, owner: Any, oauth: Any, kept: Any, tokens: Any) -> None:
        await self._ask_for_new(user, owner, oauth, kept.connection, tokens, kept.revision)
        await self.records.lease(user, LEASE_S)
        await self.records.release(user)


class _LeavesNoMark(OAuthCredentials):
    async def _renew(self, user: Any, owner: Any, oauth: Any, kept: Any, tokens: Any) -> None:
        await self.records.lease(user, LEASE_S)
        await self._ask_for_new(user, owner, oauth, kept.connection, tokens, kept.revision)
        await self.records.release(user)


class _RenewsAlways(OAuthCredentials):
    async def _present(self, user: Any, owner: Any, oauth: Any, refused: Any) -> str | None:
        kept = await self.records.read(user, owner)
        if kept is not None and kept.tokens is not None and kept.tokens.refresh and not kept.connection.renewing:
            await self._renew(user, owner, oauth, kept, kept.tokens)
        return await super()._present(user, owner, oauth, refused)


class _GivesTheRefused(OAuthCredentials):
    async def credential(self, owner: Any, oauth: Any, who: Any, base: str, refused: str) -> str:
        return await super().credential(owner, oauth, who, base, "")


class _ForgetsOnlyHere(OAuthCredentials):
    async def disconnect(self, owner: Any, oauth: Any, who: Any) -> tuple[bool, bool]:
        return True, False


class _KeepsWhatWasRenewed(OAuthCredentials):
    async def _revoke(self, owner: Any, oauth: Any, tokens: Any) -> bool:
        # Called by `disconnect` alone.
        return bool(tokens.renewed_at == 0.0 or not self._renewals) and await super()._revoke(owner, oauth, tokens)


class _ForgetsWhatItHasNotRead(OAuthCredentials):
    async def _forget_present(self, user: Any, owner: Any) -> Any:
        kept = await self.records.read(user, owner)
        if kept is not None:
            await self.records.forget(user)
        return kept


class _UsesLinksAgain(SignIns):
    async def _use(self, kind: str, secret: str, revision: int) -> bool:
        return True


class _LinksHoldForever(OAuthCredentials):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sign_ins = _UsesLinksAgain(self._store, self._sealer)


class _CachesForTheUser(ExchangedTokens):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._cache = _OfTheUser(100)


class _CachesForever(ExchangedTokens):
    def _get_cached(self, user: str, refused: str) -> str | None:
        cached = self._cache.get(user)
        return None if cached is None or not cached[0] or cached[0] == refused else cached[0]


class _ExchangesWithoutALease(ExchangedTokens):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._tokens.records = _NoLeases(self._tokens._store, self._tokens._sealer)


class _KeepsNothing(ExchangedTokens):
    async def _usable(self, *given: Any) -> None:
        return None


class _WritesAnyway(TokenRecords):
    async def write(self, user: str, *given: Any, expected: int | None, ttl_s: float | None = None) -> int:
        is_exchanged = "-" in user
        return await super().write(user, *given, expected=None if is_exchanged else expected, ttl_s=ttl_s)


class _StoresAfterADisconnect(ExchangedTokens):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._tokens.records = _WritesAnyway(self._tokens._store, self._tokens._sealer)


SEEDED = {
    "a cache without the subject": (Parts(oauth=_CachesForTheTenant), "has the token of"),
    "a renewal without a lease": (Parts(oauth=_RenewsWithoutALease), "again for nothing"),
    "a lease after the issuer is asked": (Parts(oauth=_AsksTooEarly), "two renewals at once"),
    "no mark before the issuer is asked": (Parts(oauth=_LeavesNoMark), "a used refresh token was shown again"),
    "a renewal for each call": (Parts(oauth=_RenewsAlways), "that nobody has refused"),
    "a refused token is given again": (Parts(oauth=_GivesTheRefused), "is given no token"),
    "a disconnect that forgets nothing": (Parts(oauth=_ForgetsOnlyHere), "and its call has a token"),
    "a disconnect that leaves the tokens of a renewal": (Parts(oauth=_KeepsWhatWasRenewed), "and its tokens hold"),
    "a disconnect of what it has not read": (Parts(oauth=_ForgetsWhatItHasNotRead), "and its tokens hold"),
    "a link that holds after its use": (Parts(oauth=_LinksHoldForever), "was used twice"),
    "a cache of exchanged tokens without the credential": (Parts(exchanged=_CachesForTheUser), "has the token of"),
    "a cache of exchanged tokens without an end": (Parts(exchanged=_CachesForever), "of a JWT that had ended before"),
    "an exchange without a lease": (Parts(exchanged=_ExchangesWithoutALease), "two exchanges at once"),
    "an exchanged token that is not shared": (Parts(exchanged=_KeepsNothing), "was exchanged though there was a token"),
    "an exchange that is stored after a disconnect": (Parts(exchanged=_StoresAfterADisconnect), "a token of before"),
}
"""What is wrong → the world in which it is, and the violation that shows it."""
