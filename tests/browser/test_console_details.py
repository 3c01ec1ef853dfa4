"""Details of the console that a person sees at once: what is found first, what fits, and what is aligned."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from httpx2 import AsyncClient
from playwright.async_api import Browser, Route, expect
from tests.browser.test_console import call, link, opened, url

__all__ = ["link", "url"]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.browser,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I16-1-browser"),
]

SHORT_PAUSES = """async () => {
  const { groupsOf, ticksOf } = await import("/console/files/waterfall_groups.js");
  const same = { tool: "count", tenant: "t", subject: "s", status: "success", duration_s: 0.99 };
  const calls = Array.from({ length: 6 }, (_, n) => ({ ...same, id: n, call_id: `c${n}`, ts: 1e6 + n + 0.99 }));
  return ticksOf(groupsOf(calls, "caller")[0], 8).map((tick) => tick.seconds);
}"""
"""The lines of the axis for six calls of 990 ms, one each second."""
LEFTS = "each => each.map((one) => Math.round(one.getBoundingClientRect().left))"
TOO_WIDE = "each => each.scrollWidth - each.clientWidth"


async def test_a_tool_is_found_before_the_calls_of_it(chromium: Browser, url: str) -> None:
    for _ in range(3):
        await call(url, "picture")
    calls_are_shown = asyncio.Event()

    async def answer_last(route: Route) -> None:
        await calls_are_shown.wait()
        await route.continue_()

    async with opened(chromium) as page:
        await page.route("**/api/catalog", answer_last)
        await page.goto(f"{url}/console#/overview")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox").fill("picture")
        kinds = page.locator("#found small")
        await expect(kinds.filter(has_text="call")).not_to_have_count(0)
        calls_are_shown.set()
        await expect(kinds.filter(has_text="tool")).to_have_count(1)
        await expect(kinds.first).to_have_text("tool")


async def test_the_form_of_a_key_fits_a_phone(chromium: Browser, url: str) -> None:
    async with opened(chromium, "phone") as page:
        await page.goto(f"{url}/console#/configuration")
        await page.get_by_role("button", name="Add a key").click()
        await page.get_by_role("button", name="Make a key").click()
        await expect(page.locator(".secret")).to_be_visible()
        assert await page.locator("dialog.form").evaluate(TOO_WIDE) <= 0


async def test_the_heads_of_values_are_above_their_columns_next_to_an_open_one(chromium: Browser, url: str) -> None:
    async with opened(chromium) as page:
        await page.goto(f"{url}/console#/configuration/providers.sample.tools.erase")
        await expect(page.get_by_role("heading", name="providers.sample.tools.erase")).to_be_visible()
        rows = page.locator(".virtual-row .setting")
        await expect(rows).not_to_have_count(0)
        heads = await page.locator(".heads.setting > span").evaluate_all(LEFTS)
        columns = await rows.first.locator("> *").evaluate_all(LEFTS)
    assert len(heads) == 3
    assert heads == columns


async def test_short_pauses_do_not_break_the_axis_of_a_waterfall(chromium: Browser, url: str) -> None:
    async with opened(chromium) as page:
        await page.goto(f"{url}/console#/waterfall")
        found = await page.evaluate(SHORT_PAUSES)
    assert found == [0, 1, 2, 3, 4, 5]


@pytest.mark.requirement("I33-same-state")
async def test_a_call_that_a_person_has_denied_is_denied_and_its_question_is_asked(
    chromium: Browser, url: str, link: str
) -> None:
    request = uuid4().hex
    headers = {"x-request-id": request, "x-toolplug-decide": link.partition("#decide=")[2]}
    async with AsyncClient(base_url=url, timeout=30, headers=headers) as client, opened(chromium) as page:

        async def make(approval: str | None = None) -> Any:
            body = {"name": "erase", "arguments": {"everything": True}, "approval": approval}
            return (await client.post("/v1/tool-calls", json=body)).json()

        ticket = (await make())["metadata"]["approval"]["id"]
        assert (await client.post(f"/v1/approvals/{ticket}", json={"decision": "deny"})).is_success
        await make(ticket)
        await page.goto(f"{url}/console#/calls")
        await page.get_by_label("Search tools, callers, sessions and ids").fill(request)
        await expect(page.locator(".virtual-row .badge")).to_have_text(["denied", "asked"])
        await expect(page.locator(".list .note")).to_have_text("2 calls · 1 failed")
