"""The protocol's reference servers, in Python and JavaScript and of both eras, as toolsets of a host."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.kept_port import kept_port
from tests.mcp.reference.servers import Entry, everything_over_http, of_folder

from toolplug import CallContext, Host, Principal, ToolCall, ToolResult, open_host

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.mcp,
    pytest.mark.timeout(400),  # the first run on a machine fetches them
    pytest.mark.requirement("I5-5-reference-servers"),
]

OPERATOR = Principal(subject="olga", scopes=frozenset({"admin", "operator"}))
WAIT_S = 60.0


@pytest.fixture
def servers(tmp_path: Path) -> Mapping[str, Entry]:
    return of_folder(tmp_path)


def hosting(**servers: Entry) -> Host:
    """A host with these servers, each under its own name as prefix, and an agent that has them all."""
    settings = {
        "store": "memory://",
        "mcp_servers": servers,
        "toolsets": {name: {"prefix": name, "from": f"mcp:{name}"} for name in servers},
        "agents": {"writer": {"toolsets": list(servers)}},
    }
    return open_host(settings, environ={})


async def listed(host: Host, server: str) -> list[str]:
    """The agent's tools of one server, once it was discovered."""
    record = (await host.servers.loaded.discover(server, by=OPERATOR, wait_s=WAIT_S, request_id="")).record
    assert (record.status, record.error) == ("success", None)
    tools = host.executor_for(OPERATOR, agent="writer").catalog
    return [name.removeprefix(f"{server}.") for name in tools if name.startswith(f"{server}.")]


async def called(host: Host, name: str, context: CallContext | None = None, **arguments: object) -> ToolResult:
    """The result of one call, which is a good one."""
    executor = host.executor_for(OPERATOR, agent="writer")
    result = await executor.execute(ToolCall("c1", name, arguments), context or CallContext(principal=OPERATOR))
    assert result.status == "success", result
    return result


async def test_the_clock_tells_the_time_elsewhere(servers: Mapping[str, Entry]) -> None:
    async with hosting(clock=servers["clock"]) as host:
        assert await listed(host, "clock") == ["get_current_time", "convert_time"]
        midday = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        told = json.loads((await called(host, "clock.convert_time", **midday)).output)
        assert told["target"]["datetime"].endswith("T21:00:00+09:00")


async def test_git_reads_a_repository(servers: Mapping[str, Entry], tmp_path: Path) -> None:
    async with hosting(git=servers["git"]) as host:
        assert "git_log" in await listed(host, "git")
        assert "Begin" in (await called(host, "git.git_log", repo_path=str(tmp_path / "repository"))).output


async def test_everything_answers_with_parts_progress_and_structure(servers: Mapping[str, Entry]) -> None:
    async with hosting(everything=servers["everything"]) as host:
        assert {"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"} <= set(
            await listed(host, "everything")
        )
        assert (await called(host, "everything.echo", message="hello")).output == "Echo: hello"
        assert (await called(host, "everything.get-sum", a=2, b=3)).output == "The sum of 2 and 3 is 5."
        picture = await called(host, "everything.get-tiny-image")
        assert [part["type"] for part in picture.parts] == ["image"]
        weather = await called(host, "everything.get-structured-content", location="Chicago")
        assert isinstance(weather.structured, dict)
        assert set(weather.structured) == {"temperature", "conditions", "humidity"}
        heard: list[tuple[float, float | None]] = []
        context = CallContext(
            principal=OPERATOR, report=lambda done, total=None, message=None: heard.append((done, total))
        )
        await called(host, "everything.trigger-long-running-operation", context, duration=0.1, steps=2)
        assert heard == [(1, 2), (2, 2)]


async def test_what_a_server_refuses_is_an_error_that_a_model_can_read(servers: Mapping[str, Entry]) -> None:
    async with hosting(files=servers["files"]) as host:
        await listed(host, "files")
        executor = host.executor_for(OPERATOR, agent="writer")
        elsewhere = ToolCall("c1", "files.read_text_file", {"path": "/etc/passwd"})
        refused = await executor.execute(elsewhere, CallContext(principal=OPERATOR))
        assert refused.status == "tool_error"
        assert "Access denied" in refused.output


async def test_files_are_read(servers: Mapping[str, Entry], tmp_path: Path) -> None:
    async with hosting(files=servers["files"]) as host:
        assert "read_text_file" in await listed(host, "files")
        note = await called(host, "files.read_text_file", path=str(tmp_path / "files" / "note.txt"))
        assert note.output == "remember the milk"


async def test_the_memory_keeps_what_it_is_told(servers: Mapping[str, Entry]) -> None:
    async with hosting(memory=servers["memory"]) as host:
        assert "create_entities" in await listed(host, "memory")
        ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
        await called(host, "memory.create_entities", entities=[ada])
        assert "writes programs" in (await called(host, "memory.search_nodes", query="Ada")).output


@pytest.mark.requirement("DISC-failure-recorded", "DISC-start-one-fails")
async def test_a_server_that_does_not_start_says_why_and_costs_the_others_nothing(servers: Mapping[str, Entry]) -> None:
    async with hosting(broken=servers["broken"], files=servers["files"]) as host:
        record = (await host.servers.loaded.discover("broken", by=OPERATOR, wait_s=WAIT_S, request_id="")).record
        assert record.status == "failed"
        assert record.error is not None
        assert "AttributeError" in record.error
        assert "read_file" in await listed(host, "files")


async def test_everything_over_http_is_one_of_the_older_era() -> None:
    with kept_port() as port, everything_over_http(port) as url:
        async with hosting(remote={"url": url}) as host:
            assert "echo" in await listed(host, "remote")
            echoes = [called(host, "remote.echo", message=str(number)) for number in range(5)]
            assert [each.output for each in await asyncio.gather(*echoes)] == [f"Echo: {number}" for number in range(5)]
