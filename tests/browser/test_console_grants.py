"""A person with a small window decides fifty like calls by one rule, sees it in words, and takes it back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from httpx2 import AsyncClient
from playwright.async_api import Browser, expect
from tests.browser.late_pages import new_profile
from tests.cli.process import serving

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I35-console"),
]

PHONE = {"width": 375, "height": 667}
OPS = """
from toolplug import tool

@tool
async def query(table: str, limit: int = 10_000) -> str:
    "Query a table."
    return f"{table} {limit}"

@tool
async def drop(table: str) -> str:
    "Drop a table."
    return f"{table} is gone"
"""


async def test_one_rule_decides_fifty_calls_on_a_phone_and_is_taken_back(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(OPS)
    watched = {"policy": "deny", "watch": True}
    rule = {"policy": "ask", "grants": {"most": "8h", "scope": "caller"}}
    providers = {
        "ops": {"type": "./ops.py", "enabled": True, "tools": {"query": rule, "drop": watched}},
        "journal": {"enabled": True, "arguments": True},
        "console": {"enabled": True},
    }
    (tmp_path / "providers.yaml").write_text(yaml.safe_dump({"providers": providers}))
    context = await new_profile(chromium, viewport=PHONE)
    page = await context.new_page()
    with serving(folder=tmp_path) as service:
        async with AsyncClient(base_url=service.url, timeout=30) as client:

            async def call(limit: int) -> Any:
                body = {"name": "query", "arguments": {"table": "orders", "limit": limit}}
                return (await client.post("/v1/tool-calls", json=body)).json()

            assert (await call(100))["status"] == "denied"
            key = (tmp_path / ".toolplug/decide.key").read_text().strip()
            await page.goto(f"{service.url}/console#decide={key}")
            await page.goto(f"{service.url}/console#/approvals")
            waiting = page.locator(".approval")
            await waiting.get_by_text("Allow calls like this one").click()
            await waiting.get_by_label("limit").select_option("most")
            await waiting.get_by_label("for").select_option("8h")
            said = "anonymous may call query where table is orders, limit is at most 100, for 8 hours."
            await expect(waiting.get_by_role("status")).to_contain_text(said)
            await expect(waiting.get_by_role("status")).to_contain_text("It would have met 1 of the last 1 call.")
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= PHONE["width"]
            await waiting.get_by_role("button", name="Allow them").click()
            await expect(page.get_by_text("table is orders, limit is at most 100")).to_be_visible()
            answers = [await call(100)] + [await call(number) for number in range(1, 50)]
            assert {item["status"] for item in answers} == {"success"}
            assert (await call(101))["status"] == "denied"
            await page.get_by_role("button", name="Take back").click()
            await expect(page.get_by_role("button", name="Take back")).to_have_count(0)
            assert (await call(7))["status"] == "denied"
            # What would be denied, were its policy not only watched.
            await client.post("/v1/tool-calls", json={"name": "drop", "arguments": {"table": "orders"}})
            await page.goto(f"{service.url}/console#/tools/drop")
            await expect(page.locator(".badge.bad", has_text="only watched; would: denied")).to_be_visible()
            await page.goto(f"{service.url}/console#/calls")
            row = page.locator(".virtual-row", has_text="would: denied")
            await expect(row).to_contain_text("drop")
            await row.click()
            await expect(page.locator(".detail .badge.bad", has_text="would: denied")).to_be_visible()
            await expect(page.locator(".detail .facts")).to_contain_text("policy: deny")
            await page.goto(f"{service.url}/console#/page-journal")
            for status in ("approval approved", "grant revoked"):
                await expect(page.get_by_text(status, exact=True)).to_be_visible()
            kept = (await client.get("/v1/journal", params={"newest": "true", "limit": 100})).json()["calls"]
    statuses = Counter(item["status"] for item in kept)
    assert [statuses[name] for name in ("success", "approval_approved", "grant_revoked")] == [51, 1, 1]
    await context.close()


SHOP = """
from pydantic import BaseModel
from toolplug import tool

class Line(BaseModel):
    sku: str
    count: int = 1
    gift: bool = False

@tool
async def order(lines: list[Line], express: bool = False) -> str:
    "Order goods."
    return "ordered"
"""


@pytest.mark.requirement("I33-approvals")
async def test_records_are_said_in_words(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    shop = {"type": "./shop.py", "enabled": True, "tools": {"order": {"policy": "ask"}}}
    (tmp_path / "providers.yaml").write_text(
        yaml.safe_dump({"providers": {"shop": shop, "console": {"enabled": True}}})
    )
    lines = [{"sku": "A1", "count": 2}, {"sku": "B2", "gift": True}]
    page = await (await new_profile(chromium)).new_page()
    with serving(folder=tmp_path) as service:
        async with AsyncClient(base_url=service.url, timeout=30) as client:
            body = {"name": "order", "arguments": {"lines": lines, "express": True}}
            assert (await client.post("/v1/tool-calls", json=body)).json()["status"] == "denied"
        await page.goto(f"{service.url}/console#/approvals")
        said = page.locator(".approval .sentence")
        await expect(said).to_have_text("order lines sku A1, count 2; sku B2, gift, express.")
        await expect(page.get_by_text("Arguments as JSON")).to_be_visible()
        await page.context.close()
        service.process.terminate()
        assert service.end() == 0, service.lines
