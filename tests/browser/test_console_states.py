"""What the pages of the console say of one thing: the same word everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from httpx2 import AsyncClient
from playwright.async_api import Browser, expect
from tests.browser.test_console import call, opened, settings, written
from tests.cli.process import serving

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.browser,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I33-same-state"),
]


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
