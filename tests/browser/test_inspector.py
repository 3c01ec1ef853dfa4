"""The command line of the MCP Inspector, a client that is not ours, while the example page changes what it lends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect
from tests.browser.host import Caller
from tests.browser.test_data_table import ROWS, WITH_ROWS, WITHOUT_ROWS, opened
from tests.node.installed import node, script

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I5-done-inspector"),
]

WAIT_S = 60


class Inspector:
    """One client of a session's endpoint, which connects anew for each request."""

    def __init__(self, url: str, era: str, home: Path) -> None:
        self._url = url
        self._era = era
        self._home = home

    def lent(self) -> set[str]:
        """The names of the page's tools among those that it lists."""
        return {tool["name"] for tool in self._ask("tools/list")["tools"]} & WITH_ROWS

    def call(self, name: str, **arguments: object) -> Any:
        """The structured result of a call."""
        called = self._ask("tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments))
        assert not called.get("isError"), called
        return called["structuredContent"]

    def _ask(self, method: str, *more: str) -> Any:
        program = script("inspector", "@modelcontextprotocol/inspector")
        options = ["--transport", "http", "--protocol-era", self._era, "--format", "json", "--quiet"]
        done = subprocess.run(
            [node(), program, "--cli", self._url, *options, "--method", method, *more],
            env={**os.environ, "HOME": str(self._home)},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return answer.get("result", answer)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_it_lists_and_calls_what_the_page_lends_at_the_moment(
    page: Page, origin: str, host: str, caller: Caller, era: str, tmp_path: Path
) -> None:
    code = await opened(page, origin, host)
    inspector = Inspector(f"{host}/api/sessions/{code}/mcp", era, tmp_path)
    assert inspector.lent() == WITHOUT_ROWS
    async with caller.following(code) as following:
        assert inspector.call("add_rows", rows=ROWS) == {"rows": 3}
        await expect(page.locator("#rows tr")).to_have_text(["Otters42", "Herons63", "Pike-5"])
        await following.next("tool-availability-update")
        assert inspector.lent() == WITH_ROWS
        assert inspector.call("select", minimum=40) == {"selected": ["Otters", "Herons"]}
        await expect(page.locator("tr.chosen")).to_have_count(2)
        await page.get_by_role("button", name="Remove all").click()
        await following.next("tool-availability-update")
        assert inspector.lent() == WITHOUT_ROWS
