"""The chat of the example page: the model of a host works with the table by the page's own session tools.

Screenshots are kept in build/screenshots.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from playwright.async_api import Browser, Page, Route, expect
from tests.browser.conftest import configuration
from tests.browser.test_console import SCREENS, opened
from tests.cli.process import serving
from tests.http.served import serving_apart
from tests.requirement_table import ROOT
from tests.responses.backend.script import Call, Gate, Held, Refused, Turn, calls, says
from tests.responses.backend.scripted import ScriptedBackend

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I16-2-example"),
]

MARKUP = "<img src=x onerror=alert(1)>"
ROWS = [{"label": "Nile", "value": 6650}, {"label": "Amazon", "value": 6400}, {"label": "Yangtze", "value": 6300}]


@pytest.fixture(scope="module")
def backend() -> Iterator[tuple[ScriptedBackend, int]]:
    """A scripted model, and its port."""
    model = ScriptedBackend()
    with serving_apart(model) as port:
        yield model, port


@pytest.fixture
def model(backend: tuple[ScriptedBackend, int]) -> ScriptedBackend:
    """The scripted model without a script."""
    backend[0].clear()
    return backend[0]


@pytest.fixture(scope="module")
def url(backend: tuple[ScriptedBackend, int], origin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a host for pages of that origin listens, whose model is the scripted one."""
    folder = tmp_path_factory.mktemp("table")
    file = configuration(folder, origin)
    settings = yaml.safe_load(file.read_text("utf-8"))
    endpoint = {"base_url": f"http://127.0.0.1:{backend[1]}/v1", "model": "m1", "retries": 0}
    file.write_text(yaml.safe_dump({**settings, "responses": {"backend": endpoint}}), "utf-8")
    with serving("-c", str(file), folder=folder) as service:
        yield service.url


@asynccontextmanager
async def table(chromium: Browser, origin: str, host: str, screen: str = "light") -> AsyncIterator[Page]:
    """The example page, connected to the host."""
    async with opened(chromium, screen) as page:
        await page.goto(f"{origin}/?host={host}")
        await expect(page.locator("#state")).to_have_text("connected")
        await expect(page.locator("#tools li strong").first).to_be_visible()
        yield page


async def say(page: Page, text: str) -> None:
    """Type a message and send it."""
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


@pytest.mark.parametrize("screen", SCREENS)
async def test_a_sentence_moves_the_chart(
    chromium: Browser, origin: str, url: str, model: ScriptedBackend, axe: str, screen: str
) -> None:
    model.plays(
        Turn(text="I add the rivers.", calls=(Call("add_rows", json.dumps({"rows": ROWS})),)),
        calls(Call("draw_chart", '{"kind": "bar"}')),
        calls(Call("draw_chart", '{"kind": "pie"}')),
        says(f"There they are. {MARKUP}"),
    )
    async with table(chromium, origin, url, screen) as page:
        await say(page, "Add the three longest rivers and draw them.")
        await expect(page.locator("#talk .text").last).to_contain_text(f"There they are. {MARKUP}")
        await expect(page.get_by_role("img", name="Bars of 3 values: Nile 6650")).to_be_visible()
        await expect(page.locator("#talk .call")).to_have_count(3)
        await expect(page.locator("#talk .failed")).to_contain_text("failed")
        await expect(page.locator("#heard")).to_contain_text("There they are.")
        await page.screenshot(
            path=ROOT / "build" / "screenshots" / f"data-table-chat-{screen}.png", full_page=True, animations="disabled"
        )
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert await page.locator("main img").count() == 0
        await page.emulate_media(reduced_motion="reduce")
        await page.evaluate(axe)
        result = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [each["id"] for each in result["violations"] if each["impact"] in ("serious", "critical")] == []


async def test_a_conversation_that_the_host_has_lost_begins_again(
    chromium: Browser, origin: str, url: str, model: ScriptedBackend
) -> None:
    model.plays(says("First."), says("Second."))

    async def lose(route: Route) -> None:
        error = {"code": "previous_response_not_found", "message": "there is no such response"}
        await route.fulfill(status=404, headers={"access-control-allow-origin": "*"}, json={"error": error})

    async with table(chromium, origin, url) as page:
        await say(page, "One.")
        await expect(page.locator("#talk .text").last).to_contain_text("First.")
        await page.route(f"{url}/v1/responses", lose, times=1)
        await say(page, "Two.")
        await expect(page.locator("#talk .problem")).to_contain_text("The next message begins a new one.")
        async with page.expect_request(f"{url}/v1/responses") as asked:
            await page.get_by_role("button", name="Try again").click()
        await expect(page.locator("#talk .text").last).to_contain_text("Second.")
        request = (await asked.value).post_data_json
    assert "previous_response_id" not in request
    assert "Markdown is not drawn" in request["instructions"]


async def test_an_answer_is_stopped_and_a_failed_one_tried_again(
    chromium: Browser, origin: str, url: str, model: ScriptedBackend
) -> None:
    gate = Gate()
    model.plays(Held(turn=says("A very long story."), gate=gate, after=3), Refused(status=500), says("Short."))
    async with table(chromium, origin, url) as page:
        await say(page, "Tell a story.")
        await expect(page.locator("#talk .text")).to_contain_text("A ve")
        await page.keyboard.press("Escape")
        await expect(page.locator("#talk .note")).to_contain_text("not part of the conversation")
        await say(page, "Shorter.")
        await expect(page.locator("#talk .problem")).to_contain_text("The model's server did not answer.")
        await page.get_by_role("button", name="Try again").click()
        await expect(page.locator("#talk .text").last).to_contain_text("Short.")
    assert [each["content"] for each in model.asked[-1].messages if each["role"] == "user"] == ["Shorter."]


async def test_without_a_model_the_page_names_the_lines_to_add(chromium: Browser, origin: str, tmp_path: Path) -> None:
    with serving("-c", str(configuration(tmp_path, origin)), folder=tmp_path) as service:
        async with table(chromium, origin, service.url) as page:
            await expect(page.locator("#talk .problem")).to_contain_text("This host has no model.")
            await expect(page.get_by_role("region", name="Lines of providers.yaml")).to_contain_text("base_url:")
