"""Tools of LangChain: objects, classes, toolkits and functions, what they answer, and what a broken one costs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from toolplug import Principal, ToolCall, ToolResult, open_host
from toolplug.errors import ConfigError
from toolplug.testing.provider_check import check_provider
from toolplug_langchain.provider import LangChainTools

README = Path(__file__).parents[1] / "README.md"
ADA = Principal(subject="ada", scopes=frozenset({"tools:call"}))

pytestmark = [pytest.mark.anyio, pytest.mark.framework]

CODE = '''
import threading
from typing import Annotated
from langchain_core.tools import BaseTool, BaseToolkit, InjectedToolCallId, StructuredTool, ToolException, tool
from langchain_core.messages import ToolMessage
from pydantic import field_validator, BaseModel

@tool
def where(deep: Annotated[int, "how deep"]) -> str:
    """Say which thread it runs in."""
    return threading.current_thread().name

@tool
async def rows(count: int) -> list[dict]:
    """List rows."""
    return [{"n": n} for n in range(count)]

@tool
def fail(text: str) -> str:
    """Fail in words."""
    raise ToolException(text)

@tool
def crash(text: str) -> str:
    """Crash."""
    raise ValueError(text)

@tool
def which(of: str, call: Annotated[str, InjectedToolCallId]) -> str:
    """Say the id of the call."""
    return f"{of} {call}"

@tool(response_format="content_and_artifact")
def picture() -> tuple:
    """Draw."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}
    return [{"type": "text", "text": "drawn"}, image], {"w": 1}

class Even(BaseModel):
    number: int
    @field_validator("number")
    @classmethod
    def even(cls, number):
        if number % 2:
            raise ValueError("is odd")
        return number

def _half(number: int) -> int:
    return number // 2

half = StructuredTool.from_function(_half, name="half", description="Half.", args_schema=Even)

handled = StructuredTool.from_function(fail.func, name="handled", description="Fail.", handle_tool_error=True)

class Greeting(BaseTool):
    name: str = "greet"
    description: str = "Greet somebody."
    word: str
    def _run(self, who: str) -> str:
        return f"{self.word}, {who}!"

class Kit(BaseToolkit):
    def get_tools(self):
        return [where, rows]

class Needs:
    def __init__(self, database):
        raise AssertionError

every = [where, rows, fail, crash, which, picture, half, handled]

def made(word):
    return [Greeting(word=word), Kit()]
'''

APART = '''
import os
from langchain_core.tools import ToolException, tool

@tool
def process_of(text: str) -> str:
    """Say the process, and the text."""
    return f"{os.getpid()} {text}"

@tool
async def fail(text: str) -> str:
    """Fail in words."""
    raise ToolException(text)

@tool
def picture() -> list:
    """Draw."""
    return [{"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}]

every = [process_of, fail, picture]
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(CODE)
    return tmp_path


async def served(
    folder: Path, settings: Mapping[str, object], *calls: tuple[str, Mapping[str, object]]
) -> list[ToolResult]:
    entry = {"enabled": True, "type": "langchain", **settings}
    (folder / "providers.yaml").write_text(str({"store": "memory://", "providers": {"own": entry}}))
    async with open_host(folder / "providers.yaml") as host:
        executor = host.executor_for(ADA)
        return [await executor.execute(ToolCall("c7", name, given)) for name, given in calls]


@pytest.mark.requirement("I39-langchain", "I2-9-all-use-it")
async def test_an_adapter_keeps_every_rule_of_a_provider(folder: Path) -> None:
    settings = {"tool": f"{folder / 'own.py'}:where"}
    await check_provider(LangChainTools, settings=settings, calls={"where": {"deep": 1}}, readme=README)


@pytest.mark.requirement("I39-langchain")
async def test_tools_answer_as_they_do_in_an_agent(folder: Path) -> None:
    calls = [
        ("where", {"deep": 1}),
        ("rows", {"count": 2}),
        ("fail", {"text": "no such row"}),
        ("handled", {"text": "no such row"}),
        ("which", {"of": "call"}),
        ("half", {"number": 3}),
        ("half", {"number": 4}),
        ("picture", {}),
    ]
    where, rows, fail, handled, which, odd, half, picture = await served(folder, {"tool": "./own.py:every"}, *calls)
    assert where.output.startswith("toolplug-own-work")
    assert (rows.output, half.output) == ('[{"n": 0}, {"n": 1}]', "2")
    assert [(each.status, each.output) for each in (fail, handled)] == [("tool_error", "no such row")] * 2
    assert which.output.startswith("call ")
    assert (odd.status, odd.output) == ("tool_error", "the tool refuses its arguments: number: Value error, is odd")
    assert (picture.output, picture.parts) == ("drawn", ({"type": "image", "data": "cG5n", "mimeType": "image/png"},))


@pytest.mark.requirement("I39-adapters-apart")
async def test_tools_run_in_a_process_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text(APART)
    settings = {"tool": "./apart.py:every", "run": {"process": True}}
    calls = [("process_of", {"text": "hey"}), ("fail", {"text": "no such row"}), ("picture", {})]
    answer, fail, picture = await served(tmp_path, settings, *calls)
    process, text = answer.output.split()
    assert (int(process) != os.getpid(), text) == (True, "hey")
    assert (fail.status, fail.output) == ("tool_error", "no such row")
    assert picture.parts == ({"type": "image", "data": "cG5n", "mimeType": "image/png"},)


@pytest.mark.requirement("I39-langchain")
async def test_other_exceptions_are_masked(folder: Path) -> None:
    (crash,) = await served(folder, {"tool": "./own.py:every"}, ("crash", {"text": "the secret"}))
    assert crash.status == "panic"
    assert "the secret" not in crash.output


@pytest.mark.requirement("I39-langchain")
@pytest.mark.parametrize(
    ("settings", "call", "answer"),
    [
        ({"tool": "./own.py:Greeting", "arguments": {"word": "Moin"}}, ("greet", {"who": "Ada"}), "Moin, Ada!"),
        ({"tool": "./own.py:Kit"}, ("rows", {"count": 1}), '[{"n": 0}]'),
        ({"tool": "./own.py:made", "arguments": {"word": "Hi"}}, ("greet", {"who": "Ada"}), "Hi, Ada!"),
    ],
)
async def test_a_class_a_toolkit_and_a_function_make_tools(
    folder: Path, settings: Mapping[str, object], call: tuple[str, Mapping[str, object]], answer: str
) -> None:
    assert [result.output for result in await served(folder, settings, call)] == [answer]


WRONG = {
    "./own.py:nothing": "own.py has no 'nothing'",
    "./own.py:whree": "did you mean 'where'?",
    "./gone.py:x": "gone.py cannot be read",
    "no_such_package.tools:Tool": "there is no module 'no_such_package'; correct the name, or install",
    "not a module:x": "is no module; write package.module:Name",
    "./own.py:Needs": "needs database; set arguments: {database: …}",
    "./own.py:Even": "needs number",
    "./broken.py:x": "importing ./broken.py raised RuntimeError: no key; fix the file",
    "./exits.py:x": "raised SystemExit: 3",
    "./own.py:CODE": "has no 'CODE'",
    "json:__name__": "gives a str; name a tool",
}


@pytest.mark.requirement("I39-broken")
@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_entry_is_one_row_that_says_what_is_wrong_and_the_fix(folder: Path, name: str) -> None:
    (folder / "broken.py").write_text("raise RuntimeError('no key')")
    (folder / "exits.py").write_text("raise SystemExit(3)")
    entry = {"enabled": True, "type": "langchain", "tool": name}
    document = {"store": "memory://", "providers": {"x": {**entry, "required": False}}}
    (folder / "providers.yaml").write_text(str(document))
    async with open_host(folder / "providers.yaml") as host:
        (record,) = [record for record in host.records() if record.key == "x"]
    assert record.state == "start-failed"
    assert WRONG[name] in record.reason
    (folder / "providers.yaml").write_text(str({"store": "memory://", "providers": {"x": entry}}))
    with pytest.raises(ConfigError, match="required: false"):
        async with open_host(folder / "providers.yaml"):
            raise AssertionError("it must not start")
