"""The inputs that people have, and a host with the tool `note` behind a model's server that replays them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import httpx2
import pytest
from tests.cli.process import PATIENCE_S, Serving, serving, toolplug
from tests.http.served import serving_apart
from tests.responses.backend.script import Raw, says
from tests.responses.backend.scripted import ScriptedBackend

INPUTS = Path(__file__).parent / "inputs"

NOTES = """
import sys

from toolplug import FunctionProvider, tool


class Notes(FunctionProvider):
    @tool
    async def note(self, text: str = "(nothing given)") -> str:
        "Write a note."
        print(f"RAN note({text!r})", file=sys.stderr, flush=True)
        return text
"""
CONFIGURATION = """
store: memory://
providers:
  notes: {{enabled: true, type: "./notes_tool.py:Notes"}}
responses: {{backend: {{base_url: {backend}/v1, api_key: none, model: m, retries: 0}}}}
"""


def copy_inputs(name: str, folder: Path) -> Path:
    """One folder of the inputs, where commands may write next to them."""
    return copytree(INPUTS / name, folder / name)


def write_notes(folder: Path, backend: str = "http://127.0.0.1:1") -> None:
    """Write a configuration with the tool `note`, which says on stderr what it was called with."""
    folder.joinpath("notes_tool.py").write_text(NOTES, "utf-8")
    folder.joinpath("providers.yaml").write_text(CONFIGURATION.format(backend=backend), "utf-8")


def answers_over_pipes(folder: Path, messages: str) -> list[dict[str, Any]]:
    """What `toolplug serve --stdio` answers to these lines, whose end it meets while it still works on them."""
    done = toolplug("serve", "--stdio", folder=folder, stdin=messages)
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


class NotesHost:
    """A running host and its model's server; all tests share both."""

    def __init__(self, service: Serving, backend: ScriptedBackend) -> None:
        self.url = service.url
        self.backend = backend
        self._service = service
        self._lines_seen = 0
        self._marks = 0

    def replay(self, answer: bytes) -> None:
        """Answer the next request with these bytes, and those after it with a text."""
        self.backend.clear()
        self.backend.plays(Raw(piece=answer), says("done"), says("again"))

    def create(self, *, stream: bool, **body: object) -> httpx2.Response:
        """`POST /v1/responses`."""
        whole = {"model": "m", "input": "hello", "stream": stream, **body}
        return httpx2.post(f"{self.url}/v1/responses", json=whole, timeout=PATIENCE_S)

    def response(self, *, stream: bool, **body: object) -> dict[str, Any]:
        """The response object at the end of an answer."""
        answer = self.create(stream=stream, **body).raise_for_status()
        if not stream:
            return answer.json()
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
        return json.loads(events[-1])["response"]

    def new_lines(self) -> list[str]:
        """The lines that it wrote on stderr since the last time; a call of its own marks the end."""
        self._marks += 1
        mark = f"RAN note('mark {self._marks}')"
        self._service.call("note", text=f"mark {self._marks}").raise_for_status()
        self._service.wait_for(mark)
        lines = list(self._service.lines)
        end = lines.index(mark)
        new, self._lines_seen = lines[self._lines_seen : end], end + 1
        return new

    def notes(self) -> list[str]:
        """The texts that `note` was called with since the last time, sorted: calls of one turn run side by side."""
        prefix = "RAN note("
        return sorted(line.removeprefix(prefix)[1:-2] for line in self.new_lines() if line.startswith(prefix))


@pytest.fixture(scope="session")
def notes_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NotesHost]:
    folder, backend = tmp_path_factory.mktemp("notes"), ScriptedBackend()
    with serving_apart(backend) as port:
        write_notes(folder, f"http://127.0.0.1:{port}")
        with serving(folder=folder) as service:
            yield NotesHost(service, backend)
