"""MCP servers of the configuration as toolsets: discovered in the background, started by a call, gone with the host."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml
from tests.host.plain_server import PlainServer

from toolplug import CallContext, Host, Principal, ToolCall, ToolResult, ToolStatus, open_host
from toolplug.errors import ApiError, ConfigError
from toolplug.host.file.configuration import ConfigFiles, read_configuration
from toolplug.packages.entry_points import find_installed
from toolplug.parts.mcp.server_records import ServerRecord

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

OPERATOR = Principal(subject="olga", tenant="t1", scopes=frozenset({"admin", "operator"}))
OTHER = Principal(subject="bob", tenant="t2", scopes=frozenset({"admin", "operator"}))
WAIT_S = 60.0


@pytest.fixture
def plain(tmp_path: Path) -> PlainServer:
    return PlainServer(tmp_path / "plain", "read", "write")


def settings(plain: PlainServer, **sections: object) -> dict[str, object]:
    """One server in two toolsets, one shared and one for each session, of one agent."""
    return {
        "store": "memory://",
        "mcp_servers": {"files": plain.entry},
        "toolsets": {
            "shared": {"prefix": "fs", "from": "mcp:files"},
            "own": {"prefix": "own", "from": "mcp:files", "scope": "session"},
        },
        "agents": {"writer": {"toolsets": ["shared", "own"]}},
        **sections,
    }


def dumped(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False)


async def until(reached: Callable[[], bool]) -> None:
    """Let everybody go on until it is so; the time limit of the test bounds it."""
    while not reached():
        await asyncio.sleep(0)


async def found(host: Host, server: str = "files", by: Principal = OPERATOR) -> None:
    """Wait until the server's tools are known."""
    await host.servers.loaded.discover(server, by=by, wait_s=WAIT_S, request_id="")


async def call(
    host: Host, name: str, *, agent: str = "writer", session: str | None = None, **arguments: object
) -> ToolResult:
    executor = host.executor_for(OPERATOR, agent=agent, session=session)
    return await executor.execute(ToolCall("c1", name, arguments), CallContext(principal=OPERATOR))


def pid(result: ToolResult) -> int:
    assert result.status is ToolStatus.SUCCESS, result
    return json.loads(result.output)["pid"]


@pytest.mark.requirement(
    "ROUTE-goal-mcp", "ROUTE-test-mcp", "DISC-no-start", "C-8-triggers", "C-8-bounded", "DISC-temporary"
)
async def test_a_server_of_the_file_is_discovered_once_and_its_tools_run_under_the_prefix(plain: PlainServer) -> None:
    async with open_host(settings(plain), environ={}) as host:
        await until(lambda: host.servers.loaded.server("t1", "files").record.status == "success")
        await until(lambda: not plain.runs())
        assert list(host.executor_for(OPERATOR, agent="writer").catalog) == [
            "fs.read", "fs.write", "own.read", "own.write",
        ]  # fmt: skip
        assert len(plain.starts) == 1

        first = pid(await call(host, "fs.read", text="a"))
        assert pid(await call(host, "fs__write")) == first
        assert len(plain.starts) == 2
    assert not plain.runs()


@pytest.mark.requirement("C-7-register-mcp", "C-7-factory-once")
async def test_each_session_has_a_server_of_its_own_that_ends_with_it(plain: PlainServer) -> None:
    async with open_host(settings(plain), environ={}) as host:
        await found(host)
        one, two = [(await host.sessions.create(OPERATOR)).session for _ in range(2)]
        of_one = pid(await call(host, "own.read", session=one.code))
        of_two = pid(await call(host, "own.read", session=two.code))
        shared = pid(await call(host, "fs.read", session=two.code))
        assert len({of_one, of_two, shared}) == 3
        assert pid(await call(host, "own.write", session=one.code)) == of_one

        await host.sessions.end(one, OPERATOR)
        await until(lambda: of_one not in _alive(plain))
        assert of_two in _alive(plain)


@pytest.mark.requirement("C-7-register-mcp", "C-7-no-session")
async def test_without_a_session_a_call_has_a_server_of_its_own_for_that_call(plain: PlainServer) -> None:
    async with open_host(settings(plain), environ={}) as host:
        await found(host)
        first, second = pid(await call(host, "own.read")), pid(await call(host, "own.read"))
        assert first != second
        await until(lambda: not plain.runs())


@pytest.mark.requirement("DISC-start-one-fails", "C-8-last-good", "DISC-failure-recorded", "C-8-catalog-uncallable")
async def test_a_server_that_does_not_start_costs_nobody_but_itself(plain: PlainServer) -> None:
    broken = {"command": "/nowhere/at-all"}
    text = settings(plain, mcp_servers={"files": plain.entry, "broken": broken})
    async with open_host(text, environ={}) as host:
        await found(host)
        await found(host, "broken")
        record = host.servers.loaded.server("t1", "broken").record
        assert (record.status, record.tools) == ("failed", ())
        assert "/nowhere/at-all" in (record.error or "")
        assert pid(await call(host, "fs.read"))


@pytest.mark.requirement("H-trust-no-leak")
async def test_no_secret_of_a_command_is_shown_however_it_is_handed_over() -> None:
    args = ["--header", "Authorization: Bearer s3cret-a", "-e", "TOKEN=s3cret-b", "--url=db://me:s3cret-c@db/x", "fast"]
    says = "import sys; sys.exit(' '.join(sys.argv))"
    entry = {"command": sys.executable, "args": ["-c", says, *args], "env": {"PASSWORD": "s3cret-d"}}
    async with open_host({"store": "memory://", "mcp_servers": {"odd": entry}}, environ={}) as host:
        await found(host, "odd")
        view = host.servers.loaded.server("t1", "odd")
        assert view.transport == {
            "command": sys.executable,
            "args": ["-c", says, "--header", "Authorization: ***", "-e", "TOKEN=***", "--url=db://***@db/x", "fast"],
            "env": {"PASSWORD": "***"},
        }
        error = view.record.error or ""
        assert ("it said" in error, "fast" in error, "s3cret" in error) == (True, True, False)


@pytest.mark.requirement("C-8-last-good")
async def test_a_command_with_its_arguments_in_it_is_told_where_they_belong() -> None:
    text = {"store": "memory://", "mcp_servers": {"odd": {"command": "nowhere-at-all -y server"}}}
    async with open_host(text, environ={}) as host:
        await found(host, "odd")
        error = host.servers.loaded.server("t1", "odd").record.error
        assert error == "cannot start 'nowhere-at-all -y server': no such command; its arguments belong under args"


@pytest.mark.requirement("C-2-bad-server-tolerated", "C-2-bad-server-check", "C-1-server-id")
async def test_a_wrong_entry_is_reported_and_the_host_starts_without_it(
    plain: PlainServer, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {
        "Bad id": plain.entry,
        "both": {**plain.entry, "url": "http://localhost/mcp"},
        "neither": {"enabled": True},
        "typo": {**plain.entry, "comand": "x"},
        "late": {**plain.entry, "discovery_timeout": "1h"},
    }
    text = settings(plain, mcp_servers={"files": plain.entry, **wrong})
    problems = read_configuration(text, {}, find_installed()).servers.problems
    assert [problem.path for problem in problems] == [
        'mcp_servers."Bad id"',
        "mcp_servers.both",
        "mcp_servers.neither",
        "mcp_servers.typo.comand",
        "mcp_servers.late.discovery_timeout",
    ]
    with caplog.at_level(logging.ERROR, logger="toolplug.host"):
        async with open_host(text, environ={}) as host:
            assert [view.id for view in host.servers.servers("t1")] == ["files"]
            await found(host)
            assert pid(await call(host, "fs.read"))
    assert [record.getMessage() for record in caplog.records if "going on without" in record.getMessage()] == [
        f"{problem}; going on without it" for problem in problems
    ]


@pytest.mark.requirement("C-2-bad-server-check")
def test_an_address_and_headers_that_cannot_be_sent_are_reported_without_their_values() -> None:
    url = "http://localhost/mcp"
    servers = {
        "split": {"url": url, "headers": {"X-Key": "hunter2\nX-More: 1"}},
        "wide": {"url": url, "headers": {"X-Key": "hunter2 é"}},
        "spaced": {"url": url, "headers": {"X Key": "hunter2"}},
        "hostless": {"url": "http://"},
        "broken": {"url": "http://[::1"},
        "good": {"url": url, "headers": {"X-Key": "hunter2", "X-Number": 3}},
    }
    problems = read_configuration({"mcp_servers": servers}, {}, find_installed()).servers.problems
    assert [(problem.path, problem.message) for problem in problems] == [
        ("mcp_servers.split.headers", "'X-Key' cannot be sent: a name is one word, a value one line of ASCII"),
        ("mcp_servers.wide.headers", "'X-Key' cannot be sent: a name is one word, a value one line of ASCII"),
        ("mcp_servers.spaced.headers", "'X Key' cannot be sent: a name is one word, a value one line of ASCII"),
        ("mcp_servers.hostless.url", "should be an http or https address with a host, not 'http://'"),
        ("mcp_servers.broken.url", "should be an http or https address with a host, not 'http://[::1'"),
    ]


@pytest.mark.requirement("C-2-user-file", "C-2-server-replaces")
async def test_the_users_own_file_has_servers_that_the_project_may_replace_whole(
    plain: PlainServer, tmp_path: Path
) -> None:
    mine = PlainServer(tmp_path / "mine", "mine")
    file, user = tmp_path / "providers.yaml", tmp_path / "user.yaml"
    user.write_text(dumped({"mcp_servers": {"files": {**mine.entry, "policy": "deny"}, "extra": mine.entry}}))
    file.write_text(dumped(settings(plain)))
    async with open_host(ConfigFiles(file, user), environ={}) as host:
        views = {view.id: view for view in host.servers.servers("t1")}
        assert list(views) == ["files", "extra"]
        assert (views["files"].policy, views["files"].origin) == ("allow", f"{file}:3")
        assert views["extra"].origin.startswith(f"{user}:")
    async with open_host(file, environ={}) as host:
        assert [view.id for view in host.servers.servers("t1")] == ["files"]

    user.write_text(dumped({"mcp_servers": {"extra": mine.entry}, "limits": {"timeout": "1s"}}))
    (problem,) = read_configuration(ConfigFiles(file, user), {}, find_installed()).servers.problems
    assert (problem.code, problem.path, problem.file) == ("foreign_section", "limits", str(user))


@pytest.mark.requirement("C-8-triggers", "C-8-record")
async def test_a_host_that_starts_shows_what_it_knew_and_looks_again(plain: PlainServer, tmp_path: Path) -> None:
    text = settings(plain, store=f"sqlite:///{tmp_path}/state.db")
    async with open_host(text, environ={}) as host:
        await found(host)
    plain.lists("read", "newer")
    async with open_host(text, environ={}) as host:
        assert list(host.executor_for(OPERATOR, agent="writer").catalog)[:2] == ["fs.read", "fs.write"]
        await until(lambda: "fs.newer" in host.executor_for(OPERATOR, agent="writer").catalog)


@pytest.mark.requirement("C-8-hash", "DISC-on-change", "DISC-hash")
async def test_a_reload_keeps_unchanged_servers_running_and_discovers_changed_ones(
    plain: PlainServer, tmp_path: Path
) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text(dumped(settings(plain)))
    async with open_host(file, environ={}) as host:
        await found(host)
        running = pid(await call(host, "fs.read"))

        entry = {**plain.entry, "tools": {"write": "deny"}}
        file.write_text(dumped(settings(plain, mcp_servers={"files": entry})))
        await host.reload(by=OPERATOR)
        assert pid(await call(host, "fs.read")) == running
        assert (await call(host, "fs.write")).status is ToolStatus.DENIED
        assert host.servers.loaded.server("t1", "files").record.status == "success"

        entry = {**entry, "offer": "search"}
        file.write_text(dumped(settings(plain, mcp_servers={"files": entry})))
        await host.reload(by=OPERATOR)
        assert host.executor_for(OPERATOR, agent="writer").catalog["fs.read"].definition.offered.how == "search"

        file.write_text(dumped(settings(plain, mcp_servers={"files": entry}, limits={"timeout": "7s"})))
        await host.reload(by=OPERATOR)
        assert host.executor_for(OPERATOR, agent="writer").catalog["fs.read"].plan.timeout_s == 7
        assert pid(await call(host, "fs.read")) == running

        plain.lists("read", "more")
        entry = {**plain.entry, "env": {"LEVEL": 2}}
        file.write_text(dumped(settings(plain, mcp_servers={"files": entry})))
        await host.reload(by=OPERATOR)
        await until(lambda: "fs.more" in host.executor_for(OPERATOR, agent="writer").catalog)
        assert pid(await call(host, "fs.read")) != running

        file.write_text(dumped({"store": "memory://", "agents": {"writer": {}}}))
        await host.reload(by=OPERATOR)
        assert (await call(host, "fs.read")).status is ToolStatus.UNKNOWN_TOOL
        await until(lambda: not plain.runs())


@pytest.mark.requirement("ROUTE-register-mcp", "C-7-register-mcp")
async def test_code_registers_a_server_of_the_file_or_one_of_its_own_and_allows_agents_at_once(
    plain: PlainServer, tmp_path: Path
) -> None:
    mine = PlainServer(tmp_path / "mine", "mine")
    host = open_host(settings(plain, toolsets={}, agents={"writer": {}}), environ={})
    host.register_mcp_toolset("early", "early", "files", allow_for=["writer"])
    with pytest.raises(ApiError, match="prefix 'early'"):
        host.register_mcp_toolset("late", "early", mine.entry)
    with pytest.raises(ConfigError, match="exactly one of command and url"):
        host.register_mcp_toolset("late", "late", {})
    async with host:
        await found(host)
        assert list(host.executor_for(OPERATOR, agent="writer").catalog) == ["early.read", "early.write"]

        host.register_mcp_toolset("late", "late", mine.entry, allow_for=["writer", "reader"])
        await found(host, "late")
        assert list(host.executor_for(OPERATOR, agent="reader").catalog) == ["late.mine"]
        assert pid(await call(host, "late.mine"))
        with pytest.raises(ApiError, match=r"no MCP server 'fles' \(nearest: 'files'\)"):
            host.register_mcp_toolset("other", "other", "fles")
    async with host:
        assert "late" in [view.id for view in host.servers.servers("t1")]


@pytest.mark.requirement("C-5-explain", "C-8-catalog-uncallable")
async def test_explain_says_how_the_server_of_a_tool_is_and_where_a_tool_lives_that_nobody_can_call(
    plain: PlainServer,
) -> None:
    entry = {**plain.entry, "tools": {"write": "disable"}}
    text = settings(plain, mcp_servers={"files": entry}, toolsets={}, agents={})
    async with open_host(text, environ={}) as host:
        await found(host)
        unexposed = "MCP server 'files' has it and offers it to nobody: give it a prefix, or a toolset from: mcp:files"
        for name, gate, why in (
            ("files/read", "toolset", unexposed),
            ("read", "toolset", unexposed),
            ("files/write", "policy", "MCP server 'files' has it, and its policy is disable"),
        ):
            explained = host.explain(name, OPERATOR)
            assert [(item.gate, item.detail) for item in explained.gates] == [(gate, why)]

        host.register_mcp_toolset("fs", "fs", "files", allow_for=["writer"])
        explained = host.explain("fs.read", OPERATOR, agent="writer")
        assert explained.callable
        assert [item.gate for item in explained.gates][:2] == ["server", "discovery"]


@pytest.mark.requirement("C-8-in-file")
async def test_what_is_changed_of_a_server_of_the_file_is_kept_and_holds_in_every_process(
    plain: PlainServer, tmp_path: Path
) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text(dumped(settings(plain, store=f"sqlite:///{tmp_path}/state.db")))
    async with open_host(file, environ={}) as host, open_host(file, environ={}, serving=False) as beside:
        await found(host)
        await host.servers.loaded.change(ServerRecord(id="files", enabled=False), by=OPERATOR, request_id="")
        assert (await call(host, "fs.read")).status is ToolStatus.UNKNOWN_TOOL
        await until(lambda: not beside.servers.loaded.server("t1", "files").enabled)
        await until(lambda: not plain.runs())
    async with open_host(file, environ={}) as host:
        assert not host.servers.loaded.server("t1", "files").enabled
        await host.servers.loaded.change(ServerRecord(id="files", enabled=True), by=OPERATOR, request_id="")
        await found(host)
        assert pid(await call(host, "fs.read"))


@pytest.mark.requirement("C-8-add-http")
async def test_a_server_that_one_tenant_adds_is_no_other_tenants(plain: PlainServer) -> None:
    text = settings(plain, egress={"allow": ["loopback"]})
    async with open_host(text, environ={}) as host:
        wanted = ServerRecord(id="docs", url="http://127.0.0.1:9/mcp")
        added = await host.servers.loaded.add(wanted, by=OPERATOR, request_id="")
        assert (added.source, added.policy, added.record.status) == ("api", "ask", "discovering")
        assert [view.id for view in host.servers.servers("t1")] == ["files", "docs"]
        assert [view.id for view in host.servers.servers("t2")] == ["files"]
        await host.servers.loaded.add(wanted, by=OTHER, request_id="")
        await host.servers.loaded.remove("docs", by=OTHER, request_id="")
        assert [view.id for view in host.servers.servers("t1")] == ["files", "docs"]


@pytest.mark.requirement("C-5-metric-server")
async def test_servers_discoveries_and_calls_are_counted_by_the_servers_id(plain: PlainServer) -> None:
    text = settings(plain, mcp_servers={"files": plain.entry, "broken": {"command": "/nowhere/at-all"}})
    async with open_host(text, environ={}) as host:
        await found(host)
        await found(host, "broken")
        assert pid(await call(host, "fs.read"))
        shown = host.metrics.get_sample_value
        labels = {"provider": "mcp:files", "tool_name": "read", "status": "success"}
        assert shown("antwort_builtin_tool_executions_total", labels) == 1
        assert shown("antwort_mcp_servers", {"status": "success"}) == 1
        assert shown("antwort_mcp_servers", {"status": "failed"}) == 1
        assert shown("antwort_mcp_discoveries_total", {"server": "files", "outcome": "success"}) == 1
        assert shown("antwort_mcp_discoveries_total", {"server": "broken", "outcome": "failed"})


@pytest.mark.requirement("H-mcp-dies", "H-mcp-restart")
async def test_a_server_that_dies_in_a_call_is_unavailable_then_and_started_again_by_a_later_call(
    plain: PlainServer, caught_up: Callable[[Callable[[], Awaitable[ToolResult]]], Awaitable[ToolResult]]
) -> None:
    async with open_host(settings(plain), environ={}) as host:
        await found(host)
        first = pid(await call(host, "fs.read"))
        assert pid(await call(host, "fs.read", die=True)) == first
        again = await caught_up(lambda: call(host, "fs.read"))
        assert pid(again) != first


@pytest.fixture
def caught_up() -> Callable[[Callable[[], Awaitable[ToolResult]]], Awaitable[ToolResult]]:
    """Call until the server is back: a call that comes while it is down says so at once."""

    async def back(attempt: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        results: list[ToolResult] = []

        async def works() -> bool:
            results.append(await attempt())
            assert results[-1].status in (ToolStatus.SUCCESS, ToolStatus.UNAVAILABLE)
            return results[-1].status is ToolStatus.SUCCESS

        while not await works():
            pause = results[-1].retry_after_s
            assert pause is None or pause <= 2
        return results[-1]

    return back


def _alive(plain: PlainServer) -> set[int]:
    return {start for start in plain.starts if Path(f"/proc/{start}").exists()}


@pytest.mark.requirement("C-8-on-demand")
async def test_discovery_on_demand_starts_the_server_again_and_a_new_version_takes_the_calls(tmp_path: Path) -> None:
    plain = PlainServer(tmp_path / "plain", "read", fixed=True)
    async with open_host(settings(plain), environ={}) as host:
        await found(host)
        first = pid(await call(host, "fs.read"))
        await found(host)
        assert pid(await call(host, "fs.read")) == first, "nothing has changed: the process goes on"
        plain.lists("read", "added")
        await found(host)
        assert [tool.name for tool in host.servers.loaded.server("t1", "files").record.tools] == ["read", "added"]
        second = pid(await call(host, "fs.added"))
        assert second != first
        assert pid(await call(host, "fs.read")) == second
        await until(lambda: first not in _alive(plain))


@pytest.mark.requirement("C-8-triggers", "DISC-on-session")
async def test_a_session_that_begins_has_its_servers_looked_at_again(plain: PlainServer) -> None:
    async with open_host(settings(plain), environ={}) as host:
        await until(lambda: host.servers.loaded.server("t1", "files").record.status == "success")
        plain.lists("read", "write", "grown")
        await host.sessions.create(OPERATOR)
        await until(lambda: len(host.servers.loaded.server("t1", "files").record.tools) == 3)
