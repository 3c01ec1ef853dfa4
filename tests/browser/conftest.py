"""A headless Chromium, pages of an origin of their own, and a host started by the real command."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from playwright.async_api import Browser, Page, async_playwright, expect
from tests.browser.host import PATIENCE_S, Caller
from tests.browser.late_pages import new_profile
from tests.cli.process import serving
from tests.node.installed import installed
from tests.requirement_table import ROOT

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-features=WebMCP",
]
GRACE = "5s"
"""Short for the tests that wait for its end, and long enough for a page on a busy machine to come back in it."""
TABLE = ROOT / "examples" / "data_table"


@pytest.fixture(scope="module")
async def chromium(anyio_backend: str) -> AsyncIterator[Browser]:
    """The machine's own Chromium."""
    expect.set_options(timeout=1000 * PATIENCE_S)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """The example page on a static server, another origin than the host's."""
    with static_server(TABLE) as served:
        yield served


@pytest.fixture(scope="module")
def host(origin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a host listens: with the checkout's providers.yaml, for pages of that origin, and a short grace time."""
    folder = tmp_path_factory.mktemp("host")
    with serving("-c", str(configuration(folder, origin)), folder=folder) as service:
        yield service.url
        service.process.terminate()
        assert service.end() == 0, service.lines


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core."""
    return (installed("axe") / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


@pytest.fixture
async def caller(host: str) -> AsyncIterator[Caller]:
    """Somebody else at that host."""
    async with Caller(host) as somebody:
        yield somebody


@pytest.fixture
async def page(chromium: Browser, origin: str) -> AsyncIterator[Page]:
    """A page of that origin in a browser profile of its own; an exception in it fails the test."""
    context = await new_profile(chromium)
    opened = await context.new_page()
    failures: list[str] = []
    opened.on("pageerror", lambda error: failures.append(str(error)))
    yield opened
    await context.close()
    assert failures == []


def configuration(folder: Path, origin: str) -> Path:
    """Write the checkout's providers.yaml for a host in another folder."""
    settings = yaml.safe_load((ROOT / "providers.yaml").read_text("utf-8"))
    settings["providers"]["file_search"]["paths"] = [str(ROOT / "docs")]
    settings["http"]["allowed_origins"] = [origin]
    settings["sessions"] = {"grace": GRACE}
    file = folder / "providers.yaml"
    file.write_text(yaml.safe_dump(settings), "utf-8")
    return file


@contextmanager
def static_server(folder: Path, port: int = 0) -> Iterator[str]:
    """Python's own server of files, in a process of its own; gives its origin."""
    command = [sys.executable, "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://[\d.]+:\d+", server.stdout.readline())
        assert found is not None
        yield found[0]
        server.kill()
