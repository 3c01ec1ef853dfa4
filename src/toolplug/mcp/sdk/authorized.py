"""A way to a server that adds what it asks for to each request."""

from __future__ import annotations

import httpx2


class Authorized(httpx2.AsyncBaseTransport):
    """Sends through `transport`, also what `auth` needs to know of the server and its authorization server."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, auth: httpx2.Auth) -> None:
        self._client = httpx2.AsyncClient(transport=transport, auth=auth, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, which has its own time limits. Raises what `transport` raises, and `OAuthFlowError`."""
        return await self._client.send(request, stream=True, follow_redirects=False)

    async def aclose(self) -> None:
        """Close `transport`."""
        await self._client.aclose()
