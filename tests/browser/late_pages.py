"""Profiles of the browser in which nothing of a page is there at once, as on a busy machine.

A test that reads what it should wait for passes on an idle machine and fails on a busy one. Here it fails everywhere.
"""

from __future__ import annotations

from typing import Any

from playwright.async_api import Browser, BrowserContext
from tests.browser.host import PATIENCE_S

LATE_MS = 120
"""Longer than the driver takes for the next step, and short enough for a hundred answers a test."""

LATE = """(late_ms) => {
  const {fetch, requestAnimationFrame} = window;
  const late = () => new Promise((done) => setTimeout(done, late_ms));
  window.fetch = async (...given) => { const answer = await fetch(...given); await late(); return answer; };
  window.requestAnimationFrame = (step) => setTimeout(() => requestAnimationFrame(step), late_ms);
  window.cancelAnimationFrame = clearTimeout;
}"""


async def new_profile(chromium: Browser, *, late: bool = True, **options: Any) -> BrowserContext:
    """A profile of its own; unless frames are measured, answers and frames come to its pages late."""
    profile = await chromium.new_context(**options)
    profile.set_default_timeout(1000 * PATIENCE_S)
    if late:
        await profile.add_init_script(f"({LATE})({LATE_MS})")
    return profile
