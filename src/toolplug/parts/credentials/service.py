"""The tokens of users, of both kinds; loaded for the first call or route that needs them."""

from __future__ import annotations

from typing import Any, cast

from toolplug.catalog.call import CallContext, Principal
from toolplug.execution.user_auth import AuthOwner, UserAuth, UserOAuth
from toolplug.host.file.settings import HostSettings
from toolplug.net.egress import Egress
from toolplug.part_protocols import PartServices
from toolplug.parts.credentials.exchange import ExchangedTokens
from toolplug.parts.credentials.login import BrowserLogin
from toolplug.parts.credentials.oauth import OAuthCredentials
from toolplug.parts.credentials.running import PURPOSE, RunningCredentials
from toolplug.parts.credentials.settings import CredentialSettings, LoginClient
from toolplug.parts.credentials.sign_ins import AskedSignIn
from toolplug.providers.plugins.registration import PluginManager
from toolplug.providers.provider import SignInEndpoints


class TokenService:
    """The tokens of a host's users who sign in, or whose own are exchanged."""

    def __init__(self, services: PartServices) -> None:
        settings = lambda: services.configuration().settings  # noqa: E731  two readers
        self.oauth: OAuthCredentials = OAuthCredentials(
            services.store,
            lambda: services.sealing(PURPOSE),
            lambda: Egress(settings().egress.allow),
            lambda owner: _endpoints_of(services, owner),
        )
        self.login: BrowserLogin = BrowserLogin(self.oauth, lambda: settings().auth, lambda: _login_of(settings()))
        self.exchanged: ExchangedTokens = ExchangedTokens(self.oauth, lambda: settings().auth)

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, base: str, refused: str) -> str:
        """Return the token of this caller; `base` is the URL for a link. Raises `ToolUnavailable`."""
        if auth.exchange is not None:
            return await self.exchanged.credential(owner, auth.exchange, context, refused)
        assert auth.oauth is not None, "the other kind needs no tokens"
        return await self.oauth.credential(owner, auth.oauth, context.principal, base, refused)

    async def begin(self, asked: AskedSignIn, oauth: UserOAuth, browser: str) -> str:
        """Return where a browser that has pressed a link is sent first. Raises `SignInFailed` of the issuers."""
        return await self.login.begin(asked, browser) or await self.oauth.begin(asked, oauth, browser)

    async def disconnect(self, owner: AuthOwner, auth: UserAuth, who: Principal) -> tuple[bool, bool]:
        """Forget the tokens of a user, and return whether there were some, and whether the issuer has revoked them."""
        if await self.exchanged.forget(owner, who):
            return True, False
        return await self.oauth.disconnect(owner, auth.oauth, who)


def _endpoints_of(services: PartServices, owner: AuthOwner) -> SignInEndpoints | None:
    """Return where callers sign in, as the running provider of the entry says; None for a server."""
    return None if owner.url else cast("PluginManager", services.plugins).sign_in_of(owner.key)


def _login_of(settings: HostSettings) -> LoginClient | None:
    # The model of a file has a field for the section of each part.
    section: CredentialSettings = cast("Any", settings).credentials
    return section.login


def tokens_of(part: RunningCredentials) -> TokenService:
    return cast("TokenService", part.tokens)
