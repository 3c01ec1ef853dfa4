"""The console's forms, whose lines go into providers.yaml, and what it says of the tools of MCP servers."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from httpx2 import AsyncClient
from playwright.async_api import Browser, expect
from tests.browser.test_console import TOOLS, link, opened, settings, url, written
from tests.cli.process import serving
from tests.host.plain_server import PlainServer

__all__ = ["link", "url"]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I16-1-browser"),
]


@pytest.mark.requirement("I33-forms")
async def test_forms_show_the_lines_of_the_file_and_write_nothing(chromium: Browser, url: str, axe: str) -> None:
    async with opened(chromium) as page, AsyncClient(base_url=url, timeout=60) as client:
        before = (await client.get("/v1/configuration")).json()["values"]
        difference = page.get_by_role("region", name="What changes in providers.yaml")
        shown: dict[str, str] = {}

        async def look(form: str) -> None:
            await expect(difference).to_be_visible()
            shown[form] = await difference.inner_text()
            await page.evaluate(axe)
            result = await page.evaluate("axe.run(document.querySelector('dialog'), {resultTypes: ['violations']})")
            assert [each["id"] for each in result["violations"]] == []
            await page.keyboard.press("Escape")

        await page.goto(f"{url}/console#/servers")
        await page.get_by_role("button", name="Add a server").click()
        await page.get_by_label("Name").fill("docs")
        await page.get_by_label("URL", exact=True).fill("http://127.0.0.1:9/mcp")
        await page.get_by_role("button", name="Show its tools").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("egress.allow")
        await expect(difference).to_contain_text("broken: …")
        await look("server")
        await page.goto(f"{url}/console#/configuration")
        await page.get_by_role("button", name="Add a key").click()
        await page.get_by_label("Who has it").fill("ada")
        await page.get_by_role("button", name="Make a key").click()
        key = await page.locator(".secret").inner_text()
        await look("key")
        await page.goto(f"{url}/console#/overview")
        await page.get_by_text("only installed").click()
        await (
            page.get_by_role("listitem").filter(has_text="toolplug-hello").get_by_role("button", name="Enable").click()
        )
        await expect(difference).to_contain_text("journal: …")
        await look("package")
        after = (await client.get("/v1/configuration")).json()["values"]
    added = {form: [line[2:] for line in text.split("\n") if "+ " in line[:12]] for form, text in shown.items()}
    assert before == after
    assert [line.strip() for line in added["server"]][-4:] == [
        "url: http://127.0.0.1:9/mcp",
        "policy: ask",
        "pin: true",
        "prefix: docs",
    ]
    assert sha256(key.encode()).hexdigest() in shown["key"]
    assert key not in shown["key"]
    assert [line.strip() for line in added["package"]][-2:] == ["hello:", "enabled: true"]


@pytest.mark.requirement("I33-forms")
async def test_the_tools_of_a_server_are_shown_before_it_is_saved(chromium: Browser, tmp_path: Path) -> None:
    """The server is another host."""
    web = PlainServer(tmp_path / "web", "fetch")
    (tmp_path / "far").mkdir()
    far = {"providers": {"sample": {"type": f"{TOOLS}:Tools", "enabled": True}}}
    near = {**settings(), "egress": {"allow": ["loopback"]}, "mcp_servers": {"web": web.entry}}
    with (
        serving("-c", written(tmp_path / "far", far), folder=tmp_path / "far") as server,
        serving("-c", written(tmp_path, near), folder=tmp_path) as service,
    ):
        async with opened(chromium) as page, AsyncClient(base_url=service.url, timeout=30) as client:
            await page.goto(f"{service.url}/console#/servers")
            await page.get_by_role("button", name="Add a server").click()
            await page.get_by_label("Name").fill("far")
            await page.get_by_label("URL", exact=True).fill(f"{server.url}/mcp")
            await page.get_by_role("button", name="Show its tools").click()
            shown = page.get_by_role("dialog").get_by_role("status")
            await expect(shown).to_contain_text("6 tools")
            await expect(shown).to_contain_text("Count, and report progress.")
            await expect(page.get_by_role("region", name="What changes in providers.yaml")).to_contain_text(
                "prefix: far"
            )
            left = [each["id"] for each in (await client.get("/api/mcp-servers")).json()["servers"]]
    assert left == ["web"]


async def test_a_server_that_offers_its_tools_to_nobody_says_so(chromium: Browser, tmp_path: Path) -> None:
    web = PlainServer(tmp_path / "web", "fetch")
    prefixed = {**web.entry, "prefix": "web"}
    cases = (web.entry, "refuses", 1, "web/fetch"), (prefixed, "passes", 0, "web.fetch")
    for entry, verdict, why, called in cases:
        config = written(tmp_path, {**settings(), "mcp_servers": {"web": entry}})
        with serving("-c", config, folder=tmp_path) as service:
            async with opened(chromium) as page, AsyncClient(base_url=service.url, timeout=30) as client:
                await client.post("/api/mcp-servers/web/discover?wait=true")
                await page.goto(f"{service.url}/console#/servers/web")
                tools = page.get_by_role("region", name="Tools", exact=True)
                await expect(tools.locator(".rows .badge")).to_have_text(verdict)
                await expect(tools.get_by_text("offers it to nobody: give it a prefix")).to_have_count(why)
                await tools.get_by_role("link", name="fetch", exact=True).click()
                await expect(page.get_by_role("heading", name=called, exact=True)).to_be_visible()
