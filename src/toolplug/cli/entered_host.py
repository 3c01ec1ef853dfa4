"""The host of one command: entered, and left within bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from toolplug.host.host import Host

LEAVE_S = 6.0
"""Providers get 5 s to close; a tool that was answered at its deadline and still runs gets no more than they do."""

_LOG = logging.getLogger("toolplug.cli")


@asynccontextmanager
async def entered(host: Host) -> AsyncGenerator[Host]:
    """The host while it runs. What has not closed in time is left to the end of the process."""
    await host.__aenter__()
    try:
        yield host
    finally:
        try:
            async with asyncio.timeout(LEAVE_S):
                await host.__aexit__(None, None, None)
        except TimeoutError:
            _LOG.warning("not everything was closed within %g s", LEAVE_S)
