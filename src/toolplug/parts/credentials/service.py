"""The tokens of users, of both kinds; loaded for the first call or route that needs them."""

from __future__ import annotations

from typing import cast

from toolplug.catalog.call import CallContext, Principal
from toolplug.execution.user_auth import AuthOwner, UserAuth
from toolplug.net.egress import Egress
from toolplug.parts.credentials.exchange import ExchangedTokens
from toolplug.parts.credentials.oauth import OAuthCredentials
from toolplug.parts.credentials.running import PURPOSE, RunningCredentials
from toolplug.providers.host_part import PartServices


class TokenService:
    """The tokens of a host's users who sign in, or whose own are exchanged."""

    def __init__(self, services: PartServices) -> None:
        settings = lambda: services.configuration().settings  # noqa: E731  two readers
        self.oauth: OAuthCredentials = OAuthCredentials(
            services.store, lambda: services.sealing(PURPOSE), lambda: Egress(settings().egress.allow)
        )
        self.exchanged: ExchangedTokens = ExchangedTokens(self.oauth, lambda: settings().auth)

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, base: str, refused: str) -> str:
        """Return the token of this caller; `base` is the URL for a link. Raises `ToolUnavailable`."""
        if auth.exchange is not None:
            return await self.exchanged.credential(owner, auth.exchange, context, refused)
        assert auth.oauth is not None, "the other kind needs no tokens"
        return await self.oauth.credential(owner, auth.oauth, context.principal, base, refused)

    async def disconnect(self, owner: AuthOwner, who: Principal) -> tuple[bool, bool]:
        """Forget the tokens of a user, and return whether there were some, and whether the issuer has revoked them."""
        if await self.exchanged.forget(owner, who):
            return True, False
        return await self.oauth.disconnect(owner, who)


def tokens_of(part: RunningCredentials) -> TokenService:
    """Return the tokens of the part."""
    return cast("TokenService", part.tokens)
