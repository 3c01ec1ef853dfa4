"""`toolplug sessions try` and `toolplug sessions prompt`: an application for a try, and its session in words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import pytest
from tests.cli.conftest import Run
from tests.cli.lending import lending
from tests.http.served import served

from toolplug import open_host
from toolplug.http import create_app
from toolplug.parts.sessions.commands.session_trial import try_file

pytestmark = [pytest.mark.anyio, pytest.mark.process]

Write = Callable[..., Path]
OPEN = "providers: {hello: {enabled: true}}"
FIRST = '''
from toolplug import tool

@tool(name="notes.add", read_only=True)
def add(text: str) -> str:
    """Add a note."""
    return text

def helper() -> None: ...
'''
PLAIN = '''
def count(words: list[str]) -> int:
    """Count words."""
    return len(words)

def _hidden() -> None: ...
'''


class Printed:
    """What the command prints, line by line."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._waiting: list[str] = []

    async def until(self, part: str) -> str:
        """The next line with this part, on either stream."""
        async with asyncio.timeout(10):
            while True:
                out, err = self._capsys.readouterr()
                self._waiting += (out + err).splitlines()
                while self._waiting:
                    if part in (line := self._waiting.pop(0)):
                        return line
                await asyncio.sleep(0.02)


@asynccontextmanager
async def trying(file: Path, config: Path, *, as_json: bool = False) -> AsyncIterator[str]:
    """The command while it runs; gives the host's URL."""
    host = open_host(config)
    with served(host, create_app(host)) as port:
        url = f"http://127.0.0.1:{port}"
        running = asyncio.create_task(try_file(file, url, None, as_json=as_json))
        try:
            yield url
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@pytest.mark.requirement("I33-10-try")
async def test_a_file_is_lent_and_each_change_is_shown_as_readers_get_it(
    run: Run, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, printed = tmp_path / "my notes.py", Printed(capsys)
    file.write_text(FIRST, "utf-8")
    async with trying(file, write(OPEN)) as url:
        code = (await printed.until("session ")).split()[1]
        assert (await printed.until("MCP clients")).endswith(f"{url}/api/sessions/{code}/mcp")
        assert await printed.until("revision 1") == "revision 1: 1 tool: notes.add"
        answer = await asyncio.to_thread(run, "sessions", "call", code, "notes.add", "text=tea", "--url", url)
        assert (answer.code, answer.out) == (0, "tea\n")
        file.write_text(f"{FIRST}\n@tool\ndef drop() -> None:\n    'Drop all.'\n", "utf-8")
        assert (await printed.until("revision 2")).endswith("revision 2: +drop (the file was saved)")
        file.write_text(f"{FIRST}\nboom\n", "utf-8")
        broken = await printed.until("not lent")
        assert "my notes.py:11" in broken
        assert "NameError: name 'boom' is not defined; the tools before stay" in broken
        file.write_text(PLAIN, "utf-8")
        assert (await printed.until("revision 3")).endswith("+count -notes.add -drop (the file was saved)")
    gone = await asyncio.to_thread(run, "sessions", "show", code)
    assert code not in gone.out, "the session ends with the command"


@pytest.mark.requirement("I33-10-try")
async def test_a_try_prints_objects_with_json(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, printed = tmp_path / "notes.py", Printed(capsys)
    file.write_text(PLAIN, "utf-8")
    async with trying(file, write(OPEN), as_json=True) as url:
        begun = orjson.loads(await printed.until("begun"))
        code = begun["data"]["code"]
        assert begun == {"event": "begun", "data": {"code": code, "mcpUrl": f"{url}/api/sessions/{code}/mcp"}}
        shown = orjson.loads(await printed.until("Snapshot"))["data"]
        assert (shown["sessionCode"], [tool["name"] for tool in shown["tools"]]) == (code, ["count"])
        file.write_text("def count( -> int: ...", "utf-8")
        assert "SyntaxError" in orjson.loads(await printed.until("problem"))["data"]["message"]


@pytest.mark.requirement("I33-10-try")
def test_a_file_without_functions_and_a_host_that_does_not_answer_are_said_in_words(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("LIMIT = 3\n", "utf-8")
    empty = run("sessions", "try", "empty.py", "--url", "http://127.0.0.1:9")
    assert (empty.code, "has no function to lend; define one with a docstring" in empty.err) == (1, True)
    file.write_text(PLAIN, "utf-8")
    away = run("sessions", "try", "empty.py", "--url", "http://127.0.0.1:9")
    assert (away.code, "http://127.0.0.1:9" in away.err) == (1, True)
    assert run("sessions", "try", "missing.py").code == 1


@pytest.mark.requirement("I33-10-prompt")
async def test_the_command_prints_the_prompt_of_the_host(run: Run, write: Write) -> None:
    async with lending(write(OPEN)) as diary:

        async def ran(*more: str) -> str:
            done = await asyncio.to_thread(run, "sessions", "prompt", diary.code, "--url", diary.url, *more)
            assert done.code == 0, done.err
            return done.out

        assert (await ran()).startswith("TOOLS OF DIARY\n\nAn application of the kind 'diary' lends 2 tools")
        assert "\n| diary.write\n|   Write an entry.\n|   - text (text)\n" in await ran()
        assert (await ran("--markdown")).startswith("# Tools of diary\n")
        assert orjson.loads(await ran("--json"))["prompt"] == await ran()
        unknown = await asyncio.to_thread(run, "sessions", "prompt", "ABCDEFGH", "--url", diary.url)
        assert (unknown.code, "session_not_found" in unknown.err or "no such session" in unknown.err) == (1, True)
