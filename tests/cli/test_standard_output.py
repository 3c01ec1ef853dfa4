"""Standard output has the answer of a command, or the protocol, and nothing that a package prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.process import PATIENCE_S, TOOLPLUG, toolplug

pytestmark = pytest.mark.requirement("C-10-stdout")

Write = Callable[..., Path]
NOISY = """
import os
import subprocess
import sys

print("printed at import")
os.write(1, b"written at import\\n")
subprocess.run(["echo", "a child at import"])

from toolplug import FunctionProvider, tool


class Noisy(FunctionProvider):
    def __init__(self, *given):
        super().__init__(*given)
        print("printed by the constructor")

    async def start(self, site):
        print("printed at the start", flush=True)
        sys.__stdout__.write("to the first stdout\\n")
        sys.__stdout__.flush()
        subprocess.run(["echo", "a child at the start"])

    @tool
    async def say(self, text: str = "hi") -> str:
        "Say it."
        print("printed by the tool", text)
        os.write(1, b"written by the tool\\n")
        return text

    async def aclose(self):
        print("printed at the end")
"""
FILE = "providers: {noisy: {enabled: true, type: './noisy.py:Noisy'}}"
HELLO = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    '"clientInfo":{"name":"t","version":"1"}}}\n'
    '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"say","arguments":{"text":"☕"}}}\n'
)


PIPES_OF_WINDOWS = {"PYTHONIOENCODING": "cp1252"}
"""Its encoding of pipes, in which most texts cannot be written."""


@pytest.fixture
def noisy(write: Write, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    write(FILE)


@pytest.mark.process
@pytest.mark.usefixtures("noisy")
def test_json_is_one_document_whatever_a_package_prints(tmp_path: Path) -> None:
    done = toolplug("call", "say", "text=☕", "--json", folder=tmp_path, environ=PIPES_OF_WINDOWS)
    assert (done.code, json.loads(done.out)["output"]) == (0, "☕")
    for printed in ("printed at import", "a child at the start", "written by the tool", "printed at the end"):
        assert printed in done.err


@pytest.mark.process
@pytest.mark.usefixtures("noisy")
def test_the_protocol_over_pipes_has_its_own_lines_from_the_first_byte(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toolplug", "serve", "--stdio"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        input=HELLO,
        env={**os.environ, **PIPES_OF_WINDOWS},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["id"], second["id"], second["result"]["content"][0]["text"]) == (1, 2, "☕")
    assert "printed at import" in done.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    "command", [("tools",), ("check",), ("providers",), ("explain", "say"), ("doctor",), ("diff", "providers.yaml")]
)
@pytest.mark.usefixtures("noisy")
def test_no_command_mixes_its_answer_with_what_a_package_prints(run: Run, command: tuple[str, ...]) -> None:
    assert isinstance(run(*command, "--json").json, dict)


@pytest.mark.process
def test_a_reader_that_has_seen_enough_is_told_nothing(tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text(
        "from toolplug import FunctionProvider, tool\n\n\n"
        "class Many(FunctionProvider):\n"
        "    @tool\n    async def long(self) -> str:\n        'Long.'\n        return 'x' * 500_000\n"
    )
    (tmp_path / "providers.yaml").write_text("providers: {many: {enabled: true, type: './many.py:Many'}}")
    with subprocess.Popen(
        [TOOLPLUG, "call", "long"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as calling:
        assert calling.stdout is not None
        assert calling.stderr is not None
        assert calling.stdout.read(1) == "x"
        calling.stdout.close()
        assert calling.stderr.read() == ""
        assert calling.wait(PATIENCE_S) == 1
