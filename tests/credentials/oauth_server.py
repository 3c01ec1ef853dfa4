"""An MCP server that wants tokens, with its own authorization server: the SDK's routes over a small provider.

Refresh tokens are used once: one that is shown again ends all that came of the same sign-in.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import time
from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import Tool
from pydantic import AnyHttpUrl
from starlette.types import Receive, Scope, Send
from tests.http.served import serving_apart
from tests.kept_port import kept_port
from tests.mcp.client.good import HandshakeOnly

LISTING = "token-of-the-operator"


class Signed:
    """What came of one sign-in: who, and which tokens hold."""

    def __init__(self, subject: str, scopes: list[str], client: str, resource: str | None) -> None:
        self.subject = subject
        self.scopes = scopes
        self.client = client
        self.resource = resource
        self.access: set[str] = set()
        self.refresh = ""


class Accounts:
    """The provider. `user` signs in when a browser comes, `None`: nobody does; refreshes wait while `hold` is clear."""

    def __init__(self) -> None:
        self.user: str | None = "ada"
        self.lives_s = 3600
        self.hold = threading.Event()
        self.hold.set()
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, tuple[AuthorizationCode, str]] = {}
        self.tokens: dict[str, Signed] = {}
        self.used: dict[str, Signed] = {}
        self.refreshes: list[str] = []
        self.revoked: list[str] = []
        self.asked: list[AuthorizationParams] = []

    def expire(self) -> None:
        """Let no access token hold any longer."""
        for signed in self.tokens.values():
            signed.access.clear()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.asked.append(params)
        back = str(params.redirect_uri)
        if self.user is None:
            return construct_redirect_uri(back, error="access_denied", state=params.state)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=params.scopes or [],
            expires_at=time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code, self.user
        return construct_redirect_uri(back, code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code, (None,))[0]

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        code, user = self.codes.pop(authorization_code.code)
        return self._give(Signed(user, code.scopes, client.client_id, code.resource))

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        reused = self.used.get(refresh_token)
        if reused is not None:
            reused.access.clear()
            self.tokens.pop(reused.refresh, None)
            return None
        signed = self.tokens.get(refresh_token)
        return (
            None if signed is None else RefreshToken(token=refresh_token, client_id=signed.client, scopes=signed.scopes)
        )

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.refreshes.append(refresh_token.token)
        while not self.hold.is_set():  # in the loop of the server
            await asyncio.sleep(0.01)
        signed = self.tokens.pop(refresh_token.token, None)
        if signed is None:
            raise TokenError("invalid_grant")
        self.used[refresh_token.token] = signed
        return self._give(signed)

    async def load_access_token(self, token: str) -> AccessToken | None:
        if token == LISTING:
            return AccessToken(token=token, client_id="operator", scopes=["read"])
        for signed in self.tokens.values():
            if token in signed.access:
                return AccessToken(token=token, client_id=signed.client, scopes=signed.scopes, subject=signed.subject)
        return None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.revoked.append(token.token)
        self.tokens.pop(token.token, None)

    async def exchange_identity_assertion(self, *_: Any) -> OAuthToken:
        raise TokenError("unsupported_grant_type")

    def _give(self, signed: Signed) -> OAuthToken:
        access, signed.refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        signed.access = {access}
        self.tokens[signed.refresh] = signed
        return OAuthToken(
            access_token=access, expires_in=self.lives_s, refresh_token=signed.refresh, scope=" ".join(signed.scopes)
        )


class OwnLists(MCPServer):
    """Lists the tools `of_NAME` to the user of this name alone."""

    async def list_tools(self) -> list[Tool]:
        """List the tools of who asks."""
        token = get_access_token()
        own = f"of_{None if token is None else token.subject}"
        return [each for each in await super().list_tools() if each.name == own or not each.name.startswith("of_")]


@contextmanager
def serving_oauth(accounts: Accounts, *, grows: bool = False, handshake: bool = False) -> Iterator[str]:
    """Serve the server and its issuer on one port; gives the URL of the endpoint.

    With `grows` it has the tool `grow`, which adds another one and announces that. `handshake`: of the older era.
    """
    with kept_port() as port:
        origin = f"http://127.0.0.1:{port}"
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(origin),
            resource_server_url=AnyHttpUrl(f"{origin}/mcp"),
            required_scopes=["read"],
            client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["read"]),
            revocation_options=RevocationOptions(enabled=True),
            validate_token_resource=False,
        )
        server = OwnLists("guarded", auth=settings, auth_server_provider=accounts)

        @server.tool()
        async def of_ada() -> str:
            """Is Ada's."""
            return "of Ada"

        @server.tool()
        async def whoami() -> str:
            """Say whose token it is."""
            token = get_access_token()
            return "nobody" if token is None else str(token.subject)

        async def grow(context: Context) -> str:
            """Have one more tool."""
            server.add_tool(whoami, name="grown")
            await context.notify_tools_changed()
            await context.session.send_tool_list_changed()
            return "grown"

        if grows:
            server.add_tool(grow)
        app = server.streamable_http_app()
        older = HandshakeOnly(app)

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            is_old = handshake and scope.get("path") == "/mcp"
            await (older if is_old else app)(scope, receive, send)

        with serving_apart(serve, port=port):
            yield f"{origin}/mcp"
