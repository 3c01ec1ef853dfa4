"""The chat of the console in Chromium, with a scripted model: answers, calls, approvals, errors, keyboard and screens.

Screenshots are kept in build/screenshots.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from playwright.async_api import Browser, Locator, Page, expect
from tests.browser.console_tools import HOSTILE
from tests.browser.test_console import KEY, SCREENS, opened, settings, written
from tests.cli.process import serving
from tests.http.served import serving_apart
from tests.requirement_table import ROOT
from tests.responses.backend.script import Call, CutOff, Gate, Held, Refused, Turn, calls, says
from tests.responses.backend.scripted import ScriptedBackend

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I16-2-console"),
]

COUNT = Call("count", '{"seconds": 0}')


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
def url(backend: tuple[ScriptedBackend, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a host without auth listens, whose model is the scripted one."""
    folder = tmp_path_factory.mktemp("chat")
    with serving("-c", written(folder, with_model(backend[1])), folder=folder) as service:
        yield service.url
        service.process.terminate()
        assert service.end() == 0, service.lines


def with_model(port: int) -> dict[str, Any]:
    """The configuration of a host with a console and a model."""
    backend = {"base_url": f"http://127.0.0.1:{port}/v1", "model": "m1", "retries": 0}
    given = settings()
    providers = {**given["providers"], "code": {"enabled": True, "type": "code_mode"}}
    return {**given, "providers": providers, "responses": {"backend": backend}}


@asynccontextmanager
async def chatting(chromium: Browser, url: str, screen: str = "light") -> AsyncIterator[Page]:
    """The page, ready for a message."""
    async with opened(chromium, screen) as page:
        await page.goto(f"{url}/console#/chat")
        await expect(page.get_by_role("heading", name="Chat")).to_be_visible()
        yield page


async def say(page: Page, text: str) -> None:
    """Type a message and send it."""
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


def answers(page: Page) -> Locator:
    """The texts of the model."""
    return page.locator(".said:not(.user)")


@pytest.mark.parametrize("screen", SCREENS)
async def test_the_calls_of_an_answer_are_shown_and_the_page_is_accessible(
    chromium: Browser, url: str, model: ScriptedBackend, axe: str, screen: str
) -> None:
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    model.plays(
        Turn(text="Let me count, and look for a picture.", calls=(COUNT, Call("picture", id="call_2"))),
        calls(Call("hostile")),
        says("I counted, and found a small picture. The last tool failed."),
        calls(Call("erase", '{"everything": true}')),
    )
    async with chatting(chromium, url, screen) as page:
        await say(page, "Count, please, and show me a picture.")
        await expect(answers(page)).to_have_count(2)
        await expect(answers(page).last).to_contain_text("The last tool failed.")
        shown = page.locator(".tool-call")
        await expect(shown).to_have_count(3)
        await expect(shown.nth(0).locator("summary")).to_contain_text("count")
        await expect(shown.nth(0)).to_contain_text("counted")
        await expect(page.get_by_role("img", name="Image of the result")).to_be_visible()
        await expect(shown.nth(2)).to_contain_text("<script>window.broken=1</script> ⟨U+202E⟩evil")
        await say(page, "Erase everything.")
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        await shown.nth(0).locator("summary").click()
        await page.screenshot(path=folder / f"chat-{screen}.png", animations="disabled")
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert await page.evaluate("window.broken") is None
        assert HOSTILE[-5] not in await page.locator("body").inner_text()
        await page.emulate_media(reduced_motion="reduce")
        await page.evaluate(axe)
        result = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [each["id"] for each in result["violations"] if each["impact"] in ("serious", "critical")] == []


ANSWER = """Two steps:

  1. read
  2. write

```python
def write():
    return "<b>&amp;</b>"
```
Then **run** it.
- done"""


async def test_an_answer_is_drawn_as_it_is_written_and_its_code_is_no_markup(
    chromium: Browser, url: str, model: ScriptedBackend
) -> None:
    model.plays(says(ANSWER), says("```\nhalf of a block"))
    async with chatting(chromium, url) as page:
        await say(page, "How?")
        code = answers(page).get_by_role("region", name="Code")
        await expect(code).to_have_text('def write():\n    return "<b>&amp;</b>"', use_inner_text=True)
        assert await answers(page).get_by_role("listitem").all_inner_texts() == ["1.\nread", "2.\nwrite", "•\ndone"]
        assert await answers(page).locator("strong").all_inner_texts() == ["run"]
        assert await answers(page).locator("b").count() == 0
        await say(page, "And then?")
        await expect(code.last).to_have_text("half of a block")


async def test_each_message_continues_the_conversation_which_stays_while_other_pages_are_looked_at(
    chromium: Browser, url: str, model: ScriptedBackend
) -> None:
    model.plays(says("Hello Ada."), says("You are Ada."), says("Who are you?"))
    async with chatting(chromium, url) as page:
        await page.get_by_label("Message", exact=True).fill("I am Ada.")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("Hello!")
        await page.keyboard.press("Enter")
        await expect(answers(page)).to_have_text(["Model: Hello Ada."])
        await page.get_by_role("link", name="Calls").click()
        await page.get_by_role("link", name="Chat").click()
        await say(page, "Who am I?")
        await expect(answers(page)).to_have_text(["Model: Hello Ada.", "Model: You are Ada."])
        await page.get_by_role("button", name="New conversation").click()
        await say(page, "And now?")
        await expect(answers(page)).to_have_text(["Model: Who are you?"])
    assert asked_for(model) == [
        ["I am Ada.\nHello!"],
        ["I am Ada.\nHello!", "Who am I?"],
        ["And now?"],
    ]


async def test_escape_stops_an_answer_and_leaves_it_out_of_the_conversation(
    chromium: Browser, url: str, model: ScriptedBackend
) -> None:
    gate = Gate()
    model.plays(Held(turn=says("A very long story."), gate=gate, after=3), says("Short."))
    async with chatting(chromium, url) as page:
        await say(page, "Tell a story.")
        await expect(answers(page)).to_contain_text("A ve")
        await page.keyboard.press("Escape")
        await expect(page.locator(".noted")).to_contain_text("not part of the conversation")
        await expect(page.locator(".chat [role=status]")).to_contain_text("Stopped.")
        await say(page, "Shorter.")
        await expect(answers(page).last).to_have_text("Model: Short.")
    assert asked_for(model)[-1] == ["Shorter."]


@pytest.mark.parametrize(("button", "output"), [("Approve", "erased"), ("Deny", "the call was not approved")])
async def test_a_call_that_needs_approval_is_decided_in_the_page(
    chromium: Browser, url: str, model: ScriptedBackend, button: str, output: str
) -> None:
    model.plays(calls(Call("erase", json.dumps({"everything": button == "Approve"}))), says("Done."))
    async with chatting(chromium, url) as page:
        await say(page, "Erase something.")
        request = page.get_by_role("region", name="A call that needs approval")
        said = "erase everything." if button == "Approve" else "erase not everything."
        await expect(request.locator(".sentence")).to_have_text(said)
        await request.get_by_role("button", name=button).click()
        await expect(answers(page)).to_have_text(["Model: Done."])
        await expect(page.locator(".tool-call")).to_contain_text(output)


@pytest.mark.requirement("I37-ways")
@pytest.mark.parametrize(("button", "output"), [("Approve", "erased"), ("Deny", "denied: ")])
async def test_a_script_asks_in_the_page_as_often_as_it_must(
    chromium: Browser, url: str, model: ScriptedBackend, button: str, output: str
) -> None:
    # Scripts that are equal are one run while it waits.
    code = f"""
said = "{button}"
try:
    said = await erase(everything=True)
except RuntimeError as error:
    said = str(error)
[said, await erase(everything=False)]
"""
    model.plays(calls(Call("run_code", json.dumps({"code": code}))), says("Done."))
    async with chatting(chromium, url) as page:
        await say(page, "Erase twice.")
        requests = page.get_by_role("region", name="A call that needs approval")
        await expect(requests).to_contain_text("erase in run_code, line 4")
        await expect(requests.locator(".sentence")).to_have_text("erase everything.")
        await requests.get_by_text("Arguments as JSON", exact=True).click()
        await expect(requests.get_by_role("region", name="Arguments", exact=True)).to_contain_text('"everything": true')
        await requests.get_by_text("The call that it is part of", exact=True).click()
        script = requests.get_by_role("region", name="The call that it is part of", exact=True)
        await expect(script).to_contain_text("said = await erase")
        await requests.get_by_role("button", name=button).click()
        await expect(requests.nth(1)).to_contain_text('"everything": false')
        await requests.nth(1).get_by_role("button", name="Approve").click()
        await expect(answers(page)).to_have_text(["Model: Done."])
        await expect(page.locator(".tool-call")).to_contain_text(output)


async def test_what_goes_wrong_is_said_and_can_be_tried_again(
    chromium: Browser, url: str, model: ScriptedBackend
) -> None:
    async with AsyncClient(base_url=url, timeout=30) as client, chatting(chromium, url) as page:
        model.plays(Refused(status=500), CutOff(turn=says("A long answer."), after=2), says("At last."))
        problem = page.locator(".problem").last
        await say(page, "Hello?")
        await expect(problem).to_contain_text("The model's server did not answer.")
        await page.get_by_role("button", name="Try again").click()
        await expect(page.locator(".problem")).to_have_count(2)
        await page.get_by_role("button", name="Try again").click()
        await expect(answers(page).last).to_have_text("Model: At last.")
        session = (await client.post("/api/sessions", json={"pluginType": "table"})).json()["code"]
        await page.goto(f"{url}/console#/chat/{session}")
        await page.reload()
        await expect(page.get_by_label("Session")).to_have_value(session)
        await client.delete(f"/api/sessions/{session}")
        await say(page, "Draw.")
        await expect(problem).to_contain_text(f"There is no session {session}.")


def asked_for(model: ScriptedBackend) -> list[list[str]]:
    """The visitor's messages in each request to the model."""
    return [[each["content"] for each in asked.messages if each["role"] == "user"] for asked in model.asked]


async def test_a_session_lends_its_tools_to_the_model(chromium: Browser, url: str, model: ScriptedBackend) -> None:
    async with AsyncClient(base_url=url, timeout=30) as client, chatting(chromium, url) as page:
        session = (await client.post("/api/sessions", json={"pluginType": "table"})).json()
        own = {"authorization": f"Bearer {session['pluginToken']}"}
        body = {"tools": [{"name": "draw", "description": "Draw."}], "capabilities": [], "environment": {}}
        path = f"/api/sessions/{session['code']}/register-tools"
        assert (await client.post(path, json=body, headers=own)).status_code == 201
        await page.reload()
        await page.get_by_label("Session").select_option(session["code"])
        model.plays(says("I can draw."))
        await say(page, "What can you do?")
        await expect(answers(page)).to_have_text(["Model: I can draw."])
    assert "draw" in model.asked[-1].tool_names


async def test_without_a_model_the_page_names_the_lines_to_add_and_continues_once_they_are_there(
    chromium: Browser, backend: tuple[ScriptedBackend, int], model: ScriptedBackend, tmp_path: Path
) -> None:
    keys = [
        {"key": KEY, "subject": "ann", "scopes": ["tools:read", "tools:call"]},
        {"key": f"{KEY}-root", "subject": "root", "scopes": ["admin", "operator"]},
    ]
    bare = {**settings(), "auth": {"api_keys": keys}}
    ready = {**with_model(backend[1]), "auth": {"api_keys": keys}}
    with serving("-c", written(tmp_path, bare), folder=tmp_path) as service:

        async def reload(config: dict[str, Any]) -> None:
            written(tmp_path, config)
            root = {"authorization": f"Bearer {KEY}-root"}
            async with AsyncClient(base_url=service.url, headers=root, timeout=60) as client:
                assert (await client.post("/v1/reload")).status_code == 200

        async with opened(chromium) as page:
            await page.goto(f"{service.url}/console#/chat")
            await page.get_by_label("API key or token").fill(KEY)
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("region", name="Lines of providers.yaml")).to_contain_text("base_url:")
            await reload(ready)
            model.plays(calls(Call("erase", '{"everything": true}')), calls(Call("count", "[]")), says("Erased."))
            await say(page, "Erase everything.")
            await expect(page.get_by_text("Your key may not decide it.")).to_be_visible()
            await page.get_by_role("button", name="Continue").click()
            await expect(page.get_by_text("It is not decided yet.")).to_be_visible()
            await reload({**ready, "auth": {"api_keys": keys[1:]}})
            await page.get_by_role("button", name="Continue").click()
            await expect(page.get_by_role("alert")).to_contain_text("expired or was revoked")


async def test_a_quota_and_a_host_that_is_gone_are_named(
    chromium: Browser, backend: tuple[ScriptedBackend, int], model: ScriptedBackend, tmp_path: Path
) -> None:
    config = {**with_model(backend[1]), "quotas": {"key": {"calls_per_minute": 1}}}
    model.plays(says("One."))
    async with opened(chromium) as page:
        with serving("-c", written(tmp_path, config), folder=tmp_path) as service:
            await page.goto(f"{service.url}/console#/chat")
            await say(page, "One?")
            await expect(answers(page)).to_have_text(["Model: One."])
            await say(page, "Two?")
            await expect(page.locator(".problem")).to_contain_text("Too many requests.")
            await expect(page.locator(".problem")).to_contain_text("Try again in ")
        await page.get_by_role("button", name="Try again").click()
        await expect(page.locator(".problem").last).to_contain_text("The host does not answer.")
