"""`toolplug serve --stdio`: a desktop client starts the host and speaks with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from tests.mcp.conftest import ERAS
from tests.mcp.forking import forking
from tests.mcp.test_tools import WAIT_S, text_of

from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug.errors import StoreError
from toolplug.parts.mcp.sdk.answering import without_details
from toolplug.parts.sessions.running import RunningSessions
from toolplug.parts.sessions.tools.negotiation import Registration

pytestmark = [pytest.mark.requirement("C-10-stdio"), pytest.mark.mcp]

IMPORTED = (
    "toolplug.cli.command_line",
    "toolplug.cli.serve",
    "toolplug.parts.mcp.commands.over_stdio",
    "toolplug.parts.mcp.sdk.answering",
    "toolplug.sqlite.store",
)
ALICE = Principal(subject="alice", scopes=frozenset({"tools:call", "sessions:write"}))
TOOLPLUG = str(Path(sys.executable).with_name("toolplug"))


@pytest.fixture(scope="module")
def serve() -> Iterator[list[str]]:
    """The words that start `toolplug serve --stdio`: forks of one process, but where the start is what is tested."""
    with forking(*IMPORTED) as forked:
        yield forked(TOOLPLUG, "serve", "--stdio")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "providers.yaml"
    file.write_text(
        textwrap.dedent(
            """
            providers:
              hello: {enabled: true}
            auth:
              api_keys: [{key: a-key-that-nobody-sends, subject: somebody}]
            store: memory://
            """
        )
    )
    return file


@pytest.mark.anyio
async def test_a_client_of_either_era_lists_and_calls_as_the_operator(serve: list[str], config: Path, era: str) -> None:
    server = StdioServerParameters(command=serve[0], args=[*serve[1:], "-c", str(config)])
    async with asyncio.timeout(WAIT_S), Client(stdio_client(server), mode=ERAS[era]) as client:
        assert client.protocol_version == era
        assert [tool.name for tool in (await client.list_tools()).tools] == ["hello"]
        assert text_of(await client.call_tool("hello", {"name": "World"})) == "Hello, World!"


AGENT = """
            toolsets: {greet: {prefix: greet, from: provider:hello}}
            agents: {writer: {toolsets: [greet]}}
"""


@pytest.mark.anyio
async def test_with_an_agent_it_serves_that_agents_tools(serve: list[str], config: Path, era: str) -> None:
    config.write_text(config.read_text() + textwrap.dedent(AGENT))
    arguments = [*serve[1:], "--agent", "writer", "-c", str(config)]
    server = StdioServerParameters(command=serve[0], args=arguments)
    async with asyncio.timeout(WAIT_S), Client(stdio_client(server), mode=ERAS[era]) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["greet__hello"]
        assert text_of(await client.call_tool("greet__hello", {"name": "World"})) == "Hello, World!"


@pytest.mark.anyio
@pytest.mark.requirement("I3-2-queued-restart")
async def test_it_leaves_the_sessions_of_a_host_beside_it_alone(tmp_path: Path, serve: list[str], config: Path) -> None:
    lone = f"store: sqlite:///{tmp_path}/state.db\nsessions: {{grace: 1ms}}\n"
    config.write_text(config.read_text().replace("store: memory://\n", lone))
    server = StdioServerParameters(command=serve[0], args=[*serve[1:], "-c", str(config)])
    async with asyncio.timeout(WAIT_S), open_host(config, environ={}) as host:
        session = (await host.sessions.create(ALICE)).session
        await session.open_stream("plugin", None)
        await session.register(Registration(plugin_type="table", tools=[{"name": "add", "inputSchema": {}}]))
        context = CallContext(ALICE, session.code, deadline=asyncio.get_running_loop().time() + WAIT_S)
        queued = await host.part(RunningSessions).queued.start(session, ToolCall("c1", "add", {}), context, most=1)
        async with Client(stdio_client(server), mode="auto") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["hello"]
        assert (await host.part(RunningSessions).queued.look(session, queued)).status == "sent"
        page = await session.log_page(None)
        assert page is not None
        told = [event.data["status"] for event in page.events if event.event == "plugin-status"]
        assert told == ["attached"]


def test_an_agent_is_for_one_client_only(config: Path) -> None:
    done = subprocess.run(
        [TOOLPLUG, "serve", "--agent", "writer", "-c", str(config)], capture_output=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--agent is for --stdio" in done.stderr


def test_it_ends_with_its_client_and_writes_nothing_but_the_protocol(config: Path) -> None:
    done = subprocess.run(
        [TOOLPLUG, "serve", "--stdio", "-c", str(config)], input=b"", capture_output=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.requirement("C-5-optional-null")
def test_a_meta_of_null_is_as_if_absent_and_no_text_of_an_exception_is_sent(serve: list[str], config: Path) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"name": "hello", "arguments": {"name": "World"}, "_meta": None}
    sent = [
        {"id": 1, "method": "initialize", "params": params},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(
        [*serve, "-c", str(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in sent:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        assert process.wait(WAIT_S) == 0
    assert answers[1]["result"]["content"] == [{"type": "text", "text": "Hello, World!"}]


@pytest.mark.anyio
@pytest.mark.requirement("C-5-optional-null")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (KeyError("a detail of ours"), "Internal error; the log of the host has the cause"),
        (StoreError("the store is down"), "the store is down"),
    ],
)
async def test_a_fault_of_the_host_is_an_internal_error(
    fault: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def call_next(_: object) -> None:
        raise fault

    with pytest.raises(MCPError) as refused:
        await without_details(cast("Any", SimpleNamespace(method="tools/list")), call_next)
    assert (refused.value.error.code, refused.value.error.message) == (INTERNAL_ERROR, said)
    assert ("a detail of ours" in caplog.text) is isinstance(fault, KeyError)


@pytest.mark.requirement("C-3-duplicate-keys")
def test_a_line_that_is_no_exact_json_is_a_parse_error_and_the_next_is_answered(serve: list[str], config: Path) -> None:
    sent = [
        b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}',
        b"no JSON",
        b"",
        b'{"jsonrpc": "2.0", "id": 3, "method": "ping"}',
    ]
    with subprocess.Popen(
        [*serve, "-c", str(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n".join(sent) + b"\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()
        assert process.wait(WAIT_S) == 0
    answered = {answer["id"]: answer for answer in answers if answer["id"] is not None}
    errors = [answer["error"] for answer in answers if answer["id"] is None]
    assert answered == {3: {"jsonrpc": "2.0", "id": 3, "result": {}}}
    assert [error["code"] for error in errors] == [-32700, -32700]
    assert "duplicate" in errors[0]["message"].lower()


TOOLS = """
import asyncio
from toolplug import tool

@tool
async def wait(seconds: float) -> str:
    "Wait."
    await asyncio.sleep(seconds)
    return f"waited {seconds}"

@tool
async def pay() -> str:
    "Pay."
    return "paid"
"""


ENTRY = "tools: {type: ./tools.py, enabled: true, tools: {pay: ask}}"


def calls_of(*calls: tuple[str, dict[str, object]]) -> list[dict[str, object]]:
    """The messages of a client that makes these calls under the ids 2, 3 and so on, and can be asked."""
    client = {"name": "t", "version": "1"}
    begin = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": client}
    return [
        {"id": 1, "method": "initialize", "params": begin},
        {"method": "notifications/initialized"},
        *(
            {"id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(calls, 2)
        ),
    ]


def answers_to(serve: list[str], config: Path, *messages: dict[str, object]) -> list[dict[str, Any]]:
    """The messages of a host whose client sends all of its own and closes its end."""
    (config.parent / "tools.py").write_text(TOOLS)
    config.write_text(config.read_text().replace("hello: {enabled: true}", ENTRY))
    done = subprocess.run(
        [*serve, "-c", str(config)],
        input="".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.requirement("C-10-stdio-answers")
def test_what_a_client_has_asked_is_answered_after_the_end_of_its_messages(serve: list[str], config: Path) -> None:
    answers = answers_to(serve, config, *calls_of(("wait", {"seconds": 1.5}), ("wait", {"seconds": 0})))
    assert [each["id"] for each in answers] == [1, 3, 2]
    assert [each["result"]["content"][0]["text"] for each in answers[1:]] == ["waited 0", "waited 1.5"]


@pytest.mark.requirement("C-10-stdio-answers")
def test_it_ends_without_the_calls_that_its_client_cancels_or_would_have_to_decide(
    serve: list[str], config: Path
) -> None:
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 2}}
    unreadable: dict[str, object] = {"id": 9, "method": "ping", "params": [1]}
    answers = answers_to(serve, config, *calls_of(("wait", {"seconds": 600}), ("pay", {})), cancel, unreadable)
    assert answers[0]["result"]["serverInfo"]
    assert [each["method"] for each in answers if "method" in each] == ["elicitation/create"]


def test_a_signal_ends_it_though_its_client_is_there(serve: list[str], config: Path) -> None:
    read, write = os.pipe()
    with subprocess.Popen([*serve, "-c", str(config)], stdin=read, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("hello" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    os.close(read)
    os.close(write)


@pytest.mark.requirement("C-2-reload-signal")
def test_a_hang_up_signal_has_the_configuration_read_again(serve: list[str], config: Path) -> None:
    read, write = os.pipe()
    with subprocess.Popen([*serve, "-c", str(config)], stdin=read, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("hello" in line for line in process.stderr)
        config.write_text(config.read_text().replace("enabled: true", "enabled: true, greeting: Ahoy"))
        process.send_signal(signal.SIGHUP)
        assert any("configuration reloaded: hello started" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    os.close(read)
    os.close(write)


def test_a_wrong_configuration_is_said_and_nothing_is_served(serve: list[str], config: Path) -> None:
    config.write_text("providers: {hello: {enabled: 5}}")
    done = subprocess.run([*serve, "-c", str(config)], capture_output=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"providers.hello.enabled" in done.stderr


def test_it_needs_nothing_of_the_extra_server() -> None:
    """A desktop client's install is `toolplug[cli,sqlite,mcp]`; it failed at the import of the watcher of files."""
    hidden = ("uvicorn", "uvloop", "httptools", "watchfiles", "websockets", "toolplug_console")
    code = f"""
import sys
sys.modules.update(dict.fromkeys({hidden}))
import toolplug.parts.mcp.commands.over_stdio
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT_S)
