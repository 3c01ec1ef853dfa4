"""The tokens of users, of both kinds, and the sign-in of a browser; loaded for the first call or route that needs them.

A browser signs in to the host itself before it connects a caller, and must be the caller (OpenID Connect). Without it a
person who presses a stranger's link lends him the account. The ID token is checked as the JWTs of callers are, for the
audience of this client, and with the nonce of this sign-in.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from toolplug.catalog.call import CallContext, Principal
from toolplug.execution.user_auth import AuthOwner, UserAuth, UserOAuth
from toolplug.host.file.settings import Auth, HostSettings
from toolplug.net.egress import Egress
from toolplug.part_protocols.host_part import PartServices
from toolplug.parts.credentials.exchange import ExchangedTokens
from toolplug.parts.credentials.oauth import OAuthCredentials, issuers_module
from toolplug.parts.credentials.records import AskedSignIn, BegunSignIn, UserTokens
from toolplug.parts.credentials.running import PURPOSE, RunningCredentials
from toolplug.parts.credentials.settings import CredentialSettings, LoginClient
from toolplug.providers.plugins.registration import PluginManager
from toolplug.providers.provider import SignInEndpoints
from toolplug.stores.store import name_digest


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


_HOST = AuthOwner("login", "auth.jwt")


class BrowserLogin:
    """The sign-ins of browsers. `auth` and `client` return what the file has now; without a client there is none."""

    def __init__(
        self, tokens: OAuthCredentials, auth: Callable[[], Auth | None], client: Callable[[], LoginClient | None]
    ) -> None:
        self._tokens = tokens
        self._auth = auth
        self._client = client
        self._checks: tuple[object, Any] | None = None

    async def begin(self, asked: AskedSignIn, browser: str) -> str | None:
        """Return where the browser is sent first; None without a login. Raises `SignInFailed` of the issuers."""
        auth, client = self._auth(), self._client()
        if auth is None or auth.jwt is None or client is None:
            return None
        issuers, redirect_uri = await issuers_module(), f"{asked.base}/connect/callback"
        async with self._tokens.http(_HOST, auth.jwt.issuer) as http:
            found = await issuers.find_issuer(http, _HOST, UserOAuth(issuer=auth.jwt.issuer, scopes=("openid",)))
        secret = "" if client.client_secret is None else client.client_secret.get_secret_value()
        state, nonce = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        code = issuers.ask_for_code(found, client.client_id, redirect_uri, state, nonce)
        start = UserTokens(
            access="",
            client_id=client.client_id,
            client_secret=secret,
            auth_method=issuers.method_of(secret, found, None),
            token_endpoint=str(found.metadata.token_endpoint),
        )
        begun = BegunSignIn(
            asked=asked,
            start=start,
            issuer=found.name,
            metadata=found.metadata.model_dump_json(exclude_none=True),
            scope="openid",
            verifier=code.verifier,
            browser=name_digest(browser),
            nonce=nonce,
        )
        await self._tokens.sign_ins.begin(state, begun)
        return str(code.url)

    async def check(self, begun: BegunSignIn, code: str, iss: str | None) -> None:
        """Return if the browser is signed in as the caller. Raises `SignInFailed` of the issuers if not."""
        issuers = await issuers_module()
        issuers.check_issuer(issuers.OAuthMetadata.model_validate_json(begun.metadata), iss)
        async with self._tokens.http(_HOST, self._issuer()) as http:
            redirect_uri = f"{begun.asked.base}/connect/callback"
            token = await issuers.redeem_login(http, begun.start, code, begun.verifier, redirect_uri)
        checks = self._id_tokens()
        who = None if checks is None else await checks.principal_of_id_token(token, begun.nonce)
        if who is None:
            raise issuers.SignInFailed("the issuer of this host gives no valid ID token for its client")
        if (who.tenant, who.subject) != (begun.asked.tenant, begun.asked.subject):
            raise issuers.SignInFailed("this browser is signed in as another user than the one of the link")

    def _issuer(self) -> str | None:
        auth = self._auth()
        return None if auth is None or auth.jwt is None else auth.jwt.issuer

    def _id_tokens(self) -> Any:
        """Return what checks ID tokens: as `auth.jwt` says, for the audience of the client."""
        auth, client = self._auth(), self._client()
        if auth is None or auth.jwt is None or client is None:
            return None
        wanted = auth.jwt.model_copy(update={"audience": client.client_id})
        if self._checks is None or self._checks[0] != wanted:
            self._checks = wanted, import_module("toolplug.http.auth.jwt").Tokens(wanted)
        return self._checks[1]
