"""A FastMCP server in the process of the host: objects and functions, its answers, lifespan and faults."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from toolplug import CallContext, Principal, ToolCall, ToolResult, open_host
from toolplug.testing.provider_check import check_provider
from toolplug_fastmcp.provider import FastMcpServer

README = Path(__file__).parents[1] / "README.md"

ADA = Principal(subject="ada", scopes=frozenset({"tools:call"}))

pytestmark = [pytest.mark.anyio, pytest.mark.framework]

CODE = '''
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image

LOG = Path(__file__).with_name("log")

@asynccontextmanager
async def life(server):
    LOG.write_text(LOG.read_text() + "opened " if LOG.exists() else "opened ")
    yield {"word": "Moin"}
    LOG.write_text(LOG.read_text() + "closed ")

mcp = FastMCP("shop", lifespan=life)

@mcp.tool(annotations={"readOnlyHint": True})
def price(item: Annotated[str, "what is bought"]) -> dict[str, int]:
    """Say what an item costs."""
    return {item: 3}

@mcp.tool
async def greet(ctx: Context) -> str:
    """Greet."""
    await ctx.report_progress(1, 2, "half")
    return ctx.lifespan_context["word"]

@mcp.tool
def fail(text: str) -> str:
    """Fail in words."""
    raise ToolError(text)

@mcp.tool
def draw() -> Image:
    """Draw."""
    return Image(data=b"png", format="png")

@mcp.tool
async def hang() -> str:
    """Hang."""
    await asyncio.Event().wait()

def build():
    return mcp

async def build_later():
    return mcp

@asynccontextmanager
async def dead(server):
    raise RuntimeError("no database")
    yield

broken = FastMCP("broken", lifespan=dead)
empty = FastMCP("empty")

def fails():
    raise SystemExit(3)
'''

ONE = '''
from fastmcp import FastMCP

mcp = FastMCP("one")

@mcp.tool
async def one() -> int:
    """Say one."""
    return 1
'''

APART = '''
import os
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

mcp = FastMCP("away")

@mcp.tool
async def process_of(text: str, ctx: Context) -> str:
    """Say the process, and the text."""
    await ctx.report_progress(1, 2, "half")
    return f"{os.getpid()} {text}"

@mcp.tool
def fail(text: str) -> str:
    """Fail in words."""
    raise ToolError(text)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(CODE)
    return tmp_path


def entered(folder: Path, **entry: object) -> Path:
    file = folder / "providers.yaml"
    document = {"store": "memory://", "providers": {"own": {"enabled": True, "type": "fastmcp", **entry}}}
    file.write_text(str(document).replace("True", "true").replace("False", "false"))
    return file


async def served(file: Path, *calls: tuple[str, Mapping[str, object]]) -> list[ToolResult]:
    async with open_host(file) as host:
        executor = host.executor_for(ADA)
        return [await executor.execute(ToolCall("1", name, given)) for name, given in calls]


@pytest.mark.requirement("I39-fastmcp", "I2-9-all-use-it")
async def test_an_adapter_keeps_every_rule_of_a_provider(folder: Path) -> None:
    (folder / "one.py").write_text(ONE)
    settings = {"server": f"{folder / 'one.py'}"}
    await check_provider(FastMcpServer, settings=settings, calls={"one": {}}, readme=README)


@pytest.mark.requirement("I39-fastmcp")
@pytest.mark.parametrize("name", ["./own.py", "./own.py:mcp", "./own.py:build", "./own.py:build_later"])
async def test_a_server_is_named_by_its_file_object_or_function(folder: Path, name: str) -> None:
    calls = [("price", {"item": "tea"}), ("fail", {"text": "sold out"}), ("draw", {}), ("price", {"thing": "tea"})]
    price, fail, draw, wrong = await served(entered(folder, server=name), *calls)
    assert (price.output, price.structured) == ('{"tea":3}', {"tea": 3})
    assert (fail.status, fail.output) == ("tool_error", "sold out")
    assert draw.parts == ({"type": "image", "data": "cG5n", "mimeType": "image/png"},)
    assert wrong.status == "invalid_arguments"


@pytest.mark.requirement("I39-fastmcp")
async def test_its_lifespan_is_that_of_the_entry_and_progress_reaches_the_caller(folder: Path) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    def hear(progress: float, total: float | None = None, message: str | None = None) -> None:
        heard.append((progress, total, message))

    async with open_host(entered(folder, server="./own.py")) as host:
        context = CallContext(principal=ADA, report=hear)
        result = await host.executor_for(ADA).execute(ToolCall("1", "greet", {}), context)
        assert (folder / "log").read_text() == "opened "
    assert result.output == "Moin"
    assert heard == [(1.0, 2.0, "half")]
    assert (folder / "log").read_text() == "opened closed "


@pytest.mark.requirement("I39-fastmcp")
async def test_a_call_that_hangs_keeps_no_other_one_waiting_and_can_be_cancelled(folder: Path) -> None:
    async with open_host(entered(folder, server="./own.py")) as host:
        executor = host.executor_for(ADA)
        hang = asyncio.create_task(executor.call("hang"))
        others = await asyncio.gather(*(executor.call("price", item=str(n)) for n in range(9)))
        assert [each.structured for each in others] == [{str(n): 3} for n in range(9)]
        assert not hang.done()
        hang.cancel()
        await asyncio.wait({hang})
        assert hang.cancelled()
        assert (await executor.call("price", item="tea")).structured == {"tea": 3}


OTHER_NAME = """
from fastmcp import FastMCP

class Application:
    def __call__(self, scope, receive, send): ...

app = Application()
inner = FastMCP("inner")

@inner.tool
def one() -> int:
    "One."
    return 1
"""


@pytest.mark.requirement("I39-fastmcp")
async def test_the_only_server_of_a_file_is_taken_whatever_its_name_and_several_are_named(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(OTHER_NAME)
    (answer,) = await served(entered(tmp_path, server="./alone.py"), ("one", {}))
    assert answer.output == "1"
    (tmp_path / "several.py").write_text(f"{OTHER_NAME}\nouter = FastMCP('outer')\n")
    async with open_host(entered(tmp_path, server="./several.py", required=False)) as host:
        (record,) = [record for record in host.records() if record.key == "own"]
    assert "write ./several.py:NAME, such as ./several.py:inner" in record.reason


WRONG = {
    "./own.py:mpc": "did you mean 'mcp'?",
    "./own.py:broken": "own.py:broken does not start: RuntimeError: Client failed to connect: no database; fix",
    "./own.py:empty": "it has no tools",
    "./own.py:fails": "./own.py:fails raised SystemExit: 3; fix the function",
    "./own.py:LOG": "gives a PosixPath; name a FastMCP object",
    "json": "json has none of mcp, server, app; write json:NAME",
}


@pytest.mark.requirement("I39-broken")
@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_entry_is_one_row_that_says_what_is_wrong_and_the_fix(folder: Path, name: str) -> None:
    async with open_host(entered(folder, server=name, required=False)) as host:
        (record,) = [record for record in host.records() if record.key == "own"]
    assert record.state == "start-failed"
    assert WRONG[name] in record.reason


@pytest.mark.requirement("I39-adapters-apart")
async def test_a_server_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text(APART)
    entry = {"enabled": True, "type": "fastmcp", "server": "./apart.py", "run": {"process": True}}
    file = tmp_path / "providers.yaml"
    file.write_text(str({"store": "memory://", "providers": {"own": entry}}))
    answer, fail = await served(file, ("process_of", {"text": "hey"}), ("fail", {"text": "no such row"}))
    process, text = answer.output.split()
    assert (int(process) != os.getpid(), text) == (True, "hey")
    assert (fail.status, fail.output) == ("tool_error", "no such row")
