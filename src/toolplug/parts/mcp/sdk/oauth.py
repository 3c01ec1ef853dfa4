"""Tokens by the grant `client_credentials`: one for each server, shared by its connections, and kept in memory.

The SDK's provider sends one request at a time, so that a call of a minute would block all others. Here it only fetches
tokens, under a lock; requests add the token themselves.
"""

from __future__ import annotations

import asyncio
import logging
import math
import warnings
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from time import monotonic

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthTokenError, TokenStorage
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import BaseModel

from toolplug.net.issuer_answers import InvalidAnswer, read_metadata, read_tokens
from toolplug.parts.mcp.client.server_config import ClientCredentials

RENEW_AT = 0.8
"""A token is renewed when this part of its life is over."""
FETCH_S = 20.0
"""How long a token may take: everybody who needs it waits for the same one."""
_RETRY_S = 10.0
"""Until the next attempt, where a renewal failed and the token still holds."""

_HEADER, _BODY = "client_secret_basic", "client_secret_post"
_LOG = logging.getLogger("toolplug.mcp.http")

Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]
"""Sends a request of the flow, and reads its answer."""


class KeptToken(TokenStorage):
    """One server's token in memory; it is neither logged nor stored.

    `renew_at` and `expires_at` are on the event loop's clock, None for a token without expiry.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._token: OAuthToken | None = None
        self.renew_at: float | None = None
        self.expires_at: float | None = None

    @property
    def text(self) -> str | None:
        """The access token, None before the first."""
        return None if self._token is None else self._token.access_token

    async def get_tokens(self) -> OAuthToken | None:
        """Return the last token, None before the first."""
        return self._token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep a new token."""
        self._token, life_s = tokens, tokens.expires_in
        self.renew_at = None if life_s is None else self._clock() + RENEW_AT * life_s
        self.expires_at = None if life_s is None else self._clock() + life_s

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return None: the client is configured, not registered."""
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Do nothing: the client is configured, not registered."""


class _AsConfigured(ClientCredentialsOAuthProvider):
    """The SDK's provider with the configured scope, whatever the server proposes.

    The secret is sent in a header, or in the body if the authorization server supports only that. Errors do not repeat
    the words of the token endpoint, which may contain credentials: the SDK logs them.
    """

    async def renew(self, send: Send) -> None:
        """Fetch another token from where the last one came from. Raises `OAuthFlowError`, and what `send` raises."""
        await self._handle_token_response(await send(await self._perform_authorization()))

    async def _perform_authorization(self) -> httpx2.Request:
        metadata, known = self.context.oauth_metadata, self.context.client_info
        taken = None if metadata is None else metadata.token_endpoint_auth_methods_supported
        if known is not None and taken is not None and _HEADER not in taken and _BODY in taken:
            self.context.client_info = known.model_copy(update={"token_endpoint_auth_method": _BODY})
        if known is not None and known.scope is not None:
            self.context.client_metadata.scope = known.scope
        return await super()._perform_authorization()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        if response.status_code not in {200, 201}:
            raise OAuthTokenError(f"the token endpoint answered with HTTP {response.status_code}")
        try:
            given = read_tokens(await response.aread())
        except InvalidAnswer:
            raise OAuthTokenError("the answer of the token endpoint is no token") from None
        life_s = math.ceil(given.expires_in) or None
        token = OAuthToken(access_token=given.access, expires_in=life_s, scope=given.scope)
        await super()._handle_token_response(httpx2.Response(response.status_code, content=_dump(token)))


class ServerToken:
    """The token of one server, for all its connections.

    Concurrent requests for a new token wait for the same fetch. While the token is still valid, no request waits for
    its renewal.
    """

    def __init__(self, url: str, credentials: ClientCredentials, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept = KeptToken(clock)
        self._fetching = asyncio.Lock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)  # the operator may leave the issuer to the server
            self._provider = _AsConfigured(
                url,
                self._kept,
                credentials.client_id,
                credentials.client_secret,
                scope=credentials.scope,
                issuer=credentials.issuer,
            )

    async def current(self, send: Send) -> str | None:
        """Return the token to send, None before the first. It is renewed after four fifths of its life."""
        if self._is_over(self._kept.renew_at) and (not self._fetching.locked() or self._is_over(self._kept.expires_at)):
            async with self._fetching:
                if self._is_over(self._kept.renew_at):
                    await self._renew(send)
        return self._kept.text

    async def after(
        self, refused: str | None, request: httpx2.Request, response: httpx2.Response, send: Send
    ) -> str | None:
        """Return a new token after a refusal of the last one. Raises `OAuthFlowError` and the errors of `send`."""
        async with self._fetching:
            if self._kept.text == refused:
                try:
                    async with asyncio.timeout(FETCH_S):
                        await self._fetch(request, response, send)
                except TimeoutError:
                    raise OAuthTokenError(f"there was no token within {FETCH_S:g} s") from None
        return self._kept.text

    async def _renew(self, send: Send) -> None:
        try:
            async with asyncio.timeout(FETCH_S):
                await self._provider.renew(send)
        except (OAuthFlowError, httpx2.HTTPError, TimeoutError) as error:
            self._kept.renew_at = self._clock() + _RETRY_S
            _LOG.warning("the token of a server is not renewed: %s", type(error).__name__)

    async def _fetch(self, request: httpx2.Request, response: httpx2.Response, send: Send) -> None:
        """Run the provider's flow from the refusal up to the repetition of the request."""
        flow = self._provider.async_auth_flow(request)
        try:
            await anext(flow)  # the request itself, which has been answered
            wanted = await flow.asend(response)
            while wanted is not request:
                wanted = await flow.asend(_clean_metadata(wanted, await send(wanted)))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _is_over(self, at: float | None) -> bool:
        return at is not None and self._clock() >= at


def _clean_metadata(request: httpx2.Request, answer: httpx2.Response) -> httpx2.Response:
    """Return an answer without the fields of metadata that cannot be used, for which the SDK drops all of it."""
    if request.method != "GET" or answer.status_code != HTTPStatus.OK:
        return answer
    model = ProtectedResourceMetadata if b'"authorization_servers"' in answer.content else OAuthMetadata
    try:
        found = read_metadata(model, answer.content)
    except InvalidAnswer:
        return answer
    return httpx2.Response(answer.status_code, content=_dump(found), request=request)


def _dump(model: BaseModel) -> str:
    return model.model_dump_json(exclude_none=True)


class Authorized(httpx2.AsyncBaseTransport):
    """Sends requests with a token through `transport`, including those to the authorization server for the token."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, token: ServerToken) -> None:
        self._token = token
        self._transport = transport
        # The same transport for the authorization server: its address is checked like that of the server itself.
        self._client = httpx2.AsyncClient(transport=transport, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, again with a new token if it is refused. Raises `transport`'s errors and `OAuthFlowError`."""
        used = await self._token.current(self._send)
        response = await self._sign(request, used)
        if response.status_code != HTTPStatus.UNAUTHORIZED and not _wants_scope(response):
            return response
        # Read before it is closed: the connection can then be used again.
        await response.aread()
        await response.aclose()
        return await self._sign(request, await self._token.after(used, request, response, self._send))

    async def aclose(self) -> None:
        """Close `transport`."""
        await self._client.aclose()

    async def _sign(self, request: httpx2.Request, token: str | None) -> httpx2.Response:
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return await self._transport.handle_async_request(request)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        # A redirect would carry the credentials of the client to another host.
        return await self._client.send(request, follow_redirects=False)


def _wants_scope(response: httpx2.Response) -> bool:
    challenge = response.headers.get("www-authenticate", "")
    return response.status_code == HTTPStatus.FORBIDDEN and "insufficient_scope" in challenge
