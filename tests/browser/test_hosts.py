"""Hosts of other kinds: one that asks for keys, one that is stopped and started again, and one of `make serve`."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from playwright.async_api import Page, expect
from tests.browser.conftest import TABLE, configuration, static_server
from tests.browser.host import Caller
from tests.browser.lender import Lender
from tests.cli.process import Serving, serving
from tests.kept_port import kept_port
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.needs("chromium")]


@pytest.mark.judge
@pytest.mark.requirement("I3-5-browser-lend")
async def test_a_host_that_asks_for_keys_gets_the_key_for_creating_and_the_token_for_all_else(
    page: Page, origin: str, tmp_path: Path
) -> None:
    file = configuration(tmp_path, origin)
    settings = yaml.safe_load(file.read_text("utf-8"))
    settings["auth"] = {"api_keys": [{"key": "the-key", "subject": "alice"}]}
    file.write_text(yaml.safe_dump(settings), "utf-8")
    with serving("-c", str(file), folder=tmp_path) as service:
        await page.goto(f"{origin}/data_table.css")
        lender = Lender(page, service.url)
        sent: dict[str, str] = {}
        page.on("request", lambda request: sent.update({request.url: request.headers.get("authorization", "")}))
        refused = await page.evaluate(
            "async (module) => (await import(module)).connect().catch(({ code, status }) => [code, status])",
            f"{service.url}/toolplug.js",
        )
        assert refused == ["authentication_required", 401]
        code = await lender.connect(apiKey="the-key")
        await lender.lends("one", "() => 1")
        place = f"{service.url}/api/sessions/{code}"
        assert sent.pop(f"{service.url}/api/sessions") == "Bearer the-key"
        assert sent[f"{place}/register-tools"].startswith("Bearer tps_")
        assert sent[f"{place}/stream"].startswith("Bearer tps_")
        await lender.does("await app.end()")
        await lender.until("app.state === 'closed'")


@pytest.mark.judge
@pytest.mark.requirement("I3-5-browser-lend", "I3-5-browser-example")
async def test_a_page_lives_through_a_host_that_is_killed_and_started_again(
    page: Page, origin: str, tmp_path: Path
) -> None:
    file = configuration(tmp_path, origin)
    with kept_port() as port:
        host = f"http://127.0.0.1:{port}"
        with serving("-c", str(file), "--port", str(port), folder=tmp_path) as service:
            assert service.url == host
            await page.goto(f"{origin}/?host={host}")
            await expect(page.locator("#tools li")).to_have_count(1)
            code = await page.locator("#code").inner_text()
            service.send(signal.SIGKILL)
            service.process.wait()
            await expect(page.locator("#state")).to_have_text("reconnecting")
            await expect(page.get_by_role("alert")).to_contain_text("Trying again in")
        with serving("-c", str(file), "--port", str(port), folder=tmp_path) as service:
            assert service.url == host
            await page.locator("#retry").evaluate("button => button.click()")  # gone where it was quicker itself
            await expect(page.locator("#state")).to_have_text("connected")
            await expect(page.locator("#code")).to_have_text(code)
            async with Caller(host) as caller:
                added = await caller.call(code, "add_rows", rows=[{"label": "Otters", "value": 1}])
                assert added["structured"] == {"rows": 1}


@pytest.mark.judge
@pytest.mark.requirement("I3-5-browser-make-serve")
async def test_the_example_page_works_with_the_host_of_make_serve(page: Page) -> None:
    for port in (8000, 8080):
        with socket.socket() as tried:
            assert tried.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is taken; this test needs it"
    with made_to_serve() as service, static_server(TABLE, 8000) as origin:
        host = service.url
        assert host == "http://127.0.0.1:8080"
        await page.goto(origin)
        await expect(page.locator("#state")).to_have_text("connected")
        await expect(page.locator("#tools li")).to_have_count(1)
        code = await page.locator("#code").inner_text()
        async with Caller(host) as caller:
            assert "add_rows" in await caller.offered(code)
            await caller.call(code, "add_rows", rows=[{"label": "Otters", "value": 1}])
        await expect(page.locator("#rows tr")).to_have_text(["Otters1"])
        await page.close()


@pytest.mark.judge
@pytest.mark.requirement("I3-5-browser-lend")
async def test_the_pages_of_the_guide_do_what_it_says(page: Page, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "how-to" / "lend-tools-from-a-web-page.md").read_text("utf-8")
    files = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', guide, re.MULTILINE | re.DOTALL))
    (tmp_path / "page").mkdir()
    with static_server(tmp_path / "page") as origin:
        (tmp_path / "providers.yaml").write_text(files["providers.yaml"].replace("http://localhost:8000", origin))
        with serving("-c", "providers.yaml", folder=tmp_path) as service:
            for name in ("page/index.html", "page/model.html"):
                (tmp_path / name).write_text(files[name].replace("http://127.0.0.1:8080", service.url), "utf-8")
            await page.goto(origin)
            await expect(page.locator("#state")).to_have_text("connected")
            code = await page.locator("#code").inner_text()
            model = await page.context.new_page()
            await model.goto(f"{origin}/model.html#{code}")
            await expect(model.locator("li")).to_have_text(["count"])
            async with Caller(service.url) as caller:
                assert (await caller.call(code, "count", by=3))["structured"] == 3
                assert (await caller.call(code, "count", by=0))["output"] == "the counter only goes up"
                assert (await caller.call(code, "count", by=8))["structured"] == 11
                await expect(model.locator("li")).to_have_text(["count", "reset"])
                await caller.call(code, "reset")
            await expect(page.locator("#count")).to_have_text("0")
            await expect(model.locator("li")).to_have_text(["count"])


@contextmanager
def made_to_serve() -> Iterator[Serving]:
    """`make serve` in the checkout; what make would set up first is taken to be there."""
    process = subprocess.Popen(
        ["make", "--no-print-directory", "--old-file=.venv/.ready", "serve"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    service = Serving(process)
    try:
        yield service
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        service.end()
        assert process.stderr is not None
        process.stderr.close()
