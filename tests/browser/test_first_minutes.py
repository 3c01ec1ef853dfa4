"""The first minutes with a file of tools, from `toolplug serve FILE.py` to the waterfall, as a film of pictures.

Each step is what a newcomer sees next; its picture is kept in build/screenshots.
"""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest
from httpx2 import AsyncClient
from playwright.async_api import Browser, expect
from tests.browser.late_pages import new_profile
from tests.cli.process import serving
from tests.requirement_table import ROOT

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
]

NOTES = """
import asyncio

from toolplug import tool

NOTES = ["milk", "tea"]


@tool
async def find_notes(word: str) -> list[str]:
    \"""Return the notes that contain a word.\"""
    await asyncio.sleep(0.2)
    return [note for note in NOTES if word in note]


@tool
async def last_note(before: int) -> str:
    \"""Return a note by its place.\"""
    return NOTES[before]
"""


async def test_from_a_file_to_the_waterfall_nothing_is_refused_and_nothing_fails_but_the_tool(
    chromium: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "notes.py"
    file.write_text(NOTES, "utf-8")
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    numbers, wrong = count(1), list[str]()
    with serving(str(file), folder=tmp_path) as service:
        context = await new_profile(chromium, viewport={"width": 1280, "height": 800})
        page = await context.new_page()
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("response", lambda answer: wrong.append(answer.url) if answer.status >= 400 else None)

        async def keep_picture() -> None:
            await page.screenshot(path=folder / f"film-{next(numbers)}.png")

        await page.goto(service.url)
        await expect(page.get_by_text("notes.py")).to_be_visible()
        await keep_picture()
        await page.get_by_role("link", name="Tools", exact=True).click()
        await expect(page.get_by_role("heading", name="find_notes")).to_be_visible()
        await keep_picture()
        await page.get_by_label("word").fill("te")
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("region", name="Result")).to_contain_text("tea")
        await keep_picture()
        await page.get_by_role("option").filter(has_text="last_note").click()
        await page.get_by_label("before").fill("7")
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_text("raised IndexError at")).to_contain_text("notes.py:19")
        await keep_picture()
        async with AsyncClient(base_url=service.url, timeout=30) as client:
            body = {"name": "find_notes", "arguments": {"word": "milk"}}
            await asyncio.gather(*(client.post("/v1/tool-calls", json=body) for _ in range(2)))
        await page.get_by_role("link", name="Waterfall", exact=True).click()
        await expect(page.locator(".lane")).to_have_count(4)
        await expect(page.locator(".bar.crashed")).to_have_count(1)
        assert await page.locator(".legend li").all_inner_texts() == ["notes", "crashed"]
        await keep_picture()
        await page.get_by_role("button", name="last_note").click()
        await expect(page.get_by_role("region", name="Where it crashed").last).to_contain_text("notes.py:19")
        await keep_picture()
        await context.close()
    assert wrong == []
