"""The console in Chromium: every page, by mouse and keyboard, light, dark and on a phone; sign-in, and lost hosts.

Screenshots of every page are kept in build/screenshots.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from httpx2 import AsyncClient
from playwright.async_api import Browser, Page, expect
from tests.browser.console_tools import HOSTILE
from tests.browser.late_pages import new_profile
from tests.cli.process import serving
from tests.host.plain_server import PlainServer
from tests.http.test_jwt import SECTION, token
from tests.requirement_table import ROOT

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I16-1-browser"),
]

PAGES = [
    "overview",
    "tools",
    "tools/count",
    "calls",
    "waterfall",
    "approvals",
    "sessions",
    "servers/broken",
    "configuration",
    "configuration/providers.sample.tools.erase",
    "page-journal",
]
SCREENS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1360, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1360, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True},
    "small": {"viewport": {"width": 320, "height": 256}, "color_scheme": "light"},  # 1280 by 1024 at 400 percent
}
KEY = "only-for-tests-5d1c"
VALID_S = 8
"""How long a token is valid that expires in a test."""
LINES = "each => { const text = new Range(); text.selectNodeContents(each); return text.getClientRects().length; }"
"""How many lines the text of an element takes."""
FAR_APART = """async () => {
  const { ticksOf } = await import("/console/files/waterfall_groups.js");
  const part = (n) => ({ begins: 25 * n, ends: 25 * n + 1, idle: false, left: n / 40, width: 0.001 });
  const parts = Array.from({ length: 40 }, (_, n) => part(n));
  return ticksOf({ begins: 0, scale: { parts, of: (moment) => moment / 1000 } }, 4).map((tick) => tick.seconds);
}"""
"""The lines of the axis for forty short calls, one each 25 seconds."""
TOOLS = ROOT / "tests" / "browser" / "console_tools.py"


def settings(tools: str = "Tools") -> dict[str, Any]:
    """The configuration of a host with a console."""
    rules = {"erase": "ask"} if tools == "Tools" else {}
    return {
        "providers": {
            "console": {"enabled": True, "public_routes": True, "keep_calls": 50},
            "journal": {"enabled": True},
            "sample": {
                "type": f"{TOOLS}:{tools}",
                "enabled": True,
                "tools": rules,
            },
        },
        "mcp_servers": {"broken": {"command": "no-such-program-of-a-server"}},
    }


def written(folder: Path, config: dict[str, Any]) -> str:
    file = folder / "providers.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    return str(file)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The link to its console that a host without auth prints, which ends with the decision key."""
    folder = tmp_path_factory.mktemp("console_of_a_host_whose_configuration_is_in_a_folder_with_a_long_name")
    with serving("-c", written(folder, settings()), folder=folder) as service:
        yield service.wait_for("the console is at ").split()[-1]
        service.process.terminate()
        assert service.end() == 0, service.lines


@pytest.fixture(scope="module")
def url(link: str) -> str:
    """Where a host without auth listens."""
    return link.partition("/console#")[0]


@asynccontextmanager
async def opened(chromium: Browser, screen: str = "light", *, late: bool = True) -> AsyncIterator[Page]:
    """A page in a profile of its own; an exception in it, or something that its policy blocks, fails the test."""
    context = await new_profile(chromium, late=late, **SCREENS[screen])
    page = await context.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on(
        "console", lambda message: failures.append(message.text) if "Content Security Policy" in message.text else None
    )
    yield page
    await context.close()
    assert failures == []


async def call(url: str, name: str, request: str | None = None, **arguments: object) -> Any:
    """Call a tool from elsewhere, in a request of this id."""
    headers = {"x-request-id": request} if request else {}
    async with AsyncClient(base_url=url, timeout=30, headers=headers) as client:
        return (await client.post("/v1/tool-calls", json={"name": name, "arguments": arguments})).json()


@pytest.mark.parametrize("screen", SCREENS)
async def test_every_page_is_accessible_and_fits_the_screen(chromium: Browser, url: str, axe: str, screen: str) -> None:
    for name in ("count", "crash", "unknown"):
        await call(url, name, **({"seconds": 0} if name == "count" else {}))
    for all_of_it in (False, True):
        await call(url, "erase", everything=all_of_it)
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {}
    async with opened(chromium, screen) as page:
        for name in PAGES:
            await page.goto(f"{url}/console#/{name}")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            await expect(page.locator(".loading")).to_have_count(0)
            await expect(page.get_by_role("img", name="The console is loading.")).to_have_count(0)
            await page.evaluate("document.fonts.ready")
            await page.screenshot(path=folder / f"{name.replace('/', '-')}-{screen}.png", animations="disabled")
            overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, f"{name} is {overflow} px too wide"
            assert await page.locator(".connection").evaluate(LINES) == 1
            await page.evaluate(axe)
            result = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found[name] = [
                f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in result["violations"]
            ]
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


async def test_a_tool_is_found_and_called_by_keyboard_alone(chromium: Browser, url: str) -> None:
    async with opened(chromium) as page:
        await page.goto(f"{url}/console#/tools")
        await page.get_by_label("Search names and descriptions").fill("report progress")
        await expect(page.locator(".virtual-row")).to_have_count(1)
        await page.get_by_role("listbox", name="Tools").focus()
        await page.keyboard.press("ArrowDown")
        await expect(page.get_by_role("heading", name="count")).to_be_visible()
        await expect(page.locator(".gates > li")).not_to_have_count(0)
        await page.get_by_label("seconds").fill("2")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("step 1")).to_be_visible()
        await expect(page.get_by_role("region", name="Result", exact=True)).to_have_text("counted")
        await page.goto(f"{url}/console#/tools/picture")
        await page.get_by_role("button", name="Call").click()
        await expect(page.get_by_role("img", name="Image of the result")).to_be_visible()


async def test_calls_appear_as_they_are_made_and_a_crash_shows_its_place(chromium: Browser, url: str) -> None:
    async with opened(chromium) as page:
        await page.goto(f"{url}/console#/calls")
        await expect(page.locator(".live")).to_have_text("live")
        request, rows = uuid4().hex, page.locator(".virtual-row")
        # The host remembers the calls of other tests.
        await page.get_by_label("Search tools, callers, sessions and ids").fill(request)
        await call(url, "picture", request)
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="Clear").click()
        await expect(rows).to_have_count(0)
        await call(url, "count", request, seconds=0)
        await call(url, "crash", request)
        await expect(rows).to_have_count(2)
        await page.get_by_label("Status").select_option("panic")
        await expect(rows).to_have_count(1)
        await rows.first.click()
        await expect(page.get_by_role("region", name="Where it crashed").last).to_contain_text("ValueError at")
        await expect(page.locator("body")).not_to_contain_text("a secret text")


@pytest.mark.requirement("I33-waterfall")
async def test_calls_of_a_request_are_bars_that_open_their_line(chromium: Browser, url: str, link: str) -> None:
    trace = f"{uuid4().hex}"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "x-toolplug-decide": link.partition("#decide=")[2]}
    async with AsyncClient(base_url=url, timeout=30, headers=headers) as client, opened(chromium) as page:

        async def make(name: str, approval: str | None = None, **arguments: object) -> Any:
            body = {"name": name, "arguments": arguments, "approval": approval}
            return (await client.post("/v1/tool-calls", json=body)).json()

        await asyncio.gather(make("count", seconds=0.1), make("picture"))
        for _ in range(2):
            await make("crash")
        ticket, other = [
            (await make("erase", everything=all_of_it))["metadata"]["approval"]["id"] for all_of_it in (False, True)
        ]
        await page.goto(f"{url}/console#/waterfall/trace/{trace}")
        lanes = page.locator(".lane")
        await expect(lanes).to_have_count(5)
        # Two calls wait at once: that is no time in which calls ran.
        assert re.search(r" in \d\d\d ms · waited ", await page.locator(".fall-title p").inner_text())
        await client.post(f"/v1/approvals/{ticket}", json={"decision": "approve"})
        assert (await make("erase", ticket, everything=False))["status"] == "success"
        await expect(page.locator(".bar.wait.open")).to_have_count(1)
        names = await lanes.locator("strong").all_inner_texts()
        marked = [await page.locator(f".bar.{tone}").count() for tone in ("crashed", "wait", "asked")]
        await client.post(f"/v1/approvals/{other}", json={"decision": "deny"})
        await lanes.filter(has_text="crash").get_by_role("button").click()
        await expect(page.get_by_role("region", name="Where it crashed").last).to_contain_text("ValueError at")
        await expect(page.locator(".gates > li")).not_to_have_count(0)
        called = page.url
        async with page.expect_download() as saved:
            await page.get_by_role("button", name="Save picture").click()
        picture = (await (await saved.value).path()).read_text("utf-8")
        await page.goto(f"{url}/console#/overview")
        await page.goto(called)
        await expect(page.get_by_role("heading", name="crash", exact=True)).to_be_visible()
    assert sorted(names) == ["count", "crash", "erase", "erase", "picture"]
    assert marked == [2, 2, 2]
    assert all(f">{name}<" in picture for name in names)


async def test_the_axis_has_lines_also_where_the_calls_are_far_apart(chromium: Browser, url: str) -> None:
    async with opened(chromium) as page:
        await page.goto(f"{url}/console#/waterfall")
        found = await page.evaluate(FAR_APART)
    assert found == [0, 250, 500, 750]


async def test_the_page_of_a_plugin_has_no_empty_columns(chromium: Browser, url: str) -> None:
    await call(url, "count", seconds=0)
    async with opened(chromium) as page:
        await page.goto(f"{url}/console#/page-journal")
        await expect(page.get_by_role("columnheader", name="call id")).to_be_visible()
        await expect(page.get_by_role("columnheader", name="revoked by")).to_have_count(0)


async def test_a_waiting_call_is_approved(chromium: Browser, url: str, link: str) -> None:
    async with opened(chromium) as page:
        await page.goto(link)
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert (await page.evaluate("location.hash"), link.partition("#decide=")[2] != "") == ("", True)
        await page.goto(f"{url}/console#/approvals")
        refused = await call(url, "erase", everything=False)
        assert refused["status"] == "denied"
        ticket = page.locator(".approval", has_text='"everything": false')
        await ticket.get_by_role("button", name="Approve").click()
        await expect(ticket).to_have_count(0)
        assert (await call(url, "erase", everything=False))["output"] == "erased"


async def test_a_page_without_the_decision_key_says_how_to_decide(chromium: Browser, url: str, link: str) -> None:
    own = (await call(url, "erase", everything=True))["metadata"]["approval"]["id"]
    async with opened(chromium) as page:
        await page.goto(f"{url}/console#/approvals")
        tickets = page.locator(".approval")  # also those that other tests left; the newest is last
        await tickets.last.get_by_role("button", name="Deny").click()
        await expect(tickets.last.get_by_role("alert")).to_contain_text("the link that toolplug serve prints")
        assert await state_of(url, own) == "waiting"
        count = await tickets.count()
        await page.evaluate("(key) => { location.hash = key; }", f"#{link.partition('#')[2]}")
        await page.get_by_role("link", name="Approvals").click()
        await tickets.last.get_by_role("button", name="Deny").click()
        await expect(tickets).to_have_count(count - 1)
    assert await state_of(url, own) == "denied"


async def test_a_pressed_key_without_the_decision_key_says_how_to_decide(chromium: Browser, url: str) -> None:
    own = (await call(url, "erase", everything=True))["metadata"]["approval"]["id"]
    async with opened(chromium) as page:
        await page.goto(f"{url}/console#/approvals/{own}")
        await expect(page.locator(".approval.chosen")).to_have_count(1)
        # A key that comes at once could be meant for the call before, and is ignored.
        shown = await page.evaluate("performance.now()")
        await page.wait_for_function("(shown) => performance.now() - shown > 1000", arg=shown)
        await page.keyboard.press("d")
        alert = page.locator(".approval").get_by_role("alert")
        await expect(alert).to_contain_text("the link that toolplug serve prints")
    assert await state_of(url, own) == "waiting"


async def state_of(url: str, approval: str) -> str:
    """The state of a call that needs a person."""
    async with AsyncClient(base_url=url, timeout=30) as client:
        found = (await client.get("/v1/approvals")).json()["approvals"]
    return next(each["state"] for each in found if each["id"] == approval)


async def test_the_configuration_shows_origins_and_what_a_reload_changed(chromium: Browser, tmp_path: Path) -> None:
    config = settings()
    with serving("-c", written(tmp_path, config), folder=tmp_path) as service:
        async with opened(chromium) as page, AsyncClient(base_url=service.url, timeout=60) as client:
            await page.goto(f"{service.url}/console#/configuration")
            await page.get_by_label("Search paths, values and files").fill("keep_calls")
            await expect(page.locator(".virtual-row")).to_have_count(1)
            await expect(page.locator(".virtual-row")).to_contain_text("providers.yaml:")
            await expect(page.get_by_role("region", name="Last reload")).to_have_count(0)
            config["providers"]["console"]["keep_calls"] = 60
            written(tmp_path, config)
            assert (await client.post("/v1/reload")).status_code == 200
            await page.reload()
            await expect(page.locator(".changes")).to_contain_text("providers.console.keep_calls")
            await expect(page.locator(".changes del")).to_contain_text("50")
            await expect(page.locator(".changes ins")).to_contain_text("60")
            config["providers"]["console"]["keep_calls"] = "many"
            written(tmp_path, config)
            assert (await client.post("/v1/reload")).status_code == 422
            await page.reload()
            await expect(page.get_by_role("region", name="Last reload")).to_contain_text("Nothing was changed")


async def test_the_tools_of_a_session_appear_and_go_live(chromium: Browser, url: str) -> None:
    async with AsyncClient(base_url=url, timeout=30) as client, opened(chromium) as page:
        session = (await client.post("/api/sessions", json={"pluginType": "table"})).json()
        path, own = f"/api/sessions/{session['code']}", {"authorization": f"Bearer {session['pluginToken']}"}
        await page.goto(f"{url}/console#/sessions/{session['code']}")
        await expect(page.get_by_text("Not registered yet")).to_be_visible()
        tools = [{"name": "draw", "description": "Draw."}, {"name": "clear", "description": "Clear."}]
        body = {"tools": tools, "capabilities": [], "environment": {}}
        assert (await client.post(f"{path}/register-tools", json=body, headers=own)).status_code == 201
        await expect(page.locator(".lent > li")).to_have_count(2)
        change = {"toolUpdates": {"removed": ["draw"]}, "reason": "emptied"}
        assert (await client.post(f"{path}/update-tools", json=change, headers=own)).status_code == 200
        await expect(page.locator(".lent > li")).to_have_count(1)
        await expect(page.locator(".events")).to_contain_text("removed draw (emptied)")
        await page.get_by_role("button", name="Prompt for a model").click()
        await expect(page.get_by_role("region", name="Prompt")).to_contain_text("# Tools of table")
        await page.goto(f"{url}/console#/sessions")
        await expect(page.get_by_role("heading", name=session["code"])).to_be_visible()
        await page.get_by_role("link", name="Chat with its tools").click()
        await expect(page.get_by_role("heading", name="Chat")).to_be_visible()
        assert page.url.endswith(f"#/chat/{session['code']}")


async def test_a_changed_definition_is_compared_with_the_accepted_one_and_accepted(
    chromium: Browser, tmp_path: Path
) -> None:
    server = PlainServer(tmp_path / "web", "fetch")
    config = {**settings(), "mcp_servers": {"web": {**server.entry, "pin": True}}}
    path = "/api/mcp-servers/web/discover?wait=true"
    with serving("-c", written(tmp_path, config), folder=tmp_path) as service:
        async with opened(chromium) as page, AsyncClient(base_url=service.url, timeout=30) as client:
            await client.post(path)
            server.lists("fetch", "erase", description="Does it, and tells me.")
            await client.post(path)
            await page.goto(f"{service.url}/console#/servers/web")
            changes = page.get_by_role("region", name="Description, what has changed")
            await expect(changes.locator(".removed")).to_contain_text("Does it.")
            await expect(changes.locator(".added")).to_contain_text("Does it, and tells me.")
            await expect(page.locator(".quarantined", has_text="erase")).to_contain_text("new")
            await page.get_by_role("button", name="Accept fetch").click()
            await expect(page.locator(".quarantined")).to_have_count(1)
            await page.get_by_role("button", name="Accept all").click()
            await expect(page.locator(".quarantined")).to_have_count(0)


async def test_admin_chooses_whose_catalog_is_shown(chromium: Browser, tmp_path: Path) -> None:
    config = settings()
    config["providers"]["sample"]["tools"] = {"erase": {"tenants": ["acme"]}}
    config["toolsets"] = {"own": {"prefix": "own", "from": "provider:sample"}}
    config["agents"] = {"clerk": {"toolsets": ["own"]}}
    with serving("-c", written(tmp_path, config), folder=tmp_path) as service:
        async with opened(chromium) as page, AsyncClient(base_url=service.url, timeout=30) as client:
            await page.goto(f"{service.url}/console#/tools/erase")
            await expect(page.get_by_text("not in this catalog")).to_be_visible()
            await page.get_by_label("Tenant").fill("acme")
            await expect(page.get_by_text("This is the catalog of tenant acme")).to_be_visible()
            await expect(page.get_by_text("not in this catalog")).to_have_count(0)
            await expect(page.get_by_role("button", name="Call")).to_have_count(0)
            await page.get_by_label("Tenant").fill("")
            assert await page.locator("#agents option").first.get_attribute("value") == "clerk"
            await page.get_by_label("Agent").fill("clerk")
            await expect(page.locator(".virtual-row strong").first).to_have_text("own.count")
            code = (await client.post("/api/sessions", json={"pluginType": "table"})).json()["code"]
            await page.reload()
            await page.get_by_label("Session").select_option(code)
            await expect(page.locator(".list .note")).not_to_have_text("0 tools")


async def test_hostile_texts_are_shown_as_text_and_large_ones_cut(chromium: Browser, url: str) -> None:
    async with opened(chromium) as page:
        await page.goto(f"{url}/console#/tools/hostile")
        await expect(page.get_by_text("<script>window.broken=1</script>").first).to_be_visible()
        await page.get_by_role("button", name="Call").click()
        await expect(page.get_by_role("region", name="Result", exact=True)).to_contain_text("⟨U+202E⟩evil")
        assert await page.evaluate("window.broken") is None
        assert HOSTILE[-5] not in await page.locator("body").inner_text()
        await page.goto(f"{url}/console#/tools/large")
        await page.get_by_role("button", name="Call").click()
        await expect(page.get_by_text("more characters")).to_be_visible()


async def test_a_key_is_asked_for_kept_in_the_tab_and_asked_for_again_when_it_is_revoked(
    chromium: Browser, tmp_path: Path
) -> None:
    reader = {"key": KEY, "subject": "ann", "tenant": "t1", "scopes": ["tools:read"]}
    root = {"key": f"{KEY}-root", "subject": "root", "scopes": ["admin", "operator"]}
    config = {**settings(), "auth": {"api_keys": [reader, root]}}
    with serving("-c", written(tmp_path, config), folder=tmp_path) as service:
        async with opened(chromium) as page:
            await page.goto(service.url)
            await page.get_by_label("API key or token").fill("wrong")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("alert")).to_contain_text("does not accept this key")
            await page.get_by_label("API key or token").fill(KEY)
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
            await expect(page.get_by_role("link", name="Approvals")).to_have_count(0)
            await expect(page.get_by_role("link", name="Configuration")).to_have_count(0)
            await expect(page.get_by_role("button", name="Reload")).to_have_count(0)
            await page.reload()
            await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
            other = await page.context.new_page()
            await other.goto(f"{service.url}/console")
            await expect(other.get_by_label("API key or token")).to_be_visible()
            written(tmp_path, {**config, "auth": {"api_keys": [root]}})
            async with AsyncClient(base_url=service.url, timeout=60) as client:
                done = await client.post("/v1/reload", headers={"authorization": f"Bearer {KEY}-root"})
                assert done.status_code == 200, done.text
            await expect(page.get_by_role("alert")).to_contain_text("expired or was revoked")
            assert await page.evaluate("JSON.stringify({...sessionStorage})") == "{}"


async def test_a_token_that_expires_while_the_console_is_open_leads_to_the_sign_in(
    chromium: Browser, tmp_path: Path
) -> None:
    config = {**settings(), "auth": {"api_keys": [{"key": KEY, "subject": "ann", "scopes": ["admin"]}], "jwt": SECTION}}
    with serving("-c", written(tmp_path, config), folder=tmp_path) as service:
        async with opened(chromium) as page:
            await page.goto(f"{service.url}/console#/servers")
            await page.get_by_label("API key or token").fill(token(exp=int(time.time()) + VALID_S, scope="admin"))
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name="MCP servers")).to_be_visible()
            await expect(page.get_by_role("alert")).to_contain_text("expired or was revoked")
            assert await page.evaluate("JSON.stringify({...sessionStorage})") == "{}"
            await page.get_by_label("API key or token").fill(KEY)
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name="MCP servers")).to_be_visible()
            await expect(page.get_by_role("alert")).to_have_count(0)


async def test_the_page_says_that_the_host_is_away_and_goes_on_when_it_is_back(
    chromium: Browser, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    file = written(tmp_path, settings())
    async with opened(chromium) as page:
        with serving("-c", file, "--port", port, folder=tmp_path) as service:
            await page.goto(f"{service.url}/console#/overview")
            await expect(page.locator(".connection")).to_have_text("online")
        await expect(page.get_by_role("alert")).to_contain_text("does not answer")
        with serving("-c", file, "--port", port, folder=tmp_path) as service:
            await expect(page.get_by_role("alert")).to_have_count(0)
            await expect(page.locator(".connection")).to_have_text("online")


async def test_the_colours_can_be_chosen_and_stay_chosen(chromium: Browser, url: str) -> None:
    background = "getComputedStyle(document.documentElement).backgroundColor"
    async with opened(chromium) as page:
        await page.goto(f"{url}/console")
        light = await page.evaluate(background)
        await page.get_by_role("radio", name="dark").check(force=True)
        dark = await page.evaluate(background)
        await page.reload(wait_until="domcontentloaded")
        assert await page.evaluate(background) == dark != light
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await expect(page.get_by_role("radio", name="dark")).to_be_checked()
