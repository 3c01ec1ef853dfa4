"""The providers of these tests: tools that answer, wait, fail and search, and a board that shows what they did."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Annotated
from weakref import WeakValueDictionary

from pydantic import BaseModel, Field

from toolplug import CallContext, FunctionProvider, HostedItem, ToolError, ToolResult, tool

WEB = HostedItem(
    "web_search_call", events=("searching",), fields={"action": {"type": "search"}}, on_include=("action.sources",)
)
FILES = HostedItem(
    "file_search_call", events=("searching",), fields={"queries": [], "results": None}, on_include=("results",)
)
CODE = HostedItem(
    "code_interpreter_call",
    events=("interpreting",),
    fields={"code": "", "container_id": "", "outputs": None},
    on_include=("outputs",),
)
TIDE = HostedItem("acme:tide_call", events=("looking",))

_BOARDS: WeakValueDictionary[str, Board] = WeakValueDictionary()
"""By the name that a configuration gives them; a board lives as long as its test holds it."""


class Board:
    """What the tools did, in order, and the gates that they wait at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[str] = []
        self.reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        _BOARDS[name] = self

    def clear(self) -> None:
        """Wipe it, and close all gates."""
        self.log.clear()
        self.reached.clear()
        self.gates.clear()

    def open(self, gate: str) -> None:
        """Let those go on that wait there."""
        self.gates[gate].set()


class Effort(BaseModel):
    """What the stub `look_up` may carry."""

    depth: int = Field(1, ge=1)


class Config(BaseModel):
    """Which board the tools write on."""

    board: str


class FakeTools(FunctionProvider):
    """Offered to every caller."""

    Config = Config

    async def start(self, site: object) -> None:
        self.board = _BOARDS[self.config.board]

    @tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.board.log.append(f"add {a} {b}")
        return a + b

    @tool
    async def note(self, text: str = "(nothing given)") -> str:
        """Write a note."""
        self.board.log.append(f"note {text}")
        return text

    @tool
    async def wait(self, gate: str) -> str:
        """Wait until the gate is opened."""
        self.board.log.append(f"began {gate}")
        self.board.reached[gate].set()
        try:
            await self.board.gates[gate].wait()
        except asyncio.CancelledError:
            self.board.log.append(f"cancelled {gate}")
            raise
        self.board.log.append(f"ended {gate}")
        return f"went through {gate}"

    @tool
    async def ask_first(self, what: str) -> str:
        """Do what must be approved."""
        self.board.log.append(f"did {what}")
        return f"{what} is done"

    @tool
    async def fail(self, reason: str) -> str:
        """Fail on purpose."""
        raise ToolError(reason)

    @tool
    async def panic(self, secret: str) -> str:
        """Fail by accident."""
        raise RuntimeError(secret)

    @tool
    async def draw(self, what: str) -> ToolResult:
        """Draw a picture."""
        parts = (
            {"type": "image", "data": "UE5H", "mimeType": "image/png"},
            {"type": "audio", "data": "V0FW", "mimeType": "audio/wav"},
            {"type": "resource_link", "name": "more", "uri": "https://otters.example/more"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "otter"}},
        )
        return ToolResult(output=f"Here is {what}." if what else "", parts=parts)

    @tool(stub="look_up", stub_options=Effort)
    async def look_up(self, word: str, context: CallContext) -> str:
        """Look a word up."""
        return f"{word} at depth {context.options.get('depth', 1)}"

    @tool
    async def whoami(self, context: CallContext) -> dict[str, object]:
        """Say who calls."""
        me = context.principal
        told = {"subject": me.subject, "tenant": me.tenant, "agent": context.agent, "session": context.session}
        return told | dict(context.trace_context)


class Search(FunctionProvider):
    """Tools whose calls are items of the known types, and one of a type of its own."""

    Config = Config

    async def start(self, site: object) -> None:
        self.board = _BOARDS[self.config.board]

    @tool(stub="web_search", item=WEB)
    async def web_search(self, query: str) -> ToolResult:
        """Search the web."""
        found = {"url": "https://otters.example/", "title": "All about otters"}
        return ToolResult(
            output=f"{found['title']} <{found['url']}>",
            metadata={
                "action": {
                    "type": "search",
                    "query": query,
                    "queries": [query],
                    "sources": [{"type": "url", "url": found["url"]}],
                },
                "citations": [found],
            },
        )

    @tool(stub="file_search", item=FILES)
    async def file_search(self, query: str) -> ToolResult:
        """Search the files."""
        found = {"file_id": "file_1", "filename": "otters.txt", "score": 0.9, "text": "Otters swim."}
        return ToolResult(
            output="otters.txt: Otters swim.",
            metadata={
                "queries": [query],
                "results": [found],
                "citations": [{"type": "file_citation", "file_id": "file_1", "filename": "otters.txt"}],
            },
        )

    @tool(stub="code_interpreter", item=CODE)
    async def run_code(self, code: str) -> ToolResult:
        """Run code."""
        if "raise" in code:
            raise ToolError("the code raised")
        return ToolResult(
            output="2",
            metadata={
                "code": code,
                "container_id": "box_1",
                "outputs": [{"type": "logs", "logs": "2"}],
                "citations": [
                    {
                        "type": "container_file_citation",
                        "container_id": "box_1",
                        "file_id": "cfile_1",
                        "filename": "plot.png",
                    }
                ],
            },
        )

    @tool(stub="tide", item=TIDE)
    async def tide(self, place: Annotated[str, Field(max_length=20)]) -> str:
        """Say how high the tide is."""
        return f"high at {place}"


class Shelf(FunctionProvider):
    """Offered only to those who name it."""

    @tool(stub="shelf")
    async def fetch_book(self, title: str) -> str:
        """Fetch a book."""
        return f"here is {title}"
