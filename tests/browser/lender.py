"""A page that lends what a test tells it to, by toolplug.js as the host serves it."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page

_CONNECT = """
async ([module, options, kept]) => {
    window.toolplug = await import(module);
    if (kept) options.storage = sessionStorage;
    window.app = await toolplug.connect(options);
    window.told = [];
    for (const type of ["state", "tools", "call"]) {
        app.addEventListener(type, ({ detail }) => told.push({ type, ...detail, error: detail.error?.message }));
    }
    return app.code;
}
"""


class Lender:
    """A page with `app`, `toolplug` and what `app` has `told` in its window."""

    def __init__(self, page: Page, host: str) -> None:
        self.page = page
        self.host = host

    async def connect(self, *, kept: bool = False, **options: object) -> str:
        """Connect; the session's code."""
        return await self.page.evaluate(_CONNECT, [f"{self.host}/toolplug.js", options, kept])

    async def does(self, script: str) -> Any:
        """Run statements in the page; what they return."""
        return await self.page.evaluate(f"async () => {{ {script} }}")

    async def lends(self, name: str, handler: str, **definition: object) -> None:
        """Lend a tool and wait until the host has it; `handler` is a function's text."""
        await self.page.evaluate(f"([given]) => app.tool(given, {handler})", [{"name": name, **definition}])
        await self.does("await app.settled()")

    async def until(self, condition: str) -> None:
        """Wait until this holds in the page."""
        await self.page.wait_for_function(condition)
