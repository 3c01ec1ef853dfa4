"""The SDK of Model Context Protocol is imported in threads: by who speaks with clients and by who asks servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.host.plain_server import PlainServer

pytestmark = pytest.mark.mcp

BOTH_AT_ONCE = """
import asyncio, json, sys
from toolplug import Principal, open_host

sys.setswitchinterval(1e-6)
OPERATOR = Principal(scopes=frozenset({"admin", "operator"}))

async def main():
    settings = {"mcp_servers": {"web": json.loads(sys.argv[1])}, "store": "memory://"}
    async with open_host(settings, environ={}, serving=False) as host:
        discovered = host.servers.discover("web", by=OPERATOR, wait_s=30, request_id="")
        found, _ = await asyncio.gather(discovered, host.mcp.endpoint())
    print(found.record.status, found.record.error)

asyncio.run(main())
"""


@pytest.mark.requirement("C-8-triggers", "C-10-stdio")
def test_a_server_is_asked_while_the_first_client_is_answered(tmp_path: Path) -> None:
    entry = PlainServer(tmp_path / "plain", "fetch").entry
    done = subprocess.run(
        [sys.executable, "-c", BOTH_AT_ONCE, json.dumps(entry)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "success None\n"), done.stderr
