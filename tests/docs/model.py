"""The model behind the pages: a scripted server of Chat Completions and of Messages, in a thread of its own.

It calls the tool that the question has as a word, else the first that it is offered, for Ada where that wants a name,
and answers with what came of it.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from tests.responses.backend.script import Answer, Call, calls, says
from tests.responses.backend.scripted import Asked, ScriptedBackend
from uvicorn import Config, Server

ARGUMENTS: Mapping[str, str] = {"hello": '{"name": "Ada"}', "search_tools": '{"query": "open orders"}'}


@contextmanager
def model() -> Iterator[Mapping[str, str]]:
    """Serve it; gives the variables of the environment that name it."""
    backend = ScriptedBackend()
    backend.answers(_answer)
    messages = Route("/v1/messages", _answer_messages, methods=["POST"])
    served = Starlette(routes=[messages, Mount("/", backend)])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(Config(served, lifespan="off", log_level="critical", access_log=False))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            root = f"http://127.0.0.1:{listening.getsockname()[1]}"
            # LlamaIndex reads another variable than OpenAI's own package.
            openai = {"OPENAI_BASE_URL": f"{root}/v1", "OPENAI_API_BASE": f"{root}/v1", "OPENAI_API_KEY": "none"}
            yield {**openai, "ANTHROPIC_BASE_URL": root, "ANTHROPIC_API_KEY": "none"}
        finally:
            server.should_exit = True
            thread.join()


def _answer(asked: Asked) -> Answer:
    last = asked.messages[-1]
    if last["role"] == "tool":
        return says(f"It says: {last['content']}")
    name = _choose(asked.tool_names, _text_of(last["content"]))
    return calls(Call(name, ARGUMENTS.get(name.rpartition("__")[2], "{}")))


def _choose(tools: Sequence[str], question: str) -> str:
    """The tool that the question has as a word, by its last name; best one of a server, as programs have words too."""
    words = re.findall(r"\w+", question)
    found = [name for name in tools if name.rpartition("__")[2] in words]
    return max(found, key=lambda name: name.count("__"), default=tools[0])


def _text_of(content: Any) -> str:
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


async def _answer_messages(request: Request) -> Response:
    """Answer one request of the Messages API, as a stream."""
    asked = await request.json()
    # Newer versions of Claude Code end with a message of the system.
    content = next(message["content"] for message in reversed(asked["messages"]) if message["role"] == "user")
    done = [part for part in content if isinstance(part, dict) and part["type"] == "tool_result"]
    if done:
        answer = f"It says: {_text_of(done[0]['content'])}"
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": answer}
    else:
        name = _choose([tool["name"] for tool in asked["tools"]], _text_of(content))
        arguments = ARGUMENTS.get(name.rpartition("__")[2], "{}")
        block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": arguments}
    ended = {"stop_reason": "end_turn" if done else "tool_use", "stop_sequence": None}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return StreamingResponse(iter(lines), media_type="text/event-stream")
