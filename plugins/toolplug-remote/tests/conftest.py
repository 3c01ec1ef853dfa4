"""Another host in a process of its own, and hosts in the process of the test that link to it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from toolplug import CallContext, Host, Principal, ToolCall, ToolResult, open_host
from toolplug.host.explain_gates import GateVerdict

KEY = "far-key-far-key-far-key-far-key"
PATIENCE_S = 60
ALICE = Principal("alice", "t1", frozenset({"tools:call"}))
NAMES = ["far.who", "far.picture", "far.busy", "far.slow", "far.secret"]
NOTES = '''
import asyncio
from pathlib import Path
from toolplug import CallContext, FunctionProvider, ToolError, ToolResult, tool

PNG = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}

class Notes(FunctionProvider):
    @tool(read_only=True)
    async def who(self, context: CallContext) -> dict[str, object]:
        """Return the caller, the hosts on the way, and the trace."""
        caller = context.principal
        trace = context.trace_context.get("traceparent", "")
        return {"tenant": caller.tenant, "subject": caller.subject, "hops": len(context.via), "trace": trace}

    @tool
    async def picture(self) -> ToolResult:
        """Return text, a value and an image."""
        return ToolResult(output="a dot", structured={"n": 2**70}, parts=(PNG,), metadata={"kept": True})

    @tool
    async def busy(self) -> str:
        """Fail for now."""
        raise ToolError("busy", retry_after_s=3)

    @tool
    async def slow(self, context: CallContext) -> str:
        """Report, then wait; note in a file that the wait was cancelled."""
        context.report(1, 2, "half")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            Path("cancelled").touch()
            raise
        return "slept"

    @tool
    async def secret(self) -> str:
        """Return what a person must approve."""
        return "42"
'''


class FarHost:
    """`toolplug serve` in a folder; `start` runs it again at the same address after it was killed."""

    def __init__(self, folder: Path, **sections: object) -> None:
        self.folder = folder
        self.url = ""
        self.port: str = "0"
        self._process: subprocess.Popen[str] | None = None
        self._reader: Thread | None = None
        (folder / "notes.py").write_text(NOTES)
        notes = {"type": "./notes.py:Notes", "enabled": True, "tools": {"secret": "ask"}}
        link = {"key": KEY, "subject": "link", "tenant": "linked"}
        scopes = ["tools:read", "tools:call", "delegate"]
        root = {"key": "root-key", "subject": "root", "tenant": "t1", "scopes": ["admin", "operator"]}
        plain = {"key": "plain-key", "subject": "plain", "tenant": "linked"}
        config = {
            "providers": {"notes": notes},
            "auth": {"api_keys": [{**link, "scopes": scopes}, root, plain]},
            "store": "memory://",
            **sections,
        }
        (folder / "providers.yaml").write_text(json.dumps(config))

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [str(Path(sys.executable).with_name("toolplug")), "serve", "--port", self.port]
        self._process = process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True)
        listens = Event()

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"listening on (http://\S+)", line):
                    self.url = found[1]
                    listens.set()

        self._reader = Thread(target=read)
        self._reader.start()
        assert listens.wait(PATIENCE_S)
        self.port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None and self._reader is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._reader.join()
            assert self._process.stderr is not None
            self._process.stderr.close()


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Generator[FarHost]:
    """A running host of notes, which no test stops."""
    host = FarHost(tmp_path_factory.mktemp("far"))
    host.start()
    try:
        yield host
    finally:
        host.kill()


class Linked:
    """A host with one toolset of another host, and its agent's tools."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tools = host.executor_for(ALICE, agent="researcher")

    async def call(self, name: str, /, **context: Any) -> ToolResult:
        """Call a tool for Alice."""
        return await self.tools.execute(ToolCall("c1", f"far.{name}"), CallContext(principal=ALICE, **context))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; it is looked at after each change of the tools."""
        changed = asyncio.Event()
        stop = self.tools.subscribe(lambda _: changed.set())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not holds():
                    await changed.wait()
                    changed.clear()
        finally:
            stop()

    def catalog(self) -> list[dict[str, Any]]:
        """Return the tools as `GET /api/catalog` has them."""
        return json.loads(self.host.catalog_page(ALICE, agent="researcher").body)["tools"]

    def source_gate(self) -> GateVerdict:
        """Return the gate of the source of the tool `far.who`."""
        explained = self.host.explain("far.who", ALICE, agent="researcher")
        (gate,) = [gate for gate in explained.gates if gate.gate == "source"]
        return gate

    async def doctor(self) -> list[str]:
        """Return what the plugin says that is wrong."""
        return list(await self.host.plugins.get_plugin("host").diagnose())


Link = Callable[..., AbstractAsyncContextManager[Linked]]


@pytest.fixture
def link() -> Link:
    """Enters a host that links to an address."""

    @asynccontextmanager
    async def linked(url: str, key: str | None = KEY, store: str = "memory://") -> AsyncGenerator[Linked]:
        toolset = {"prefix": "far", "from": f"host:{url}", **({} if key is None else {"api_key": key})}
        config = {
            "toolsets": {"far": toolset},
            "agents": {"researcher": {"toolsets": ["far"]}},
            "store": store,
        }
        async with open_host(config, environ={}) as host:
            yield Linked(host)

    return linked
