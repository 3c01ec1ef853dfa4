"""`toolplug dev` in Chromium: a crash with its trace, a reload that keeps the arguments, keys, Markdown of answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from httpx2 import AsyncClient
from playwright.async_api import Browser, expect
from tests.browser.test_console import call, opened
from tests.cli.process import Serving, serving

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("thread"),  # of the event loop, which looks up the address of the host
    pytest.mark.needs("chromium"),
]

NOTES = """from pydantic import BaseModel

from toolplug import tool


class Box(BaseModel):
    label: str
    heavy: bool = False


@tool
def pack(boxes: list[Box], to: Box | None = None) -> str:
    \"\"\"Pack boxes.\"\"\"
    return ", ".join(f"{box.label} {box.heavy}" for box in boxes)


@tool
def price(item: str, count: int = 1) -> float:
    \"\"\"Return the price of an item.\"\"\"
    return {"tea": 2.5}[item] * count


@tool
def zebra() -> int:
    \"\"\"Be last.\"\"\"
    return 1
"""


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of tools."""
    file = tmp_path_factory.mktemp("dev") / "notes.py"
    file.write_text(NOTES, "utf-8")
    return file


@pytest.fixture(scope="module")
def dev(notes: Path) -> Iterator[Serving]:
    """A host for the author of that file."""
    with serving("notes.py", "--no-open", folder=notes.parent, command="dev") as service:
        yield service
        service.process.terminate()
        assert service.end() == 0, service.lines


@pytest.mark.requirement("I33-dev")
async def test_a_crash_is_shown_with_its_trace_and_the_arguments_stay_while_the_code_changes(
    chromium: Browser, dev: Serving, notes: Path
) -> None:
    async with opened(chromium) as page:
        await page.goto(f"{dev.url}/console#/tools/price")
        item = page.get_by_label("item")
        await item.fill("gold")
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("region", name="Trace")).to_contain_text("KeyError: 'gold'")
        notes.write_text(NOTES.replace('"tea": 2.5', '"tea": 2.5, "gold": 60.5'), "utf-8")
        dev.wait_for("configuration reloaded: notes started")
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("region", name="Result")).to_have_text("60.5")
        await expect(item).to_have_value("gold")


@pytest.mark.requirement("I33-forms")
async def test_a_list_of_models_is_a_form_for_each_item(chromium: Browser, dev: Serving) -> None:
    async with opened(chromium) as page:
        await page.goto(f"{dev.url}/console#/tools/pack")
        for n, label in enumerate(("a", "b")):
            await page.get_by_role("button", name="Add", exact=False).click()
            await page.get_by_role("textbox", name="label").nth(n).fill(label)
        await page.get_by_label("heavy").nth(1).select_option("true")
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("region", name="Result")).to_have_text("a False, b True")
        await page.get_by_role("button", name="Remove item 1 of boxes").click()
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("region", name="Result")).to_have_text("b True")


@pytest.mark.requirement("I33-keys")
async def test_a_tool_is_found_and_called_by_keys_alone(chromium: Browser, dev: Serving) -> None:
    async with opened(chromium) as page:
        # A busy machine: what is drawn is heard, too.
        devtools = await page.context.new_cdp_session(page)
        await devtools.send("Emulation.setCPUThrottlingRate", {"rate": 20})
        await page.goto(f"{dev.url}/console")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("zeb")
        await expect(page.get_by_role("option", name="zebra")).to_be_visible()
        await devtools.send("Emulation.setCPUThrottlingRate", {"rate": 1})
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("option", name="zebra", selected=True)).to_be_visible()
        await page.keyboard.press("k")
        await expect(page.get_by_role("heading", name="price")).to_be_visible()
        await page.keyboard.press("j")
        await expect(page.get_by_role("heading", name="zebra")).to_be_visible()
        await page.keyboard.press("/")
        await page.keyboard.type("price?")
        await expect(page.get_by_role("searchbox").or_(page.locator(".search input"))).to_have_value("price?")
        await page.locator("h1").click()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


@pytest.mark.requirement("I33-keys")
async def test_the_keyboard_keeps_its_place_after_each_action(chromium: Browser, dev: Serving) -> None:
    async with opened(chromium) as page:

        async def press(name: str, *, role: Literal["button", "listbox"], leads_to: str) -> None:
            await page.get_by_role("button", name=name, exact=True).focus()
            await page.keyboard.press("Enter")
            await expect(page.get_by_role(role, name=leads_to, exact=True)).to_be_focused()

        await page.goto(f"{dev.url}/console#/tools/price")
        await page.get_by_label("item").fill("tea")
        await press("Call", role="button", leads_to="Call")  # which was disabled while the call ran
        await expect(page.get_by_role("region", name="Try it").get_by_role("status")).to_contain_text("success")
        await page.goto(f"{dev.url}/console#/tools/pack")
        await page.get_by_role("button", name="Add an item").click()
        await page.get_by_role("button", name="Remove item 1 of boxes").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("fieldset.nested")).to_be_focused()
        await page.goto(f"{dev.url}/console#/calls")
        await page.get_by_role("listbox").focus()
        await page.keyboard.press("ArrowDown")
        await press("Close", role="listbox", leads_to="Calls, the newest first")
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.goto(f"{dev.url}/console#/tools")
        await page.get_by_role("listbox").focus()
        await page.keyboard.press("ArrowDown")
        await expect(page.locator(".split")).to_be_focused()
        await press("‹ All tools", role="listbox", leads_to="Tools")


async def test_what_is_chosen_is_seen_in_the_colours_of_the_system_alone(chromium: Browser, dev: Serving) -> None:
    async with opened(chromium) as page:
        await page.emulate_media(forced_colors="active")
        await page.goto(f"{dev.url}/console#/tools/price")
        chosen = page.get_by_role("option", name="price", selected=True)
        assert await chosen.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
        await page.goto(f"{dev.url}/console#/waterfall")
        assert await page.locator(".bar").first.evaluate("each => getComputedStyle(each).forcedColorAdjust") == "none"


MOST_KEYS = 8
"""Of each of the five tasks, letters and Enter included."""
SHOP = """from toolplug import tool


@tool
def order(item: str) -> str:
    \"\"\"Order an item.\"\"\"
    return f"ordered {item}"


@tool
def price(item: str) -> float:
    \"\"\"Return the price of an item.\"\"\"
    return 2.5


@tool
def wipe() -> str:
    \"\"\"Wipe everything.\"\"\"
    return "wiped"
"""
CONFIG = """providers:
  console: {enabled: true, public_routes: true}
  shop:
    type: ./shop.py
    enabled: true
    tools:
      order: ask
      wipe: deny
"""


@pytest.mark.requirement("I33-keys")
async def test_five_tasks_take_twelve_keys_each(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    config = tmp_path / "providers.yaml"
    config.write_text(CONFIG, "utf-8")
    with serving("-c", str(config), folder=tmp_path) as service:
        link = service.wait_for("the console is at ").split()[-1]
        url = link.partition("/console#")[0]
        for name, arguments in (("price", {"item": "tea"}), ("wipe", {}), ("order", {"item": "tea"})):
            await call(url, name, **arguments)
        config.write_text(CONFIG + "limits: {timeout: 9s}\n", "utf-8")
        async with AsyncClient(base_url=url, timeout=60) as client:
            await client.post("/v1/reload")
        async with opened(chromium) as page:
            await page.goto(link)
            counts: dict[str, int] = {}

            async def press(task: str, *keys: str) -> None:
                for key in keys:
                    await page.keyboard.press(key)
                counts[task] = counts.get(task, 0) + len(keys)

            async def choose(task: str, letters: str, option: str) -> None:
                await expect(page.get_by_role("dialog")).to_have_count(0)
                await press(task, "Control+k", *letters)
                await expect(page.get_by_role("option", name=option, selected=True)).to_be_visible()
                await press(task, "Enter")

            await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
            await choose("find a refusal and its line", "wip", "wipe")
            await expect(page.locator(".gates > li.bad")).to_contain_text("providers.yaml:8")
            await choose("decide", "app", "Approvals")
            await expect(page.locator(".approval.chosen")).to_be_visible()
            await page.wait_for_timeout(500)  # a key that comes sooner is not taken for a decision
            await press("decide", "a")
            await expect(page.get_by_text("approved")).to_be_visible()
            await choose("run a tool again", "pri", "price")
            await page.get_by_label("item").fill("tea")
            await page.get_by_role("button", name="Call", exact=True).click()
            await expect(page.get_by_role("region", name="Result")).to_have_text("2.5")
            await page.get_by_role("heading", name="Tools", exact=True).click()
            async with page.expect_response("**/v1/tool-calls"):
                await press("run a tool again", "r", "Tab", "Enter")
            await choose("see what a reload changed", "conf", "Configuration")
            await expect(page.get_by_label("Changed values")).to_contain_text("limits.timeout")
            await choose("find who may call a tool", "ord", "order")
            await expect(page.locator(".gates > li", has_text="tenants")).to_be_visible()
            await expect(page.locator(".gates > li", has_text="scope")).to_contain_text("tools:call")
        service.process.terminate()
        assert service.end() == 0, service.lines
    assert len(counts) == 5
    assert {task: keys for task, keys in counts.items() if keys > MOST_KEYS} == {}


MARKDOWN = """# Head
- one
  - two

1. three
| a | b |
|---|--:|
| 1 | 2 |

```py
x = 1
"""


@pytest.mark.requirement("I33-markdown")
async def test_answers_are_markdown_without_links(chromium: Browser, dev: Serving) -> None:
    async with opened(chromium) as page:
        await page.goto(f"{dev.url}/console")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        load = "const { Markdown, blocksOf } = await import('/console/files/markdown.js');"
        blocks: list[dict[str, Any]] = await page.evaluate(
            f"async text => {{ {load} return blocksOf(text); }}", MARKDOWN
        )
        assert [block["kind"] for block in blocks] == ["heading", "list", "table", "code"]
        assert [item["deep"] for item in blocks[1]["items"]] == [0, 1, 0]
        show = (
            f"async text => {{ {load} const {{ html, render }} = await import('/console/files/ui.js');"
            " const box = document.createElement('div'); render(html`<${Markdown} text=${text}/>`, box);"
            " return box.innerHTML; }"
        )
        shown = await page.evaluate(show, "a **bold** [link](javascript:alert) <img src=x> `code`")
        assert "<strong>" in shown
        assert "<code>" in shown
        assert "<a" not in shown
        assert "<img" not in shown
        assert '<td class="right">' in await page.evaluate(show, MARKDOWN)
        bad = "[" * 50_000
        took = await page.evaluate(
            f"async text => {{ {load} const at = performance.now();"
            " Markdown({ text }); blocksOf(text); return performance.now() - at; }",
            bad,
        )
        assert took < 1_000
