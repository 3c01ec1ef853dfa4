"""Loads of the MCP part that fail, are cancelled, or come when the host stops or is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from toolplug import Host, Principal, open_host
from toolplug.cluster.followed import Follower
from toolplug.errors import StoreUnavailable
from toolplug.parts.mcp.client.connection_strategies import BackgroundCloses
from toolplug.parts.mcp.limits import SERVERS
from toolplug.parts.mcp.running import HostServers, McpClients
from toolplug.parts.mcp.server_records import ServerRecord
from toolplug.parts.mcp.servers import McpServers, servers_of
from toolplug.parts.mcp.serving.peer_sessions import PeerMcpSessions

pytestmark = pytest.mark.anyio

ADMIN = Principal("ada", "t1", frozenset({"admin", "operator"}))
ENTRY = {"url": "https://mcp.example.com/mcp", "enabled": False}

Fail = Callable[[int], None]


@pytest.fixture
def fail_loads(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Lets so many of the next loads of servers fail, as without the store."""
    left = [0]
    enter = McpServers.__aenter__

    async def fail_or_enter(self: McpServers) -> McpServers:
        if left[0]:
            left[0] -= 1
            raise StoreUnavailable("the store is away")
        return await enter(self)

    def fail(loads: int) -> None:
        left[0] = loads

    monkeypatch.setattr(McpServers, "__aenter__", fail_or_enter)
    return fail


def running_tasks(prefix: str) -> list[str]:
    """The names of the running tasks of this prefix."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(prefix)]


async def test_a_reload_whose_servers_cannot_be_read_applies_all_else(tmp_path: Path, fail_loads: Fail) -> None:
    file = tmp_path / "host.yaml"
    file.write_text(json.dumps({"store": "memory://", "sessions": {"max_sessions": 7}}), "utf-8")
    async with open_host(file, environ={}, serving=False) as host:
        later = {
            "store": "memory://",
            "sessions": {"max_sessions": 9},
            "mcp_servers": {"web": ENTRY},
            "toolsets": {"web": {"from": "mcp:web", "prefix": "w"}},
            "agents": {"writer": {"toolsets": ["web"]}},
        }
        file.write_text(json.dumps(later), "utf-8")
        fail_loads(1)
        with pytest.raises(StoreUnavailable):
            await host.reload(by=ADMIN)
        assert host.sessions.limits.max_sessions == 9
        assert host.toolsets.allowlist("t1", "writer").toolsets == ("web",)
        assert host.last_reload is not None
        assert [problem.message for problem in host.last_reload.problems] == ["the store is away"]


@pytest.fixture
def without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between two tries of a load."""
    monkeypatch.setattr("toolplug.parts.mcp.running.PAUSE_S", 0.01)


async def wait_for_servers(host: Host) -> None:
    """Wait until the host lists a server."""
    async with asyncio.timeout(5):
        while not host.servers.servers("t1"):
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("without_pause")
async def test_a_server_of_the_code_comes_when_the_store_is_back(
    fail_loads: Fail, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_host({"store": "memory://"}, environ={}) as host:
        fail_loads(3)
        host.register_mcp_toolset("web", "web", ENTRY)
        await wait_for_servers(host)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [message for message in said if "the store is away" in message] == [
        "the MCP servers come when the store can answer: the store is away"
    ]


async def test_a_reload_reads_servers_of_the_code_that_could_not_be_read(
    tmp_path: Path, fail_loads: Fail, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolplug.parts.mcp.running.PAUSE_S", 600.0)
    file = tmp_path / "host.yaml"
    file.write_text("store: memory://\n", "utf-8")
    async with open_host(file, environ={}) as host:
        fail_loads(1)
        host.register_mcp_toolset("web", "web", ENTRY)
        async with asyncio.timeout(5):
            while "the store is away" not in caplog.text:
                await asyncio.sleep(0.01)
        await host.reload(by=ADMIN)
        assert [view.id for view in host.servers.servers("t1")] == ["web"]


@pytest.mark.usefixtures("without_pause")
async def test_servers_of_a_reload_come_when_the_store_is_back(tmp_path: Path, fail_loads: Fail) -> None:
    file = tmp_path / "host.yaml"
    file.write_text("store: memory://\n", "utf-8")
    async with open_host(file, environ={}, serving=False) as host:
        file.write_text(json.dumps({"store": "memory://", "mcp_servers": {"web": ENTRY}}), "utf-8")
        fail_loads(2)
        with pytest.raises(StoreUnavailable):
            await host.reload(by=ADMIN)
        await wait_for_servers(host)


async def test_a_load_that_ends_after_the_host_is_left_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    enter, reached, gate = McpServers.__aenter__, asyncio.Event(), asyncio.Event()

    async def enter_slowly(self: McpServers) -> McpServers:
        entered = await enter(self)
        reached.set()
        await gate.wait()
        return entered

    monkeypatch.setattr(McpServers, "__aenter__", enter_slowly)
    async with open_host({"store": "memory://"}, environ={}) as host:
        servers = host.servers
        load = asyncio.create_task(servers_of(host))
        await reached.wait()
        asyncio.get_running_loop().call_later(0.1, gate.set)
    with pytest.raises(RuntimeError, match="host was left"):
        await load
    assert (servers.loaded, running_tasks("toolplug-discovery"), running_tasks("toolplug-mcp")) == (None, [], [])
    with pytest.raises(RuntimeError, match="host was left"):
        await servers.load()


async def test_a_first_client_that_comes_while_the_host_is_left_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter, reached, gate = PeerMcpSessions.__aenter__, asyncio.Event(), asyncio.Event()

    async def enter_slowly(self: PeerMcpSessions) -> PeerMcpSessions:
        entered = await enter(self)
        reached.set()
        await gate.wait()
        return entered

    monkeypatch.setattr(PeerMcpSessions, "__aenter__", enter_slowly)
    async with open_host({"store": f"sqlite:///{tmp_path}/store.db?shared=true"}, environ={}) as host:
        clients = host.part(McpClients)
        assert clients is not None
        load = asyncio.create_task(clients.serving())
        await reached.wait()
        asyncio.get_running_loop().call_later(0.1, gate.set)
    with pytest.raises(RuntimeError, match="host was left"):
        await load
    assert running_tasks("toolplug-~mcp") == []
    with pytest.raises(RuntimeError, match="host was left"):
        await clients.serving()


async def test_a_client_that_comes_after_stop_gets_no_stream_without_end() -> None:
    async with open_host({"store": "memory://"}, environ={}) as host:
        host.stop()
        clients = host.part(McpClients)
        assert clients is not None
        serving = await clients.serving()
        with serving.announcer.watch(host.executor_for(ADMIN)) as watch:
            assert await asyncio.wait_for(watch.wait_for_change(), 1) is False


async def test_a_first_client_that_fails_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Follower.start

    async def fail_second(self: Follower) -> None:
        if self._prefix.endswith("mcp-updates/"):
            raise StoreUnavailable("the store is away")
        await start(self)

    async with open_host({"store": f"sqlite:///{tmp_path}/store.db?shared=true"}, environ={}) as host:
        monkeypatch.setattr(Follower, "start", fail_second)
        clients = host.part(McpClients)
        assert clients is not None
        with pytest.raises(StoreUnavailable):
            await clients.serving()
        assert running_tasks("toolplug-~mcp") == []
        monkeypatch.undo()
        assert await clients.serving() is await clients.serving()


async def test_discovery_ends_also_if_leaving_the_host_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_host({"store": "memory://"}, environ={}) as host:
        await servers_of(host)
        assert running_tasks("toolplug-discovery") != []

        async def is_cancelled(self: BackgroundCloses) -> None:
            raise asyncio.CancelledError

        monkeypatch.setattr(BackgroundCloses, "wait", is_cancelled)
        with pytest.raises(asyncio.CancelledError):
            await host.servers._life.aclose()
        assert running_tasks("toolplug-discovery") == []


async def test_servers_that_cannot_be_read_to_the_end_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Follower.start

    async def fail_after_look(self: Follower) -> None:
        await start(self)
        if self._prefix == SERVERS:
            await self.aclose()
            raise StoreUnavailable("the store is away")

    async with open_host({"store": "memory://"}, environ={}) as host:
        record = ServerRecord(id="web", url="https://mcp.example.com/mcp", enabled=False)
        await (await servers_of(host)).add(record, by=ADMIN, request_id="")
        topics = dict(host.servers._services.requests._topics)
        other = HostServers(host.servers._services)
        monkeypatch.setattr(Follower, "start", fail_after_look)
        with pytest.raises(StoreUnavailable):
            await other.load()
        assert other.handle(("web", "t1"))._tools is None
        assert host.servers._services.requests._topics == topics
