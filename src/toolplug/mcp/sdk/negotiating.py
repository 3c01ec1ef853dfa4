"""Which era a server speaks, found out by asking in the newer one first."""

from __future__ import annotations

from collections.abc import Sequence

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolplug.mcp.sdk.failure_codes import FAILED, is_closed


class ProbeUnanswered(Exception):
    """The server ended instead of answering a request that it may not know."""


async def negotiate(session: ClientSession, *, probe: bool) -> None:
    """Agree on a version: `server/discover` where `probe`, else and after any other answer the `initialize` handshake.

    A server that took longer to start than the probe waits may have answered it meanwhile; it then refuses the
    handshake and is probed again. Raises `ProbeUnanswered`, and `MCPError`, `ValidationError` and `RuntimeError` as the
    session does.
    """
    if probe and await _discovered(session):
        return
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION or not _any(_supported(error), MODERN_PROTOCOL_VERSIONS):
            raise
        await session.discover()


async def _discovered(session: ClientSession) -> bool:
    try:
        await session.discover()
    except MCPError as error:
        if is_closed(error):
            raise ProbeUnanswered(error.message) from None
        if error.code == FAILED:
            raise
        supported = _supported(error)
        if (
            error.code == UNSUPPORTED_PROTOCOL_VERSION
            and supported
            and not _any(supported, HANDSHAKE_PROTOCOL_VERSIONS)
        ):
            raise
        return False
    except (ValidationError, RuntimeError):
        return False
    return True


def _supported(error: MCPError) -> Sequence[str]:
    try:
        return types.UnsupportedProtocolVersionErrorData.model_validate(error.error.data).supported
    except ValidationError:
        return ()


def _any(versions: Sequence[str], known: Sequence[str]) -> bool:
    return any(version in known for version in versions)
