"""Tools of LlamaIndex: specs, objects and functions, what they answer, and what a broken one costs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from toolplug import Principal, ToolCall, ToolResult, open_host
from toolplug.testing.provider_check import check_provider
from toolplug_llama_index.provider import LlamaIndexTools

README = Path(__file__).parents[1] / "README.md"

ADA = Principal(subject="ada", scopes=frozenset({"tools:call"}))

pytestmark = [pytest.mark.anyio, pytest.mark.framework]

CODE = '''
import threading
from typing import Annotated
from llama_index.core.base.llms.types import ImageBlock, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.core.workflow import Context

class Shop(BaseToolSpec):
    spec_functions = ["where", "rows", "fail", ("price", "price_later")]

    def __init__(self, shop: str = "shop"):
        self.shop = shop

    def where(self, deep: Annotated[int, "how deep"]) -> str:
        """Say which thread it runs in."""
        return threading.current_thread().name

    async def rows(self, count: int) -> list:
        """List rows."""
        return [self.shop] * count

    def fail(self, text: str) -> str:
        """Fail."""
        raise ValueError(text)

    def price(self, item: str) -> str:
        """Say the price.

        Of an item.
        """
        return f"{item} at {self.shop}"

    async def price_later(self, item: str) -> str:
        raise AssertionError

def draw() -> list:
    """Draw."""
    return [TextBlock(text="drawn"), ImageBlock(image=b"cG5n", image_mimetype="image/png")]

async def flow(ctx: Context, text: str) -> str:
    """Needs a workflow."""
    return text

def made(shop):
    return [Shop(shop), FunctionTool.from_defaults(draw), FunctionTool.from_defaults(flow)]

drawing = FunctionTool.from_defaults(draw)

def nothing():
    return []

class Broken:
    def __init__(self):
        raise RuntimeError("no key")
'''

APART = '''
import os
from llama_index.core.tools.tool_spec.base import BaseToolSpec

class Shop(BaseToolSpec):
    spec_functions = ["process_of", "fail"]

    def process_of(self, text: str) -> str:
        """Say the process, and the text."""
        return f"{os.getpid()} {text}"

    async def fail(self, text: str) -> str:
        """Fail in words."""
        raise ValueError(text)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(CODE)
    return tmp_path


async def served(
    folder: Path, settings: Mapping[str, object], *calls: tuple[str, Mapping[str, object]]
) -> list[ToolResult]:
    entry = {"enabled": True, "type": "llama_index", **settings}
    (folder / "providers.yaml").write_text(str({"store": "memory://", "providers": {"own": entry}}))
    async with open_host(folder / "providers.yaml") as host:
        executor = host.executor_for(ADA)
        return [await executor.execute(ToolCall("1", name, given)) for name, given in calls]


@pytest.mark.requirement("I39-llama-index", "I2-9-all-use-it")
async def test_an_adapter_keeps_every_rule_of_a_provider(folder: Path) -> None:
    settings = {"spec": f"{folder / 'own.py'}:drawing"}
    await check_provider(LlamaIndexTools, settings=settings, calls={"draw": {}}, readme=README)


@pytest.mark.requirement("I39-llama-index")
async def test_a_description_has_no_indentation_of_the_docstring(folder: Path) -> None:
    entry = {"enabled": True, "type": "llama_index", "spec": "./own.py:made", "arguments": {"shop": "Otto"}}
    (folder / "providers.yaml").write_text(str({"store": "memory://", "providers": {"own": entry}}))
    async with open_host(folder / "providers.yaml") as host:
        description = host.executor_for(ADA).catalog["price"].definition.description
    assert description == "price(item: str) -> str\nSay the price.\n\nOf an item."


@pytest.mark.requirement("I39-llama-index")
async def test_tools_answer_as_they_do_in_an_agent(folder: Path) -> None:
    calls = [
        ("where", {"deep": 1}),
        ("rows", {"count": 2}),
        ("fail", {"text": "no such row"}),
        ("price", {"item": "tea"}),
        ("draw", {}),
        ("flow", {"text": "a"}),
        ("rows", {"number": 2}),
    ]
    settings = {"spec": "./own.py:made", "arguments": {"shop": "Otto"}}
    where, rows, fail, price, draw, flow, wrong = await served(folder, settings, *calls)
    assert where.output.startswith("toolplug-own-work")
    assert (rows.output, price.output) == ("['Otto', 'Otto']", "tea at Otto")
    assert (fail.status, fail.output) == ("tool_error", "no such row")
    assert (draw.output, draw.parts) == ("drawn", ({"type": "image", "data": "cG5n", "mimeType": "image/png"},))
    assert (flow.status, wrong.status) == ("unknown_tool", "invalid_arguments")


@pytest.mark.requirement("I39-llama-index")
async def test_a_spec_is_named_by_its_class(folder: Path) -> None:
    (price,) = await served(folder, {"spec": "./own.py:Shop"}, ("price", {"item": "tea"}))
    assert price.output == "tea at shop"


WRONG = {
    "./own.py:Shpo": "did you mean 'Shop'?",
    "./own.py:Broken": "./own.py:Broken cannot be made: RuntimeError: no key; correct its arguments",
    "./own.py:made": "needs shop; set arguments: {shop: …}",
    "./own.py:nothing": "it has no tools; correct what the entry names",
    "json:dumps": "needs obj",
    "json:__name__": "gives a str; name a tool spec",
    "llama_index.no_such_module:X": "there is no module 'llama_index.no_such_module'",
}


@pytest.mark.requirement("I39-broken")
@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_entry_is_one_row_that_says_what_is_wrong_and_the_fix(folder: Path, name: str) -> None:
    entry = {"enabled": True, "required": False, "type": "llama_index", "spec": name}
    (folder / "providers.yaml").write_text(str({"store": "memory://", "providers": {"x": entry}}))
    async with open_host(folder / "providers.yaml") as host:
        (record,) = [record for record in host.records() if record.key == "x"]
    assert record.state == "start-failed"
    assert WRONG[name] in record.reason


@pytest.mark.requirement("I39-adapters-apart")
async def test_tools_run_in_a_process_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text(APART)
    settings = {"spec": "./apart.py:Shop", "run": {"process": True}}
    answer, fail = await served(tmp_path, settings, ("process_of", {"text": "hey"}), ("fail", {"text": "no such row"}))
    process, text = answer.output.split()
    assert (int(process) != os.getpid(), text) == (True, "hey")
    assert (fail.status, fail.output) == ("tool_error", "no such row")
