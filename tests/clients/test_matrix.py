"""The client matrix: clients of the Responses API and of chat completions, each in an environment of its own.

Each program in `programs` reads a job a line and prints the texts that its client ended with. What the model was told
is read at the scripted server behind the host.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from tests.clients.environments import chosen_clients, command_of
from tests.responses.backend.script import Answer, Call, calls, says
from tests.responses.backend.scripted import Asked, ScriptedBackend
from tests.responses.harness import Harness
from tests.responses.serving import serving

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.leaves("task", "thread", "process"),
    pytest.mark.requirement("C-9-client-matrix", "I32-healing"),
]

NEWEST_MODEL = "gpt-6.2-sol"
"""The newest model that the newest `openai` names: clients choose the fields of a request by the name of the model."""

MODELS = {"codex": "gpt-5.1-codex"}
"""For other clients than the rest: to the newest models Codex sends functions as programs, in a tool of its own."""

ADD = Call("add", '{"a": 1, "b": 2}', "call_add")
CITY = Call("city", "{}", "call_city")
AGAIN = Call("city", "{}", "call_again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A conversation: what the client is given, what the model says, and what it must have been told at the end.

    `told` has a line for each message after the first: the text of it, `calls` of the model, or an answer.
    """

    name: str
    says: Sequence[Answer]
    told: Sequence[str]
    texts: Sequence[str]
    prompts: Sequence[str] = ("Go",)
    stream: bool = False
    own: bool = False

    def job(self, url: str, client: str) -> dict[str, Any]:
        """The line for a client's program."""
        asked = {"prompts": list(self.prompts), "stream": self.stream, "own": self.own}
        return {"url": url, "key": "alice-key", "model": MODELS.get(client, NEWEST_MODEL), **asked}


HELLO = "user: Go"

_BOTH = {
    "says": [calls(ADD, CITY), says("3 in Cork.")],
    "told": [HELLO, "calls city add", "tool: Cork", "tool: 3"],
    "texts": ["3 in Cork."],
    "own": True,
}
_HOSTED = {"says": [calls(ADD), says("3")], "told": [HELLO, "calls add", "tool: 3"], "texts": ["3"]}
_PLAIN = {"says": [says("Hello, otter!")], "told": [HELLO], "texts": ["Hello, otter!"]}
SCENARIOS = (
    Scenario(name="plain", **_PLAIN),
    Scenario(name="streamed", **_PLAIN, stream=True),
    Scenario(
        name="own functions",
        says=[calls(CITY), calls(AGAIN), says("Cork.")],
        told=[HELLO, "calls city", "tool: Cork", "calls city", "tool: Cork"],
        texts=["Cork."],
        own=True,
    ),
    Scenario(name="hosted tool", **_HOSTED),
    Scenario(name="hosted tool, streamed", **_HOSTED, stream=True),
    Scenario(name="both in one turn", **_BOTH),
    Scenario(name="both in one turn, streamed", **_BOTH, stream=True),
    Scenario(
        name="history without ids",
        says=[calls(ADD), calls(CITY), says("3 in Cork."), says("Bye.")],
        told=[HELLO, "calls add", "tool: 3", "calls city", "tool: Cork", "assistant: 3 in Cork.", "user: Bye"],
        texts=["3 in Cork.", "Bye."],
        prompts=("Go", "Bye"),
        own=True,
    ),
)
FORGETS = ("pydantic_ai", "haystack", "agno", "ai_sdk_openai.mjs", "ai_sdk_open_responses.mjs")
"""Clients that send no hosted call back; the host heals their histories."""


@dataclass(frozen=True, slots=True)
class Program:
    """A client's program, which does one job after another."""

    process: asyncio.subprocess.Process

    async def do(self, job: dict[str, Any]) -> dict[str, Any]:
        """Do one job."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        await self.process.stdin.drain()
        line = await self.process.stdout.readline()
        assert line, "the program has ended"
        return json.loads(line)


@dataclass(frozen=True, slots=True)
class Client:
    """A client of the matrix."""

    name: str
    program: Program


@asynccontextmanager
async def running(client: str) -> AsyncIterator[Program]:
    """A client's program, until the block ends."""
    command, place = await asyncio.to_thread(command_of, client)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=place, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=1024 * 1024
    )
    try:
        yield Program(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def told(backend: ScriptedBackend) -> list[str]:
    """What the model was told in the last request, a line for each message.

    Instructions of the client, and what Codex says of its environment as `<environment_context>`, are left out. What an
    MCP server has answered Continue, it sends as the JSON of its content.
    """
    lines: list[str] = []
    for message in backend.asked[-1].messages:
        made = [call["function"]["name"] for call in message.get("tool_calls", ())]
        content = message["content"]
        text = content if isinstance(content, str) else "".join(part["text"] for part in content or ())
        text = "Cork" if text == '[{"type":"text","text":"Cork"}]' else text
        if message["role"] != "system" and not text.startswith("<"):
            lines.append(" ".join(["calls", *made]) if made else f"{message['role']}: {text}")
    return lines


@pytest.fixture(scope="module", params=chosen_clients())
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """Each client in turn, running."""
    async with running(request.param) as program:
        yield Client(request.param, program)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_a_client_has_a_conversation(shared_stage: Harness, client: Client, scenario: Scenario) -> None:
    shared_stage.backend.plays(*scenario.says)
    assert await client.program.do(scenario.job(f"{shared_stage.url}/v1", client.name)) == {
        "texts": list(scenario.texts)
    }
    assert told(shared_stage.backend) == list(scenario.told)
    assert shared_stage.board.log == ["add 1 2"] * sum(ADD in getattr(turn, "calls", ()) for turn in scenario.says)


def do_what_is_not_done(asked: Asked) -> Answer:
    """Call what the messages do not show as done."""
    done = [call["function"]["name"] for message in asked.messages for call in message.get("tool_calls", ())]
    left = [call for call in (ADD, CITY) if call.name not in done]
    return calls(*left) if left else says("3 in Cork.")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_client_does_not_send_back_is_not_done_again(
    shared_stage: Harness, client: Client, stream: bool
) -> None:
    shared_stage.backend.answers(do_what_is_not_done)
    job = Scenario(name="", says=[], told=[], texts=[], stream=stream, own=True)
    assert await client.program.do(job.job(f"{shared_stage.url}/v1", client.name)) == {"texts": ["3 in Cork."]}
    assert (len(shared_stage.backend.asked), shared_stage.board.log) == (2, ["add 1 2"])


class CannedApi:
    """A Responses API that is not ours: it says what it is given, and keeps the items that it was sent."""

    def __init__(self, *outputs: list[dict[str, Any]]) -> None:
        self.sent: list[Any] = []
        self._outputs = list(outputs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = await Request(scope, receive).json()
        self.sent.append(asked["input"])
        whole = {
            "id": f"resp_{len(self.sent)}",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": "m",
            "output": self._outputs.pop(0),
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        }
        await JSONResponse(whole)(scope, receive, send)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FORGETS)
async def test_it_is_the_client_that_forgets(name: str) -> None:
    called = {"id": "mcp_1", "type": "mcp_call", "status": "completed", "server_label": "s", "name": "add"}
    called |= {"arguments": "{}", "output": "3"}
    text = {"type": "output_text", "text": "3", "annotations": []}
    said = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [text]}
    canned = CannedApi([called, said], [said])
    async with serving(canned) as url, running(name) as program:
        job = {"url": url, "key": "k", "model": NEWEST_MODEL, "prompts": ["Go", "Bye"], "stream": False, "own": False}
        assert await program.do(job) == {"texts": ["3", "3"]}
    assert [item.get("role") for item in canned.sent[1]] == ["user", "assistant", "user"]
