"""The model behind the pages: a scripted server of Chat Completions, said to be one, in a thread of its own.

It calls the first tool that it is offered, for Ada where that wants a name, and answers with what came of it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread

from tests.responses.backend.script import Answer, Call, calls, says
from tests.responses.backend.scripted import Asked, ScriptedBackend
from uvicorn import Config, Server

ARGUMENTS: Mapping[str, str] = {"hello": '{"name": "Ada"}', "search_tools": '{"query": "open orders"}'}


@contextmanager
def model() -> Iterator[Mapping[str, str]]:
    """Serve it; gives the variables of the environment that name it."""
    backend = ScriptedBackend()
    backend.answers(_answer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(Config(backend, lifespan="off", log_level="critical", access_log=False))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            # LlamaIndex reads another variable than OpenAI's own package.
            yield {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": "none"}
        finally:
            server.should_exit = True
            thread.join()


def _answer(asked: Asked) -> Answer:
    last = asked.messages[-1]
    if last["role"] == "tool":
        return says(f"It says: {last['content']}")
    name = asked.tool_names[0]
    return calls(Call(name, ARGUMENTS.get(name, "{}")))
