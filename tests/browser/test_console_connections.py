"""The console where callers act as themselves: a call that needs a sign-in gives a button, and connections are cut.

Screenshots are kept in build/screenshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.async_api import Browser, Page, expect
from tests.browser.late_pages import new_profile
from tests.browser.test_console import SCREENS, opened
from tests.cli.process import serving
from tests.credentials.oauth_server import LISTING, Accounts, serving_oauth
from tests.http.served import serving_apart
from tests.requirement_table import ROOT
from tests.responses.backend.script import Call, calls, says
from tests.responses.backend.scripted import ScriptedBackend

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I38-console"),
]

SHOTS = ROOT / "build" / "screenshots"


@pytest.fixture
def model() -> Iterator[tuple[ScriptedBackend, int]]:
    """A model that calls the tool and answers with its result."""
    backend = ScriptedBackend()
    with serving_apart(backend) as port:
        yield backend, port


@pytest.fixture
def url(model: tuple[ScriptedBackend, int], tmp_path: Path) -> Iterator[str]:
    """Where a host without auth listens whose server wants each caller to sign in."""
    with serving_oauth(Accounts()) as server:
        entry = {
            "url": server,
            "prefix": "who",
            "headers": {"Authorization": f"Bearer {LISTING}"},
            "user_auth": {"oauth": {"scopes": ["read"]}},
        }
        settings = {
            "egress": {"allow": ["loopback"]},
            "mcp_servers": {"who": entry},
            "providers": {"console": {"enabled": True}},
            "responses": {"backend": {"base_url": f"http://127.0.0.1:{model[1]}/v1", "model": "small"}},
        }
        (tmp_path / "providers.yaml").write_text(yaml.safe_dump(settings))
        with serving(folder=tmp_path) as service:
            yield service.url
            service.process.terminate()
            assert service.end() == 0, service.lines


async def sign_in(page: Page) -> None:
    """Press the button of the page, in the tab that its link has opened."""
    async with page.expect_popup() as opened:
        await page.get_by_role("link", name="Sign in at who").click()
    tab = await opened.value
    await tab.get_by_role("button", name="Continue").click()
    await expect(tab.get_by_role("heading", name="Connected", exact=True)).to_be_visible()
    await tab.close()


async def test_a_visitor_signs_in_where_its_call_needs_it_and_cuts_the_connection(
    chromium: Browser, url: str, model: tuple[ScriptedBackend, int]
) -> None:
    page = await (await new_profile(chromium)).new_page()
    await page.goto(f"{url}/console#/servers/who")
    mine = page.get_by_role("region", name="Your connections")
    await expect(mine.get_by_text("0 of 1 connected")).to_be_visible()
    await expect(page.get_by_text("whoami", exact=True)).to_be_visible()  # the server has been listed

    await page.goto(f"{url}/console#/tools/who.whoami")
    call = page.get_by_role("button", name="Call", exact=True)
    await call.click()
    await sign_in(page)
    await call.click()
    await expect(page.get_by_role("region", name="Result", exact=True)).to_contain_text(': "ada"')
    await expect(page.get_by_role("link", name="Sign in at who")).to_have_count(0)

    await page.goto(f"{url}/console#/servers")
    await expect(mine.get_by_text("1 of 1 connected")).to_be_visible()
    await mine.get_by_role("button", name="Disconnect from who").click()
    await expect(mine.get_by_text("0 of 1 connected")).to_be_visible()
    await mine.get_by_role("button", name="Connect to who").click()
    await sign_in(page)
    await expect(mine.get_by_text("1 of 1 connected")).to_be_visible()
    await mine.get_by_role("button", name="Disconnect from who").click()
    await expect(mine.get_by_role("button", name="Connect to who")).to_be_visible()

    backend = model[0]
    whoami = calls(Call("who__whoami", "{}"))
    backend.plays(whoami, says("Please sign in."), whoami, says("Hello, ada."))
    await page.goto(f"{url}/console#/chat")
    message = page.get_by_label("Message", exact=True)
    await message.fill("Who am I?")
    await message.press("Enter")
    answers = page.locator(".said.answer")
    await expect(answers).to_contain_text(["Please sign in."])
    await sign_in(page)
    await message.fill("And now?")
    await message.press("Enter")
    await expect(answers).to_contain_text(["Please sign in.", "Hello, ada."])
    await expect(page.get_by_role("link", name="Sign in at who")).to_have_count(1)  # of the first call alone
    await page.close()


@pytest.mark.parametrize("screen", SCREENS)
async def test_it_fits_every_screen(chromium: Browser, url: str, screen: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    async with opened(chromium, screen) as page:
        await page.goto(f"{url}/console#/servers")
        mine = page.get_by_role("region", name="Your connections")
        await mine.get_by_role("button", name="Connect to who").click()
        await expect(mine.get_by_role("link", name="Sign in at who")).to_be_visible()
        await page.screenshot(path=SHOTS / f"connections-{screen}.png")
        await page.goto(f"{url}/console#/tools/who.whoami")
        await page.get_by_role("button", name="Call", exact=True).click()
        await page.get_by_role("link", name="Sign in at who").scroll_into_view_if_needed()
        await page.screenshot(path=SHOTS / f"sign-in-{screen}.png")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
