"""Connecting to servers: how `toolplug.mcp.connection.Connect` is made from the SDK's client.

Connector → Life (a task) → Wire → JSONRPCDispatcher → RawListing → ClientSession → SdkConnection
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from toolplug.execution.egress import Egress, Resolve, resolved
from toolplug.execution.threads import in_own_thread
from toolplug.mcp.child_process import secrets_of
from toolplug.mcp.connection import Connect, ConnectionFailed, OnChange, ServerConnection
from toolplug.mcp.sdk.connection_task import Life
from toolplug.mcp.sdk.oauth import KeptToken, WithToken
from toolplug.mcp.sdk.pinned_transport import CheckedNetwork
from toolplug.mcp.sdk.streams import Wire, over_http, over_pipes
from toolplug.mcp.server import ClientCredentials, Command, Endpoint, Transport

_PORTS = {"http": 80, "https": 443}


def connector(egress: Egress, folder: Path, resolve: Resolve = resolved) -> Connect:
    """How servers are connected to: commands run in `folder` where they name none, URLs are checked by `egress`."""
    return _Connector(egress, folder, resolve).connect


class _Connector:
    """Connects, and keeps in memory the tokens that it was given meanwhile."""

    def __init__(self, egress: Egress, folder: Path, resolve: Resolve) -> None:
        self._egress = egress
        self._folder = folder
        self._resolve = resolve
        self._tokens: dict[tuple[str, ClientCredentials], KeptToken] = {}
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def connect(self, transport: Transport, on_change: OnChange) -> AsyncGenerator[ServerConnection]:
        """Open a connection; the end of the block ends it, within five seconds. Raises `ConnectionFailed`."""
        if isinstance(transport, Command):
            life = Life(
                lambda _: over_pipes(transport, self._folder),
                on_change,
                probes=(True, False),
                secrets=secrets_of(transport),
            )
        else:
            life = Life(
                lambda gone: self._over_http(transport, gone), on_change, probes=(True,), secrets=_secrets(transport)
            )
        try:
            yield await life.opened()
        finally:
            await life.end()

    @asynccontextmanager
    async def _over_http(self, endpoint: Endpoint, gone: Callable[[], None]) -> AsyncGenerator[Wire]:
        try:
            url = httpx2.URL(endpoint.url)
        except httpx2.InvalidURL as error:
            raise ConnectionFailed(f"the URL cannot be read: {error}") from None
        if url.scheme not in _PORTS or not url.host:
            raise ConnectionFailed("the URL is neither http nor https")
        if self._tls is None and (url.scheme == "https" or endpoint.oauth is not None):
            self._tls = await in_own_thread(httpx2.create_ssl_context)  # reads a tenth of a second of certificates
        network = CheckedNetwork(self._egress, self._resolve, _trusted(endpoint))
        async with over_http(endpoint, network, self._tls, self._auth(endpoint), gone) as wire:
            yield wire

    def _auth(self, endpoint: Endpoint) -> httpx2.Auth | None:
        if endpoint.oauth is None:
            return None
        kept = self._tokens.setdefault((endpoint.url, endpoint.oauth), KeptToken())
        return WithToken(endpoint.url, endpoint.oauth, kept)


def _trusted(endpoint: Endpoint) -> frozenset[tuple[str, int]]:
    """Where the URLs of the operator's file lead; with a plain port 80 its encrypted twin, to which one may be sent."""
    if not endpoint.trusted:
        return frozenset()
    issuer = None if endpoint.oauth is None else endpoint.oauth.issuer
    urls = [httpx2.URL(text) for text in (endpoint.url, issuer) if text is not None]
    places = {(url.raw_host.decode("ascii"), url.port or _PORTS.get(url.scheme, 0)) for url in urls}
    return frozenset(places | {(host, _PORTS["https"]) for host, port in places if port == _PORTS["http"]})


def _secrets(endpoint: Endpoint) -> tuple[str, ...]:
    secret = () if endpoint.oauth is None else (endpoint.oauth.client_secret,)
    return (*endpoint.headers.values(), *secret)
