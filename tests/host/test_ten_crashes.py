"""Ten ways to crash: the log names the author's file and line of each, and nothing of the exception's text."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.fixtures import application, entered
from tests.client.scripted_host import ScriptedHost
from tests.host.conftest import Package, config, package
from tests.http.conftest import client_of

from toolplug import ConfigError, Host, Principal, ToolCall, open_host
from toolplug.cli.crashes import left_running
from toolplug.http import create_app

__all__ = ["config", "package"]

pytestmark = pytest.mark.anyio

CODE = """
import asyncio
import json
import threading
from typing import Any

from prometheus_client.registry import Collector
from pydantic import BaseModel, field_serializer
from toolplug import FunctionProvider, route, tool


class Price(BaseModel):
    amount: int

    @field_serializer("amount")
    def shown(self, amount: int) -> str:
        return {}["secret"]  # crash: serializer


class Scraped(Collector):
    def collect(self) -> Any:
        raise KeyError("secret")  # crash: collector


class Crashing(FunctionProvider):
    @tool
    async def library(self, text: str) -> str:
        return self.parsed(text)

    def parsed(self, text: str) -> str:
        return json.loads(text)  # crash: library

    @tool
    async def group(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.child())

    async def child(self) -> None:
        raise KeyError("secret")  # crash: task group

    @tool
    def blocking(self) -> str:
        return {}["secret"]  # crash: thread

    @tool
    async def own_thread(self) -> None:
        thread = threading.Thread(target=self.work)
        thread.start()
        await asyncio.to_thread(thread.join)

    def work(self) -> None:
        raise KeyError("secret")  # crash: thread of its own

    @tool
    async def background(self) -> None:
        self.task = asyncio.create_task(self.later())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del self.task

    async def later(self) -> None:
        raise KeyError("secret")  # crash: background task

    @tool
    async def price(self) -> Price:
        return Price(amount=5)

    @tool
    async def fine(self) -> str:
        return "fine"

    @route("GET", "/crash")
    async def page(self, request) -> str:
        return {}["secret"]  # crash: route

    def after_call(self, call, context, result):
        if call.name == "fine":
            raise KeyError("secret")  # crash: hook

    def collectors(self):
        return [Scraped()]


class Unstartable(FunctionProvider):
    async def start(self, site) -> None:
        raise KeyError("secret")  # crash: start
"""

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("clock")


@server.tool()
def now() -> str:
    return {}["secret"]  # crash: MCP server


server.run("stdio")
"""

ME = Principal(subject="me", scopes=frozenset({"admin", "operator"}))


class Log:
    """What was logged, and the lines of the code in which it has to be found."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def names(self, crash: str, code: str, file: str) -> bool:
        """Does a line name the file and the line of this crash."""
        line = next(number for number, text in enumerate(code.splitlines(), 1) if text.endswith(f"# crash: {crash}"))
        errors = [record.getMessage() for record in self._caplog.records if record.levelno >= logging.ERROR]
        return any(re.search(r"\b(KeyError|JSONDecodeError)\b", text) and f"{file}:{line}" in text for text in errors)

    @property
    def has_secrets(self) -> bool:
        return "secret" in self._caplog.text


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    caplog.set_level(logging.DEBUG)
    return Log(caplog)


@pytest.fixture
def host(package: Package, config: Callable[[str], Path]) -> Host:
    package("toolplug-crashing", {"crashing": "crashing_mod:Crashing"}, crashing_mod=CODE)
    return open_host(config("providers: {crashing: {enabled: true}}"), environ={})


async def call(host: Host, name: str, **arguments: Any) -> str:
    return (await host.executor_for(ME).execute(ToolCall("c1", name, arguments))).status


@pytest.mark.parametrize(
    ("tool", "crash", "status"),
    [
        ("library", "library", "panic"),
        ("group", "task group", "panic"),
        ("blocking", "thread", "panic"),
        ("price", "serializer", "tool_error"),
        ("fine", "hook", "success"),
    ],
)
async def test_the_line_of_a_call_is_found(host: Host, log: Log, tool: str, crash: str, status: str) -> None:
    async with host:
        assert await call(host, tool, **({"text": "secret"} if tool == "library" else {})) == status
    assert log.names(crash, CODE, "crashing_mod.py")
    assert not log.has_secrets


@pytest.mark.parametrize(("tool", "crash"), [("own_thread", "thread of its own"), ("background", "background task")])
async def test_the_line_of_what_nobody_waits_for_is_found(host: Host, log: Log, tool: str, crash: str) -> None:
    async with host:
        with left_running(host):
            assert await call(host, tool) == "success"
            gc.collect()
            await asyncio.sleep(0)
    assert log.names(crash, CODE, "crashing_mod.py")
    assert not log.has_secrets


async def test_the_line_of_a_route_is_found(host: Host, log: Log) -> None:
    async with host, client_of(create_app(host)) as client:
        answer = await client.get("/crash")
    assert (answer.status_code, answer.headers["X-Request-Id"] in log._caplog.text) == (500, True)
    assert log.names("route", CODE, "crashing_mod.py")
    assert not log.has_secrets


async def test_the_line_of_a_collector_is_found(host: Host, log: Log) -> None:
    async with host, client_of(create_app(host)) as client:
        assert (await client.get("/metrics")).status_code == 200
    assert log.names("collector", CODE, "crashing_mod.py")
    assert not log.has_secrets


async def test_the_line_of_a_start_is_found(package: Package, config: Callable[[str], Path], log: Log) -> None:
    package("toolplug-late", {"late": "late_mod:Unstartable"}, late_mod=CODE)
    with pytest.raises(ConfigError):
        async with open_host(config("providers: {late: {enabled: true}}"), environ={}):
            pass
    assert log.names("start", CODE, "late_mod.py")
    assert not log.has_secrets


@pytest.mark.process
async def test_the_line_of_a_function_of_a_session_is_found(caplog: pytest.LogCaptureFixture) -> None:
    def crash() -> None:
        raise KeyError("secret")

    async with ScriptedHost().listening() as scripted:
        app = application(scripted)
        app.tool(crash)
        async with entered(app, scripted) as stream:
            ids = {"callId": "c1", "hostRequestId": "req_1"}
            await stream.send("tool-request", {"id": "r1", "tool": "crash", "arguments": {}, **ids}, 1)
            assert await scripted.result() == {"id": "r1", "error": 'internal error: tool "crash" failed'}
    assert "tool 'crash' raised (call c1, request req_1)" in caplog.messages
    assert f'File "{__file__}", line {crash.__code__.co_firstlineno + 1}, in crash' in caplog.text


@pytest.mark.mcp
async def test_the_line_of_an_mcp_server_is_found(config: Callable[[str], Path], tmp_path: Path, log: Log) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    file = config(
        f"""
        mcp_servers:
          clock: {{command: {sys.executable}, args: [{server}]}}
        toolsets: {{clock: {{prefix: clock, from: mcp:clock}}}}
        agents: {{watcher: {{toolsets: [clock]}}}}
        """
    )
    async with open_host(file, environ={}) as host:
        tools = host.executor_for(ME, agent="watcher")
        await host.servers.loaded.discover("clock", by=ME, wait_s=30, request_id="")
        result = await tools.execute(ToolCall("c1", "clock.now"))
        assert result.status == "tool_error"
    assert log.names("MCP server", SERVER, "server.py")
