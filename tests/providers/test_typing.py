"""What a strict type checker says of an author's file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

AUTHORS_FILE = """
from typing import Annotated

from prometheus_client import Counter
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.errors import ToolError
from toolplug.providers.authoring import route, tool
from toolplug.hookspecs import hookimpl
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.site import ProviderContext


class Notes(FunctionProvider):
    class Config(BaseModel):
        limit: int = 100

    config: Config

    async def start(self, site: ProviderContext) -> None:
        self.notes: dict[str, list[str]] = {}
        self.written = Counter("notes_written", "Notes written", registry=None)
        self.log.info("ready in %s", site.state_dir)

    def collectors(self) -> list[Collector]:
        return [self.written]

    @tool
    async def add_note(self, text: Annotated[str, Field(max_length=500)], context: CallContext) -> int:
        mine = self.notes.setdefault(context.principal.tenant, [])
        if len(mine) >= self.config.limit:
            raise ToolError("full")
        mine.append(text)
        return len(mine)

    @tool(read_only=True, stub="notes", stub_options=Config, timeout="5s")
    def find_notes(self, query: str) -> list[str]:
        return [query]

    @route("GET", "/v1/notes")
    async def list_notes(self, request: Request) -> JSONResponse:
        return JSONResponse([])

    @hookimpl
    async def before_call(self, call: ToolCall, context: CallContext) -> str | None:
        return None

    def after_call(self, call: ToolCall, context: CallContext, result: ToolResult) -> None: ...


async def use() -> None:
    notes = Notes(Notes.Config(limit=3), key="notes")
    reveal_type(notes.config.limit)
    reveal_type(await notes.add_note("a", CallContext()))
    reveal_type(notes.find_notes("a"))
    undeclared = FunctionProvider().config.anything
    print(undeclared)
"""


def test_an_authors_file_is_clean_and_keeps_the_types_of_its_methods(tmp_path: Path) -> None:
    tmp_path.joinpath("authors.py").write_text(AUTHORS_FILE)
    project = {"typeCheckingMode": "strict", "pythonVersion": "3.11"}
    tmp_path.joinpath("pyrightconfig.json").write_text(json.dumps(project))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    told = [item["message"] for item in json.loads(done.stdout)["generalDiagnostics"]]
    assert told == [
        'Type of "notes.config.limit" is "int"',
        'Type of "await notes.add_note("a", CallContext())" is "int"',
        'Type of "notes.find_notes("a")" is "list[str]"',
    ]
