"""What listing may not do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

LISTING = """
import asyncio, sys
from toolplug import Principal, expand_builtin_tools, open_host
from toolplug.http import create_app
from toolplug.testing.provider_rules.routes import request_status

DONE, ASKED = [], []
QUIET = ("open", "socket.", "sqlite3.", "subprocess.", "os.", "shutil.", "import")

def watch(event, arguments):
    if LISTENS and event.startswith(QUIET):
        DONE.append((event, str(arguments)[:200]))

LISTENS = False
sys.addaudithook(watch)
settings = {"providers": {"hello": {"enabled": True}, "file_search": {"enabled": True}}, "store": sys.argv[1]}

async def main():
    global LISTENS
    async with open_host(settings, environ={}) as host:
        app = create_app(host)
        await request_status(app, "GET", "/healthz", within_s=60)
        for generation in host.registry.running().values():
            kind = type(generation.provider)
            kind.tools = kind.can_execute = lambda self, *names: ASKED.append(kind)
        LISTENS = True
        catalog = host.executor_for(Principal(tenant="t2", scopes=frozenset({"tools:call"}))).catalog
        sizes = [len(catalog.render(dialect)) for dialect in ("chat", "responses", "anthropic", "mcp")]
        expanded = expand_builtin_tools([{"type": "file_search"}], host.registry).tools
        records = host.records()
        status = await request_status(app, "GET", "/v1/tools", within_s=60)
        LISTENS = False
    print(list(catalog), all(sizes), len(expanded), len(records) >= 2, status, DONE, ASKED)

asyncio.run(main())
"""


@pytest.mark.requirement("DESIGN-listing-no-io", "C-12-tools-read-once")
def test_listing_opens_starts_imports_and_asks_nothing(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/state.db"
    done = subprocess.run(
        [sys.executable, "-c", LISTING, store], capture_output=True, text=True, check=False, timeout=150
    )
    assert done.stdout == "['hello', 'file_search', 'list_files'] True 1 True 200 [] []\n", done.stderr
