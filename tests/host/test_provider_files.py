"""Providers of Python files: `type: ./notes.py`, and a file served by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from toolplug import CallContext, ConfigError, Host, Principal, ToolCall, open_host
from toolplug.catalog.call import ANONYMOUS

pytestmark = pytest.mark.anyio

ME = Principal(scopes=frozenset({"tools:call"}))
NOTES = '''
from pydantic import BaseModel
from toolplug import FunctionProvider, tool

class Notes(FunctionProvider):
    class Config(BaseModel):
        greeting: str = "Hello"

    @tool
    async def greet(self, name: str) -> str:
        """Greet a person."""
        return f"{self.config.greeting}, {name}!"
'''
UNSHOWN = """
from toolplug import tool

class Unshown:
    def __eq__(self, other):
        raise KeyError("e")

    def __repr__(self):
        raise KeyError("r")

@tool
def take(what: Unshown()):
    "Take."
"""
TOOLS = '''
from toolplug import tool

@tool
async def double(number: int) -> int:
    """Return twice the number."""
    return FACTOR * number

@tool
def shout(text: str) -> str:
    """Return the text in capitals."""
    return text.upper()

FACTOR = 2
'''
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        file = tmp_path / name
        file.write_text(text)
        return file

    return write


async def called(host: Host, tool: str, **arguments: object) -> str:
    return (await host.executor_for(ME).execute(ToolCall("c", tool, arguments), CallContext(principal=ME))).output


async def test_an_entry_names_a_class_of_a_file_below_the_configuration(write: Write) -> None:
    write("notes.py", NOTES)
    entries = (
        "one: {type: './notes.py:Notes', enabled: true, greeting: Ahoy}\n  two: {type: ./notes.py, enabled: false}"
    )
    config = write("providers.yaml", f"store: memory://\nproviders:\n  {entries}\n")
    async with open_host(config) as host:
        assert await called(host, "greet", name="Ada") == "Ahoy, Ada!"
        first, second = host.records()[:2]
        assert (first.type, first.state.value, first.distribution) == ("./notes.py:Notes", "active", "./notes.py:Notes")
        assert (second.key, second.state.value) == ("two", "disabled")


async def test_a_file_by_itself_is_a_configuration_with_one_provider(write: Write) -> None:
    async with open_host(write("my-tools.py", TOOLS)) as host:
        assert [(record.key, record.tools) for record in host.records()][:1] == [("my_tools", ("double", "shout"))]
        assert (await called(host, "double", number=3), await called(host, "shout", text="a")) == ("6", "A")


async def test_a_reload_takes_up_a_change_within_the_same_second_and_keeps_what_is_unchanged(write: Write) -> None:
    file = write("tools.py", TOOLS)
    async with open_host(file) as host:
        assert (await host.reload(by=ANONYMOUS)).kept == ("tools",)
        write("tools.py", TOOLS.replace("FACTOR = 2", "FACTOR = 3"))
        assert (await host.reload(by=ANONYMOUS)).started == ("tools",)
        assert await called(host, "double", number=3) == "9"


async def test_a_broken_file_changes_nothing_and_its_line_is_told(write: Write) -> None:
    file = write("tools.py", TOOLS)
    async with open_host(file) as host:
        write("tools.py", TOOLS + "x = (\n")
        with pytest.raises(ConfigError) as caught:
            await host.reload(by=ANONYMOUS)
        (problem,) = caught.value.problems
        assert f"it raised SyntaxError: '(' was never closed at {file}:15" in problem.message
        assert (problem.file, problem.line, problem.path) == (str(file), 0, "")
        assert await called(host, "double", number=3) == "6"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\n", "tools has no function with @tool, @route or @hookimpl and no FunctionProvider"),
        (NOTES + NOTES.replace("Notes(", "Other("), "has several providers: Notes, Other"),
        ("raise SystemExit(3)\n", "it raised SystemExit: 3 at"),
        (TOOLS.replace("number: int", "number: Nowhere"), "Nowhere"),
        ("x = '\x00'\n", "it raised"),
        (UNSHOWN, "reading it raised KeyError: 'r' at"),
        ("#" * 5_000_000, "is over 4194304 bytes"),
    ],
)
async def test_a_file_that_cannot_be_served_is_told_in_one_line(write: Write, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await open_host(write("tools.py", text)).__aenter__()
    (problem,) = caught.value.problems
    assert told in problem.message
    assert "\n" not in problem.message
    assert str(problem).count("tools.py: ") == 1, "the name of the file is said once"
    assert "entry" not in problem.hint, "a file alone has no entry that could be removed"


async def test_a_file_with_an_object_of_a_framework_is_told_what_serves_it(write: Write) -> None:
    foreign = 'class Server:\n    __module__ = "fastmcp.server"\n\n\nmcp = Server()\n'
    with pytest.raises(ConfigError) as caught:
        await open_host(write("tools.py", foreign)).__aenter__()
    (problem,) = caught.value.problems
    assert problem.hint == "add one, or serve 'mcp' by an entry with type: fastmcp, of toolplug-fastmcp"


async def test_files_that_are_missing_are_told_with_the_line_of_the_entry(write: Write) -> None:
    write("notes.py", NOTES)
    config = write(
        "providers.yaml",
        "providers:\n  a: {type: ./nowhere.py, enabled: true}\n  b: {type: './notes.py:Nobody', enabled: true}\n",
    )
    with pytest.raises(ConfigError) as caught:
        await open_host(config).__aenter__()
    assert [(problem.line, problem.message) for problem in caught.value.problems] == [
        (2, "./nowhere.py: cannot be read: No such file or directory"),
        (3, "./notes.py:Nobody: notes.py has no 'Nobody'; its providers are Notes"),
    ]


async def test_the_only_class_of_a_file_keeps_its_settings(write: Write) -> None:
    write("notes.py", NOTES)
    config = write(
        "providers.yaml", "providers: {n: {type: ./notes.py, enabled: true, greeting: Hi}}\nstore: memory://"
    )
    async with open_host(config, environ={}) as host:
        assert await called(host, "greet", name="Ada") == "Hi, Ada!"


async def test_a_class_next_to_functions_is_left_out_with_a_warning(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    file = write("notes.py", TOOLS + NOTES)
    async with open_host(file) as host:
        assert list(host.registry.catalog) == ["double", "shout"]
    (warning,) = [item.message for item in caplog.records if "leaves out" in item.message]
    assert warning == (
        "./notes.py: its functions are the provider, which leaves out the class Notes; "
        "an entry of its own serves it: ./notes.py:Notes"
    )
    caplog.clear()
    for text in (TOOLS, NOTES):
        async with open_host(write("notes.py", text)) as host:
            assert len(host.registry.catalog)
    assert "leaves out" not in caplog.text
