"""Parts of plugins that a reload or a switch opens and closes, and what callers and probes see meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
from httpx2 import ASGITransport, AsyncClient
from prometheus_client import Gauge
from tests.host.conftest import Package
from tests.parts.test_plugin_parts import ADA, BOARD, KEYS, get

import toolplug.http
from toolplug import ToolCall, open_host
from toolplug.cli.serving.reload import Reloading
from toolplug.errors import ConfigError
from toolplug.host.admin.reload import difference
from toolplug.host.file.configuration import Configuration, read_configuration
from toolplug.host.file.values import value_changes
from toolplug.packages.entry_points import find_installed

pytestmark = pytest.mark.anyio
Write = Callable[[str], Path]

BEGINS = BOARD.replace(
    "    def session_over(", "    def begin(self):\n            self.begun = True\n\n        def session_over("
)
ALPHA = BEGINS.replace("/v1/board", "/v1/alpha").replace("board:read", "alpha:read").replace('"board"', '"alpha"')
BOTH = "providers: {alpha: {enabled: true}, board: {enabled: true}}\n"


@pytest.fixture
def alpha(package: Package) -> None:
    package(
        "acme-alpha", {"alpha": "alpha_mod"}, alpha_mod=ALPHA.replace("board_of", "alpha_of").replace("pin", "note")
    )


@pytest.mark.usefixtures("alpha")
async def test_a_reload_that_one_part_refuses_changes_no_part(config: Write, package: Package) -> None:
    package("acme-board", {"board": "board_mod"}, board_mod=BEGINS)
    async with open_host(config(BOTH)) as host:
        listed = host.executor_for(ADA)
        before = [*listed.catalog]
        config(BOTH + "alpha: {text: a}\nboard: {fails: open}\nlimits: {max_concurrency: 3}")
        with pytest.raises(ConfigError, match="no board"):
            await host.reload(by=ADA)
        alpha = sys.modules["alpha_mod"].RunningBoard
        assert ([*listed.catalog], host.part(alpha), alpha.closed) == (before, None, 1)
        assert host.settings.limits.max_concurrency != 3
        config(BOTH + "alpha: {text: a}\nboard: {text: b}")
        await host.reload(by=ADA)
        for kind in (alpha, sys.modules["board_mod"].RunningBoard):
            running = host.part(kind)
            assert running is not None
            assert running.begun


async def test_the_part_of_a_provider_that_is_switched_off_is_closed(config: Write, package: Package) -> None:
    package("acme-board", {"board": "board_mod"}, board_mod=BOARD)
    async with open_host(config("board: {text: hello}" + KEYS)) as host:
        await host.disable("board", by=ADA)
        kind = sys.modules["board_mod"].RunningBoard
        assert ([*(await host.catalog_for(ADA))], host.part(kind), kind.closed) == ([], None, 1)
        assert (await get(host, "/v1/board"))[0] == 404
        await host.enable("board", by=ADA)
        assert [*(await host.catalog_for(ADA))] == ["pin", "board_of_default"]
        assert (await get(host, "/v1/board"))[0] == 200
        await host.disable("board", by=ADA)
        await host.reload(by=ADA)
        assert "board_of_default" in await host.catalog_for(ADA)


@pytest.mark.parametrize("given", ["settings=Board, always=True", "settings=None"])
async def test_the_part_of_a_provider_that_the_file_switches_off_is_opened_when_it_is_enabled(
    config: Write, package: Package, given: str
) -> None:
    code = BOARD.replace("settings=Board", given)
    code = code.replace("self.settings = settings", "self.settings = settings or Board()")
    code = code.replace("= services, settings", "= services, settings or Board()")
    code = code.replace('if "open" in settings.fails', 'if settings and "open" in settings.fails')
    package("acme-board", {"board": "board_mod"}, board_mod=code)
    async with open_host(config("providers: {board: {enabled: false}}")) as host:
        listed = host.executor_for(ADA)
        transport = ASGITransport(toolplug.http.create_app(host), client=("127.0.0.1", 1))
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/v1/board")).status_code == 404
            await host.enable("board", by=ADA)
            assert [*listed.catalog] == ["pin", "board_of_default"]
            assert (await client.get("/v1/board")).status_code == 200
            await host.disable("board", by=ADA)
            assert ([*listed.catalog], sys.modules["board_mod"].RunningBoard.closed) == ([], 1)
            await host.enable("board", by=ADA)
            assert [*listed.catalog] == ["pin", "board_of_default"]
            await host.reload(by=ADA)
            assert [*listed.catalog] == []
            assert (await client.get("/v1/board")).status_code == 404


@pytest.mark.usefixtures("alpha")
async def test_a_section_that_is_added_or_removed_with_its_plugin_is_a_change(
    config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    def read(text: str) -> Configuration:
        return read_configuration(config(text), {}, find_installed())

    without, having = read(""), read("alpha: {text: a}")
    assert difference(without, having).sections == difference(having, without).sections == ("alpha",)
    assert [each[:2] for each in value_changes(having, without)] == [("alpha.text", "removed")]
    async with open_host(config("alpha: {text: a}")) as host:
        reloading, heard = Reloading(host), asyncio.Event()
        with caplog.at_level(logging.INFO, "toolplug.cli.serve"), notified(heard):
            task = asyncio.create_task(reloading.run())
            config("")
            reloading.want()
            await asyncio.wait_for(heard.wait(), 5)
            task.cancel()
        assert "other sections that changed: alpha" in caplog.text


async def test_the_defaults_of_a_part_that_only_one_file_has_are_no_changed_value(
    config: Write, package: Package
) -> None:
    code = BOARD.replace("settings=Board", "settings=Board, always=True")
    package("acme-board", {"board": "board_mod"}, board_mod=code)
    on, off = (
        read_configuration(config(f"providers: {{board: {{enabled: {word}}}}}"), {}, find_installed())
        for word in ("true", "false")
    )
    assert [each[:2] for each in value_changes(off, on)] == [("providers.board.enabled", "changed")]
    assert [each[:2] for each in value_changes(on, off)] == [("providers.board.enabled", "changed")]


@contextmanager
def notified(heard: asyncio.Event) -> Iterator[None]:
    """Set the event at each line of the log of reloads."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.set()

    handler, logger = Handler(), logging.getLogger("toolplug.cli.serve")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


async def test_the_tools_of_a_part_are_not_listed_while_it_closes(config: Write, package: Package) -> None:
    closing = BOARD.replace("RunningBoard.closed += 1", "RunningBoard.seen = await self.look()").replace(
        "def session_over", "look = None\n\n        def session_over"
    )
    package("acme-board", {"board": "board_mod"}, board_mod=closing)
    async with open_host(config("board: {text: hello}")) as host:
        listed, kind = host.executor_for(ADA), sys.modules["board_mod"].RunningBoard
        running = host.part(kind)
        assert running is not None
        assert "board_of_default" in listed.catalog

        async def look() -> tuple[list[str], str]:
            return [*listed.catalog], (await listed.execute(ToolCall("1", "board_of_default"))).status

        running.look = look
        config("providers: {board: {enabled: true}}")
        await host.reload(by=ADA)
        assert kind.seen == (["pin"], "unknown_tool")


@pytest.mark.usefixtures("alpha")
async def test_probes_at_once_ask_the_parts_once_and_side_by_side(config: Write, package: Package) -> None:
    package("acme-board", {"board": "board_mod"}, board_mod=BOARD)
    async with open_host(config(BOTH + "alpha: {text: a}\nboard: {text: b}")) as host:
        kinds = [sys.modules[name].RunningBoard for name in ("alpha_mod", "board_mod")]
        both, asked = asyncio.Event(), list[type]()

        async def ready(self: object) -> str:
            asked.append(type(self))
            if len(asked) == len(kinds):
                both.set()
            await both.wait()
            return ""

        for kind in kinds:
            kind.ready = ready
        assert [*await asyncio.wait_for(asyncio.gather(*(host.ready() for _ in range(20))), 3)] == [()] * 20
        assert asked == kinds


async def test_requests_at_once_load_the_routes_of_a_part_once(config: Write, package: Package) -> None:
    slow = BOARD.replace("return [read_board]", "import time; LOADS.append(1); time.sleep(0.1); return [read_board]")
    package("acme-board", {"board": "board_mod"}, board_mod="    LOADS = []\n" + slow)
    async with open_host(config("board: {text: hello}" + KEYS)) as host:
        app = toolplug.http.create_app(host)
        transport = ASGITransport(app, client=("127.0.0.1", 1))
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = (client.get("/v1/board", headers={"authorization": "Bearer reader"}) for _ in range(20))
            assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
        assert len(sys.modules["board_mod"].LOADS) == 1


async def test_a_held_executor_lists_the_tools_of_the_first_part(config: Write, package: Package) -> None:
    package("acme-board", {"board": "board_mod"}, board_mod=BOARD)
    async with open_host(config("providers: {board: {enabled: true}}")) as host:
        listed = host.executor_for(ADA)
        config("board: {text: hello}")
        await host.reload(by=ADA)
        assert [*listed.catalog] == ["pin", "board_of_default"]


async def test_the_description_follows_a_reload_that_changes_parts_only(config: Write, package: Package) -> None:
    source = BOARD.replace("    @tool\n", "").replace("return [read_board]", "return [read_board] if ON else []")
    package("acme-board", {"board": "board_mod"}, board_mod="    ON = []\n" + source)
    async with open_host(config("board: {text: hello}")) as host:
        app = toolplug.http.create_app(host)
        transport = ASGITransport(app, client=("127.0.0.1", 1))
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert "/v1/board" not in (await client.get("/v1/openapi.json")).json()["paths"]
            sys.modules["board_mod"].ON.append(1)
            await host.reload(by=ADA)
            assert "/v1/board" in (await client.get("/v1/openapi.json")).json()["paths"]
            assert (await client.get("/v1/board")).status_code == 200


async def test_a_part_with_changed_code_has_its_metrics_anew(config: Write, tmp_path: Path) -> None:
    made = "self.count = Counter('toolplug_board', 'x', registry=services.metrics); self.count.inc(AMOUNT)"
    same = "self.services, self"
    source = "from prometheus_client import Counter\n" + dedent(BOARD).replace("self.services, self", f"{made}; {same}")
    (file := tmp_path / "board.py").write_text(source.replace("AMOUNT", "1"))
    text = "providers: {board: {type: ./board.py, enabled: true}}\n"
    async with open_host(config(text + "board: {text: one}")) as host:
        shown = partial(host.metrics.get_sample_value, "toolplug_board_total")
        assert shown() == 1
        file.write_text(source.replace("AMOUNT", "2"))
        config(text + "board: {text: two, fails: open}")
        with pytest.raises(ConfigError, match="no board"):
            await host.reload(by=ADA)
        assert (shown(), "one" in str((await host.catalog_for(ADA))["board_of_default"].definition)) == (1, True)
        config(text + "board: {text: two}")
        await host.reload(by=ADA)
        assert (shown(), "two" in str((await host.catalog_for(ADA))["board_of_default"].definition)) == (2, True)
        config(text)
        await host.reload(by=ADA)
        assert shown() is None


async def test_a_part_whose_metrics_have_the_name_of_others_is_not_opened(config: Write, package: Package) -> None:
    made = "Gauge('toolplug_mine', 'x', registry=services.metrics)"
    own = BEGINS.replace("self.services, self", f"{made}; self.services, self")
    own = "    from prometheus_client import Gauge\n" + own.replace("pin", "note")
    other = own.replace("/v1/board", "/v1/alpha").replace("board:read", "alpha:read").replace('"board"', '"alpha"')
    package("acme-board", {"board": "board_mod"}, board_mod=own)
    package("acme-alpha", {"alpha": "alpha_mod"}, alpha_mod=other)
    with pytest.raises(ConfigError, match="Duplicated timeseries"):
        await open_host(config(BOTH + "alpha: {text: a}\nboard: {text: b}")).__aenter__()


async def test_metrics_of_an_open_part_take_no_name_of_the_host(config: Write, package: Package) -> None:
    made = "KEPT.append(services.metrics)"
    own = "    KEPT = []\n" + BOARD.replace("self.services, self", f"{made}; self.services, self")
    package("acme-board", {"board": "board_mod"}, board_mod=own)
    async with open_host(config("board: {text: hello}")) as host:
        Gauge("toolplug_taken", "x", registry=host.metrics).set(1)
        (metrics,) = sys.modules["board_mod"].KEPT
        with pytest.raises(ValueError, match="toolplug_taken"):
            Gauge("toolplug_taken", "x", registry=metrics).set(2)
        Gauge("toolplug_free", "x", registry=metrics).set(3)
        shown = [host.metrics.get_sample_value(f"toolplug_{name}") for name in ("taken", "free")]
        assert shown == [1, 3]


async def test_explain_and_the_catalog_page_know_the_tools_of_parts(config: Write, package: Package) -> None:
    package("acme-board", {"board": "board_mod"}, board_mod=BOARD)
    async with open_host(config("board: {text: hello}")) as host:
        found = host.explain("board_of_default", ADA)
        assert (found.found, found.provider, found.callable) == (True, "board", True)
        near = host.explain("board_of_defaults", ADA)
        assert [(item.name, item.home) for item in near.nearest] == [("board_of_default", "part 'board'")]
        assert [tool["name"] for tool in json.loads(host.catalog_page(ADA).body)["tools"]] == [
            "pin",
            "board_of_default",
        ]
