"""What the pages of the console say of one thing: the same word everywhere."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from httpx2 import AsyncClient
from playwright.async_api import Browser, Route, expect
from tests.browser.test_console import call, opened, settings, written
from tests.cli.process import TOOLPLUG, serving

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.browser,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I33-same-state"),
]

NOTES = '''from toolplug import tool


@tool
def add_note(text: str) -> str:
    """Keep a note."""
    raise ValueError(text)
'''


async def test_a_session_has_one_state_on_every_page(chromium: Browser, tmp_path: Path) -> None:
    with serving("-c", written(tmp_path, settings()), folder=tmp_path) as service:
        async with AsyncClient(base_url=service.url, timeout=30) as client, opened(chromium) as page:
            made = await client.post("/api/sessions", json={"pluginType": "table"})
            code = made.json()["code"]
            await page.goto(f"{service.url}/console#/overview")
            await expect(page.get_by_role("link", name="Sessions 1 1 unregistered")).to_be_visible()
            row = page.get_by_role("region", name="Sessions").get_by_role("listitem").filter(has_text=code)
            await expect(row.locator(".badge")).to_have_text("unregistered")
            await page.goto(f"{service.url}/console#/sessions")
            row = page.locator(".virtual-row").filter(has_text=code)
            await expect(row.locator(".badge")).to_have_text("unregistered")


async def test_a_waiting_call_says_when_it_was_asked_and_when_it_expires(chromium: Browser, tmp_path: Path) -> None:
    with serving("-c", written(tmp_path, settings()), folder=tmp_path) as service:
        await call(service.url, "erase", everything=True)
        async with AsyncClient(base_url=service.url, timeout=30) as client, opened(chromium) as page:
            (ticket,) = (await client.get("/v1/approvals")).json()["approvals"]
            await page.goto(f"{service.url}/console#/approvals")
            times = page.locator(".approval time")
            await expect(times).to_have_count(2)
            shown = [await times.nth(place).get_attribute("datetime") for place in range(2)]
            assert shown == [ticket["asked_at"], ticket["expires_at"]]


@pytest.mark.requirement("I33-forms")
async def test_a_form_on_a_file_that_is_served_alone_gives_a_whole_configuration(
    chromium: Browser, tmp_path: Path
) -> None:
    (tmp_path / "notes.py").write_text(NOTES, "utf-8")
    with serving("notes.py", folder=tmp_path) as service:
        async with opened(chromium) as page:
            may_answer = anyio.Event()

            async def hold(route: Route) -> None:
                await may_answer.wait()
                await route.continue_()

            await page.route("**/v1/configuration", hold)
            await page.goto(f"{service.url}/console#/servers")
            await page.get_by_role("button", name="Add a server").click()
            await page.get_by_label("Name").fill("docs")
            await page.get_by_label("URL", exact=True).fill("https://mcp.example/mcp")
            difference = page.get_by_role("region", name="What changes in providers.yaml")
            # Lines are shown once it is known whether there is a file, and not first as if there were one.
            await expect(page.get_by_role("dialog").get_by_role("status")).to_be_visible()
            await expect(difference).to_have_count(0)
            may_answer.set()
            await expect(difference).to_contain_text("prefix: docs")
            text = await difference.inner_text()
            await expect(page.get_by_role("dialog")).to_contain_text("into a new providers.yaml")
    lines = [line.partition("+ ")[2] for line in text.split("\n") if "+ " in line]
    (tmp_path / "providers.yaml").write_text("\n".join(lines), "utf-8")
    checked = await anyio.run_process([TOOLPLUG, "check"], cwd=tmp_path, check=False)
    assert (checked.returncode, checked.stdout) == (0, b"providers.yaml is valid: 1 provider enabled\n")


async def test_a_crash_has_the_same_word_where_it_is_found_filtered_and_listed(
    chromium: Browser, tmp_path: Path
) -> None:
    (tmp_path / "notes.py").write_text(NOTES, "utf-8")
    with serving("notes.py", folder=tmp_path) as service:
        await call(service.url, "add_note", text="milk")
        async with opened(chromium) as page:
            await page.goto(f"{service.url}/console#/calls")
            await expect(page.locator(".virtual-row .badge")).to_have_text("crashed")
            await expect(page.get_by_label("Status").get_by_role("option").last).to_have_text("crashed")
            await page.keyboard.press("Control+k")
            await page.get_by_label("Find a page, tool, call, session, server or setting").fill("add_note")
            found = page.locator("#found").get_by_role("option").filter(has_text="crashed")
            await expect(found).to_have_count(1)
