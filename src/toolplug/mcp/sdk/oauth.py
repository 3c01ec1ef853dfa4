"""Tokens by the grant `client_credentials`, kept as long as the process."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator

import httpx2
from mcp.client.auth import TokenStorage
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.shared.exceptions import MCPDeprecationWarning

from toolplug.mcp.server_config import ClientCredentials

_HEADER, _BODY = "client_secret_basic", "client_secret_post"


class KeptToken(TokenStorage):
    """One server's token in memory; it is in no log and no record."""

    def __init__(self) -> None:
        self._token: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """The last token, None before the first."""
        return self._token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep a new token."""
        self._token = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """None: the client is not registered but configured."""
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Nothing: see above."""


class _AsConfigured(ClientCredentialsOAuthProvider):
    """Asks for the configured scope, whatever the server proposes.

    Sends the secret in a header, or in the body where the authorization server says that it takes it only there.
    """

    async def _perform_authorization(self) -> httpx2.Request:
        metadata, known = self.context.oauth_metadata, self.context.client_info
        taken = None if metadata is None else metadata.token_endpoint_auth_methods_supported
        if known is not None and taken is not None and _HEADER not in taken and _BODY in taken:
            self.context.client_info = known.model_copy(update={"token_endpoint_auth_method": _BODY})
        if known is not None and known.scope is not None:
            self.context.client_metadata.scope = known.scope
        return await super()._perform_authorization()


class WithToken(httpx2.Auth):
    """Adds the token of `kept` to each request, and fetches one where the server asks for it.

    The SDK's provider sends one request at a time, a call that takes a minute included; so each request has its own.
    """

    requires_response_body = False

    def __init__(self, url: str, credentials: ClientCredentials, kept: KeptToken) -> None:
        self._url = url
        self._credentials = credentials
        self._kept = kept

    def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The SDK's flow, of a provider made for this request."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)  # the operator may leave the issuer to the server
            provider = _AsConfigured(
                self._url,
                self._kept,
                self._credentials.client_id,
                self._credentials.client_secret,
                scope=self._credentials.scope,
                issuer=self._credentials.issuer,
            )
        return provider.async_auth_flow(request)
