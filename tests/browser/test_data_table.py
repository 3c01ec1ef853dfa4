"""The example page: a model works with the table that a person looks at, through a host started by the real command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.async_api import Browser, Page, Route, expect
from tests.browser.conftest import configuration
from tests.browser.host import Caller
from tests.browser.late_pages import new_profile
from tests.cli.process import serving

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.browser,
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I3-5-browser-example"),
]

WITHOUT_ROWS = {"add_rows"}
WITH_ROWS = {"add_rows", "describe", "draw_chart", "select"}
ROWS = [{"label": "Otters", "value": 42}, {"label": "Herons", "value": 63}, {"label": "Pike", "value": -5}]


async def opened(page: Page, origin: str, host: str) -> str:
    """Open the example page and wait until it is connected; the session's code."""
    await page.goto(f"{origin}/?host={host}")
    await expect(page.locator("#state")).to_have_text("connected")
    await expect(page.locator("#tools li strong").first).to_be_visible()
    return await page.locator("#code").inner_text()


async def names(page: Page) -> set[str]:
    """The tools that the page shows as lent."""
    return set(await page.locator("#tools li strong").all_inner_texts())


@pytest.mark.needs("curl")
async def test_a_call_from_a_second_process_changes_the_page(page: Page, origin: str, host: str) -> None:
    code = await opened(page, origin, host)
    body = json.dumps({"name": "add_rows", "session": code, "arguments": {"rows": ROWS}})
    command = ["curl", "-sS", "-H", "Content-Type: application/json", "-d", body, f"{host}/v1/tool-calls"]
    called = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(called.stdout)["structured"] == {"rows": 3}
    await expect(page.locator("#rows tr")).to_have_text(["Otters42", "Herons63", "Pike-5"])
    await expect(page.locator("#calls li")).to_have_text(["add_rowsanswered"])
    await page.evaluate("navigator.clipboard.writeText = async (text) => console.log(`copied ${text}`)")
    async with page.expect_console_message(lambda message: message.text.startswith("copied ")) as copied:
        await page.get_by_role("button", name="Copy prompt").click()
    prompt = (await copied.value).text.removeprefix("copied ")
    assert prompt.startswith("# Tools of data_table\n")
    assert f"{host}/api/sessions/{code}/mcp" in prompt


async def test_the_tools_come_and_go_with_the_rows_and_a_client_hears_of_it(
    page: Page, origin: str, host: str, caller: Caller
) -> None:
    code = await opened(page, origin, host)
    assert await caller.offered(code) >= WITHOUT_ROWS
    assert not await caller.offered(code) & (WITH_ROWS - WITHOUT_ROWS)
    async with caller.following(code) as following:
        await page.get_by_label("Label").fill("Otters")
        await page.get_by_label("Value").fill("42")
        await page.keyboard.press("Enter")
        came = await following.next("tool-availability-update")
        assert await caller.offered(code) >= WITH_ROWS
        await expect(page.locator("#tools li")).to_have_count(4)
        assert await names(page) == WITH_ROWS
        await page.get_by_role("button", name="Remove all").click()
        went = await following.next("tool-availability-update")
    assert {tool["name"] for tool in came["updates"]["added"]} == WITH_ROWS - WITHOUT_ROWS
    assert came["reason"] == "a row was added"
    assert (went["updates"]["added"], set(went["updates"]["removed"])) == ([], WITH_ROWS - WITHOUT_ROWS)
    await expect(page.locator("#tools li")).to_have_count(1)


async def test_a_model_describes_selects_and_draws_what_the_person_sees(
    page: Page, origin: str, host: str, caller: Caller
) -> None:
    code = await opened(page, origin, host)
    async with caller.following(code) as following:
        await caller.call(code, "add_rows", rows=ROWS)
        await following.next("tool-availability-update")
    selected = await caller.call(code, "select", minimum=40)
    assert selected["structured"] == {"selected": ["Otters", "Herons"]}
    await expect(page.locator("tr.chosen")).to_have_count(2)
    await expect(page.get_by_label("Select Herons")).to_be_checked()
    drawn = await caller.call(code, "draw_chart", kind="line")
    assert drawn["structured"] == {"drawn": "line", "rows": 3}
    await expect(page.get_by_role("img", name="A line of 3 values: Otters 42, Herons 63, Pike -5")).to_be_visible()
    described = await caller.call(code, "describe")
    assert described["structured"] == {
        "rows": 3,
        "minimum": -5,
        "maximum": 63,
        "mean": 100 / 3,
        "median": 42,
        "sum": 100,
        "selected": ["Otters", "Herons"],
        "chart": "line",
    }
    wrong = await caller.call(code, "draw_chart", kind="pie")
    assert wrong["status"] == "invalid_arguments"


async def test_a_closed_tab_takes_its_tools_along_and_a_reopened_one_brings_them_back(
    chromium: Browser, origin: str, host: str, caller: Caller
) -> None:
    async with tab(chromium) as page:
        code = await opened(page, origin, host)
        await caller.call(code, "add_rows", rows=ROWS)
        await expect(page.locator("#tools li")).to_have_count(4)
        kept = await page.evaluate("({...sessionStorage})")
        before = await caller.metadata(code)
        async with caller.following(code) as following:
            await page.close()
            await following.until_status("detached")
    assert {tool["name"]: tool["available"] for tool in (await caller.metadata(code))["tools"]} == dict.fromkeys(
        WITH_ROWS, False
    )
    assert not await caller.offered(code) & WITH_ROWS
    gone = await caller.call(code, "describe")
    assert (gone["status"], gone["is_error"]) == ("unavailable", True)
    # A browser gives a tab that is reopened the session storage of the closed one.
    async with tab(chromium, kept) as page:
        assert await opened(page, origin, host) == code
        await expect(page.locator("#rows tr")).to_have_count(3)
        assert (await caller.call(code, "describe"))["structured"]["rows"] == 3
        assert await caller.offered(code) >= WITH_ROWS
        assert (await caller.metadata(code))["revision"] == before["revision"]


async def test_a_page_that_is_left_and_come_back_to_goes_on_with_its_session(
    page: Page, origin: str, host: str, caller: Caller
) -> None:
    code = await opened(page, origin, host)
    await caller.call(code, "add_rows", rows=ROWS)
    await expect(page.locator("#tools li")).to_have_count(4)
    await page.goto(f"{origin}/data_table.css")
    await page.go_back()
    await expect(page.locator("#state")).to_have_text("connected")
    await expect(page.locator("#code")).to_have_text(code)
    assert (await caller.call(code, "describe"))["structured"]["sum"] == 100


async def test_when_the_session_is_ended_the_page_says_so_and_begins_a_new_one(
    page: Page, origin: str, host: str, caller: Caller
) -> None:
    code = await opened(page, origin, host)
    await caller.send("DELETE", f"/api/sessions/{code}")
    await expect(page.locator("#state")).to_have_text("closed")
    await expect(page.get_by_role("alert")).to_contain_text("was ended")
    await page.get_by_role("button", name="Start a new session").click()
    await expect(page.locator("#state")).to_have_text("connected")
    await expect(page.locator("#code")).not_to_have_text(code)
    await expect(page.locator("#tools li")).to_have_count(1)


async def test_to_a_host_that_has_lost_the_session_the_page_speaks_of_no_credentials(
    page: Page, origin: str, host: str
) -> None:
    await opened(page, origin, host)

    async def lost(route: Route) -> None:
        asks = route.request.method == "OPTIONS"
        headers = {f"access-control-allow-{what}": "*" for what in ("origin", "methods", "headers")}
        error = {"code": "unauthenticated", "message": "no valid credentials"}
        await route.fulfill(status=204 if asks else 401, headers=headers, json=None if asks else {"error": error})

    await page.route(f"{host}/api/sessions/**", lost)
    await page.get_by_label("Label", exact=True).fill("Otters")
    await page.get_by_label("Value", exact=True).fill("12")
    await page.keyboard.press("Enter")
    await expect(page.locator("#state")).to_have_text("closed")
    await expect(page.get_by_role("alert")).to_contain_text("The host no longer has this session.")


async def test_text_from_elsewhere_is_shown_as_text(page: Page, origin: str, host: str, caller: Caller) -> None:
    code = await opened(page, origin, host)
    label = "<img src=x onerror=alert(1)><b>bold"
    await caller.call(code, "add_rows", rows=[{"label": label, "value": 1}])
    await caller.call(code, "draw_chart", kind="bar")
    await expect(page.locator("#rows td:nth-child(2)")).to_have_text(label)
    assert await page.locator("main img, main b").count() == 0


async def test_a_host_that_is_away_is_named_and_asked_again(page: Page, origin: str, host: str) -> None:
    await page.clock.install()
    await page.route(f"{host}/**", lambda route: route.abort(), times=1)
    await page.goto(f"{origin}/?host={host}")
    await expect(page.locator("#state")).to_have_text("host away")
    await expect(page.get_by_role("alert")).to_contain_text(f"No host answers at {host}")
    await expect(page.get_by_role("alert")).to_contain_text(origin)
    await page.clock.run_for(5_000)
    await expect(page.locator("#state")).to_have_text("connected")
    await expect(page.get_by_role("alert")).to_be_hidden()


async def test_a_host_that_wants_a_key_asks_the_person_for_it(page: Page, origin: str, tmp_path: Path) -> None:
    file = configuration(tmp_path, origin)
    settings = yaml.safe_load(file.read_text("utf-8"))
    settings["auth"] = {"api_keys": [{"key": "the-key", "subject": "alice"}]}
    file.write_text(yaml.safe_dump(settings), "utf-8")
    with serving("-c", str(file), folder=tmp_path) as service:
        await page.goto(f"{origin}/?host={service.url}")
        await expect(page.get_by_role("alert")).to_contain_text("The host asks for an API key.")
        field = page.get_by_label("API key")
        await expect(field).to_be_focused()
        await page.keyboard.type("a-wrong-key")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("The host does not know this API key.")
        await field.fill("the-key")
        await page.keyboard.press("Enter")
        await expect(page.locator("#state")).to_have_text("connected")
        await expect(page.get_by_role("alert")).to_be_hidden()


@pytest.mark.requirement("C-5-cors")
async def test_the_browser_asks_the_host_before_it_sends_credentials_and_is_let_in(
    page: Page, origin: str, host: str
) -> None:
    asked: list[str] = []

    def hear(sent: dict[str, Any]) -> None:
        if sent["request"]["method"] == "OPTIONS":
            asked.append(sent["request"]["url"])

    network = await page.context.new_cdp_session(page)
    network.on("Network.requestWillBeSent", hear)
    await network.send("Network.enable")
    code = await opened(page, origin, host)
    assert origin != host
    assert f"{host}/api/sessions/{code}/register-tools" in asked
    assert f"{host}/api/sessions/{code}/stream" in asked


@asynccontextmanager
async def tab(chromium: Browser, kept: dict[str, str] | None = None) -> AsyncIterator[Page]:
    """A tab of its own; with what the session storage of a closed one held, where that is given."""
    context = await new_profile(chromium)
    page = await context.new_page()
    if kept is not None:
        script = f"if (location.protocol === 'http:') Object.assign(sessionStorage, {json.dumps(kept)})"
        await page.add_init_script(script)
    yield page
    await context.close()
