"""Connections to servers that are started for a test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.mcp.client import hostile

from toolplug.net.egress import Egress
from toolplug.parts.mcp.client.connection import Connect, ServerConnection
from toolplug.parts.mcp.client.server_config import Command
from toolplug.parts.mcp.sdk.client import connector

Opened = Callable[..., AbstractAsyncContextManager[ServerConnection]]


def nobody() -> None:
    """Changes that the test does not look at."""


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    """How toolplug connects, with addresses of this machine allowed."""
    return connector(Egress(("loopback",)), tmp_path)


@pytest.fixture
def hostile_server(connect: Connect) -> Opened:
    """A connection to the scripted server in one of its modes: `async with hostile_server("mute") as connection`."""

    def opened(
        mode: str, *rest: str, on_change: Callable[[], None] = nobody
    ) -> AbstractAsyncContextManager[ServerConnection]:
        script = Path(hostile.__file__)  # by its name alone: a log cuts a long command line
        return connect(Command(command=sys.executable, args=(script.name, mode, *rest), cwd=script.parent), on_change)

    return opened
