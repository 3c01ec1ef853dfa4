"""What `toolplug serve` shows on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.cli.process import PATIENCE_S, TOOLPLUG
from tests.host.conftest import Package

pytestmark = pytest.mark.judge

PLAIN = r"\x1b\[0m"
"""The end of a colour: the names on the start screen have one."""

CODE = """
    from toolplug import FunctionProvider, tool

    class Shop(FunctionProvider):
        @tool
        async def price(self, item: int = 0) -> int:
            return 5

        @tool
        async def rename(self, old: str, new: str) -> str:
            return new

        @tool
        async def order(self) -> int:
            return 1

        @tool
        async def fail(self) -> int:
            return {}["secret key"]
"""


class Terminal:
    """A `toolplug serve` whose stderr is a terminal; `shown` is what it has written there so far."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.shown = ""

    def wait_for(self, text: str) -> re.Match[str]:
        """Read until the pattern is there."""
        while (found := re.search(text, self.shown)) is None:
            # A read of a terminal is not ended by the signal of a timeout.
            assert select.select([self._master], [], [], PATIENCE_S)[0], self.shown
            read = os.read(self._master, 4096)
            assert read, self.shown
            self.shown += read.decode()
        return found


@contextmanager
def terminal(
    folder: Path, *options: str, before: Callable[[Terminal], object] | None = None
) -> Iterator[tuple[Terminal, str]]:
    """Serve at a terminal; `before` is called once the command runs, and the block once it listens."""
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(folder / "site-packages"), "NO_COLOR": ""}
    command = [TOOLPLUG, "serve", "--port", "0", *options]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=slave) as process:
        os.close(slave)
        seen = Terminal(master)
        try:
            if before is not None:
                before(seen)
            yield seen, seen.wait_for(r"toolplug listening on (http://\S+)\r\n")[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
            os.close(master)


def call(url: str, name: str, **arguments: object) -> httpx2.Response:
    return httpx2.post(f"{url}/v1/tool-calls", json={"name": name, "arguments": arguments}, timeout=PATIENCE_S)


@pytest.fixture
def shop(package: Package, write: Callable[..., Path], tmp_path: Path) -> Path:
    package("toolplug-shop", {"shop": "shop_mod:Shop"}, shop_mod=CODE)
    write("providers:\n  shop: {enabled: true, tools: {order: deny}}")
    return tmp_path


@pytest.mark.requirement("C-10-terminal")
@pytest.mark.timeout(90)
def test_a_terminal_shows_where_everything_is_and_one_line_a_call(shop: Path) -> None:
    with terminal(shop) as (seen, url):
        seen.wait_for(rf"auth{PLAIN} +none")
        call(url, "price")
        seen.wait_for(r"price \(shop\) \x1b\[32msuccess\x1b\[0m \d+ ms")
        call(url, "fail")
        seen.wait_for(r"fail \(shop\) \x1b\[31mpanic\x1b\[0m \d+ ms")
        call(url, "nothing")
        seen.wait_for(r"tool\.call 'nothing' \x1b\[33munknown_tool\x1b\[0m, by 'anonymous' of 'default'\r\n")
        call(url, "price", item="hunter2")
        seen.wait_for(r"price: invalid arguments at '/item', by 'anonymous' of 'default'\r\n")
        seen.wait_for(r"price \(shop\) \x1b\[33minvalid_arguments\x1b\[0m \d+ ms")
        call(url, "rename", old="hunter2", nw="hunter3")
        seen.wait_for(
            r"""rename: invalid arguments at '/' \("new" is required\), '/' \(it has no such argument\), by"""
        )
        call(url, "order")
        denied = r"'order' \x1b\[33mdenied\x1b\[0m \(policy: its policy is deny\)"
        seen.wait_for(rf"{denied}, by 'anonymous' of 'default'\r\n")
        shown = seen.shown
    assert "hunter" not in shown
    assert '{"' not in shown
    assert "order (shop)" not in shown, "a refusal has one line"
    for place in ("/mcp", "/metrics", "/v1/openapi.json", "/v1/tools"):
        assert f"{url}{place}\r\n" in shown
    assert re.search(rf"providers{PLAIN} +shop: 4 tools\r\n", shown)
    assert "installed-not-enabled" not in shown
    assert "shop_mod.py:19 in Shop.fail" in shown
    assert "Traceback" not in shown
    assert not (shop / ".toolplug" / "crashes").exists()


SLOW = """
    import asyncio
    from pathlib import Path
    from toolplug import FunctionProvider

    class Slow(FunctionProvider):
        async def start(self, site):
            while not Path("go").exists():
                await asyncio.sleep(0.02)
"""


@pytest.mark.requirement("I33-8-terminal")
@pytest.mark.timeout(90)
def test_a_start_that_takes_long_says_so(package: Package, write: Callable[..., Path], tmp_path: Path) -> None:
    package("toolplug-slow", {"slow": "slow_mod:Slow"}, slow_mod=SLOW)
    write("providers:\n  slow: {enabled: true}")

    def let_it_start(seen: Terminal) -> None:
        seen.wait_for(r"starting the providers of providers\.yaml; Ctrl-C breaks it off\r\n")
        (tmp_path / "go").touch()

    with terminal(tmp_path, before=let_it_start):
        pass


@pytest.mark.requirement("I16-1-root")
@pytest.mark.timeout(90)
def test_the_console_is_named_where_it_is_enabled(shop: Path, write: Callable[..., Path]) -> None:
    with terminal(shop, "--no-console") as (seen, _):
        seen.wait_for(rf"auth{PLAIN} +none")
        without = seen.shown
    with terminal(shop) as (seen, url):
        seen.wait_for(rf"console{PLAIN} +{url}/console#decide=[\w-]+\r\n")
        seen.wait_for(rf"providers{PLAIN} +shop: 4 tools\r\n")
    write("providers:\n  shop: {enabled: true}\n  console: {enabled: true, public_routes: true}")
    with terminal(shop) as (seen, url):
        seen.wait_for(rf"console{PLAIN} +{url}/console#decide=[\w-]+\r\n")
    assert "console" not in without


@pytest.mark.timeout(90)
def test_with_reload_a_terminal_shows_the_whole_trace_and_keeps_it(shop: Path) -> None:
    with terminal(shop, "--reload") as (seen, url):
        answer = call(url, "fail")
        seen.wait_for("KeyError: 'secret key'")
        why = [TOOLPLUG, "why", answer.headers["X-Request-Id"]]
        done = subprocess.run(why, cwd=shop, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert "Traceback" in done.stdout
    assert "secret key" not in answer.text


@pytest.mark.requirement("C-10-terminal")
@pytest.mark.timeout(90)
def test_quiet_shows_neither(shop: Path) -> None:
    with terminal(shop, "--quiet") as (seen, url):
        call(url, "price")
        call(url, "fail")
        seen.wait_for("raised KeyError")
        assert "auth " not in seen.shown.replace("no auth is configured", "")
        assert "success" not in seen.shown
