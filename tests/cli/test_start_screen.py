"""What the start screen of `toolplug serve` says of what is not installed."""

from __future__ import annotations

import sys

import pytest

from toolplug import open_host
from toolplug.cli.serving.start_screen import start_screen

pytestmark = pytest.mark.anyio


async def test_the_start_screen_has_no_address_of_mcp_without_its_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_host({"store": "memory://", "providers": {}}, environ={}) as host:
        assert "http://here/mcp\n" in start_screen(host, "http://here")
        monkeypatch.setitem(sys.modules, "mcp", None)
        assert "not installed; pip install 'toolplug[mcp]'\n" in start_screen(host, "http://here")
