"""The model behind the hosts: it does what the last message of the user says, and repeats what tools have answered.

`call NAME {arguments}`, a line for each call; `wait` never ends; `fail` is refused; anything else is repeated.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from threading import Thread
from typing import Any

from tests.responses.backend.script import Answer, Call, Gate, Held, Refused, calls, says
from tests.responses.backend.scripted import Asked, ScriptedBackend
from uvicorn import Config, Server

MODEL = "obedient"


@contextmanager
def model() -> Iterator[str]:
    """Serve it in a thread; gives its base URL."""
    backend = ScriptedBackend()
    backend.answers(_obey)
    backend.models = b'{"object": "list", "data": [{"id": "obedient", "object": "model", "owned_by": "tests"}]}'
    with served(backend) as url:
        yield url


@contextmanager
def served(backend: ScriptedBackend) -> Iterator[str]:
    """Serve a model in a thread; gives its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(Config(backend, lifespan="off", log_level="critical", access_log=False))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()


def _obey(asked: Asked) -> Answer:
    answers = [*takewhile(lambda message: message["role"] == "tool", reversed(asked.messages))]
    if answers:
        return says("told: " + ", ".join(_text(message) for message in reversed(answers)))
    said = _text(asked.messages[-1])
    if said == "wait":
        return Held(turn=says("waited"), gate=Gate())
    if said == "fail":
        return Refused(status=500)
    if said.startswith("call "):
        lines = [line.split(" ", 2) for line in said.splitlines()]
        return calls(*(Call(name, text, f"call_{number}") for number, (_, name, text) in enumerate(lines)))
    return says(f"you said {said}")


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
