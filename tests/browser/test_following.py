"""`follow` of toolplug.js: a page on the model's side sees which tools there are, as they come and go."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, Route
from tests.browser.host import Caller
from tests.browser.lender import Lender

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I3-5-browser-follow"),
]

FOLLOW = """
async ([module, code]) => {
    const { follow } = await import(module);
    window.views = [];
    window.following = follow({ code }, (view) => views.push(view));
}
"""
STREAM = {"Content-Type": "text/event-stream", "Access-Control-Allow-Origin": "*"}
NAMES = "views.at(-1).tools.map(({ name }) => name).join()"


@pytest.fixture
async def lender(page: Page, origin: str, host: str) -> Lender:
    await page.goto(f"{origin}/data_table.css")
    return Lender(page, host)


async def follow(lender: Lender, origin: str, host: str, code: str) -> Page:
    """Another page, whose `views` are what it has been told."""
    page = await lender.page.context.new_page()
    await page.goto(f"{origin}/data_table.css")
    await page.evaluate(FOLLOW, [f"{host}/toolplug.js", code])
    return page


async def view(page: Page) -> Any:
    return await page.evaluate("views.at(-1)")


async def test_a_page_sees_the_tools_that_are_there_and_every_change(lender: Lender, origin: str, host: str) -> None:
    code = await lender.connect()
    await lender.lends("one", "() => 1", description="First.")
    page = await follow(lender, origin, host, code)
    await page.wait_for_function(f"{NAMES} === 'one'")
    await lender.lends("two", "() => 2")
    await page.wait_for_function(f"{NAMES} === 'one,two'")
    await lender.does("app.remove('one', 'no longer needed'); await app.settled()")
    await page.wait_for_function(f"{NAMES} === 'two'")
    seen = await view(page)
    assert (seen["state"], seen["pluginStatus"], seen["reason"]) == ("connected", "attached", "no longer needed")
    assert seen["tools"][0]["name"] == "two"


async def test_an_exception_of_the_pages_own_is_reported_and_breaks_no_connection(lender: Lender, host: str) -> None:
    code = await lender.connect()
    await lender.does(
        f"""
        window.states = [];
        window.failures = [];
        addEventListener("error", (event) => (failures.push(event.message), event.preventDefault()));
        toolplug.follow({{ code: "{code}" }}, ({{ state, tools }}) => {{
            states.push(state);
            if (state === "connected") throw new Error(`mine ${{tools.length}}`);
        }});
        """
    )
    await lender.until("failures.length > 0")
    await lender.lends("one", "() => 1")
    await lender.until("failures.at(-1) === 'Uncaught Error: mine 1'")
    assert await lender.does("return new Set(states.slice(states.indexOf('connected'))).size") == 1


async def test_a_page_hears_that_the_application_went_away_and_came_back(
    lender: Lender, origin: str, host: str, caller: Caller
) -> None:
    code = await lender.connect(kept=True)
    await lender.lends("one", "() => 1")
    page = await follow(lender, origin, host, code)
    await page.wait_for_function("views.at(-1).pluginStatus === 'attached'")
    await lender.does("app.close()")
    await page.wait_for_function("views.at(-1).pluginStatus === 'detached'")
    assert await lender.connect(kept=True) == code
    await page.wait_for_function("views.at(-1).pluginStatus === 'attached'")


async def test_a_stream_that_breaks_off_goes_on_where_it_was(
    lender: Lender, origin: str, host: str, caller: Caller
) -> None:
    code = await lender.connect()
    await lender.lends("one", "() => 1")
    page = await follow(lender, origin, host, code)
    await page.wait_for_function(f"{NAMES} === 'one'")
    asked: list[str | None] = []
    page.on("request", lambda request: asked.append(request.headers.get("last-event-id")))
    await page.evaluate("dispatchEvent(new Event('pagehide'))")
    await page.wait_for_function("views.at(-1).state === 'waiting'")
    await lender.lends("two", "() => 2")
    await page.evaluate("dispatchEvent(new Event('pageshow'))")
    await page.wait_for_function(f"{NAMES} === 'one,two'")
    assert len(asked) == 1
    assert (asked[0] or "").isdigit()
    states = await page.evaluate("[...new Set(views.map(({ state }) => state))]")
    assert states == ["connecting", "connected", "waiting"]


async def test_a_stream_that_ends_as_soon_as_it_is_open_is_opened_later_and_later(lender: Lender) -> None:
    snapshot = '{"revision": 1, "registered": true, "pluginStatus": "attached", "tools": []}'

    async def short(route: Route) -> None:
        await route.fulfill(body=f"id: 1\nevent: connected\ndata: {snapshot}\n\n", headers=STREAM)

    await lender.page.context.route("**/stream", short)
    await lender.connect()
    await lender.until("told.some(({ retryInMs }) => retryInMs >= 1000)")


async def test_a_stream_that_says_nothing_for_too_long_is_opened_again(lender: Lender, origin: str, host: str) -> None:
    await lender.page.clock.install()
    await lender.connect()
    await lender.until("app.state === 'connected'")
    await lender.page.clock.run_for(40_000)
    assert await lender.does("return app.state") == "connected"
    await lender.page.clock.run_for(30_000)
    await lender.until("told.some(({ state }) => state === 'waiting')")
    await lender.until("app.state === 'connected'")


@pytest.mark.parametrize(
    "event", ["event: plugin-status\ndata: {oops", 'event: tool-availability-update\ndata: {"revision": 9}']
)
async def test_an_event_that_cannot_be_read_is_made_up_for_by_a_new_snapshot(
    lender: Lender, origin: str, host: str, event: str
) -> None:
    code = await lender.connect()
    await lender.lends("one", "() => 1")
    page = await lender.page.context.new_page()
    await page.goto(f"{origin}/data_table.css")
    asked: list[str | None] = []

    async def garbled(route: Route) -> None:
        await route.fulfill(body=f"id: 0\nevent: heartbeat\ndata: {{}}\n\nid: 1\n{event}\n\n", headers=STREAM)

    page.on("request", lambda request: asked.append(request.headers.get("last-event-id")))
    await page.route("**/stream", garbled, times=1)
    await page.evaluate(FOLLOW, [f"{host}/toolplug.js", code])
    await page.wait_for_function(f"{NAMES} === 'one'")
    assert await page.evaluate("views.find(({ error }) => error).error.code") == "bad_event"
    assert set(asked) == {None}


async def test_following_ends_with_the_reason_where_no_try_could_help(
    lender: Lender, origin: str, host: str, caller: Caller
) -> None:
    page = await follow(lender, origin, host, "AAAAAAAA")
    await page.wait_for_function("views.at(-1).state === 'closed'")
    assert await page.evaluate("views.at(-1).error.code") == "session_not_found"
    code = await lender.connect()
    ended = await follow(lender, origin, host, code)
    await ended.wait_for_function("views.at(-1).state === 'connected'")
    await caller.send("DELETE", f"/api/sessions/{code}")
    await ended.wait_for_function("views.at(-1).state === 'closed'")
    assert await ended.evaluate("views.at(-1).error.code") == "session_ended"


async def test_a_page_that_stops_following_is_told_nothing_more(lender: Lender, origin: str, host: str) -> None:
    code = await lender.connect()
    page = await follow(lender, origin, host, code)
    await page.wait_for_function("views.at(-1).state === 'connected'")
    await page.evaluate("following.close()")
    await page.wait_for_function("views.at(-1).state === 'closed'")
    assert (await view(page)).get("error") is None
