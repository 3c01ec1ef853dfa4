"""`/v1/responses` before a scripted model: plain, streamed, with tools of the host and of the client, stored."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.golden.conftest import DESK, KEYS, Opened
from tests.responses.backend.script import Call, Refused, Turn
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.serving import serving

pytestmark = pytest.mark.anyio

RESPONSES = "/v1/responses"
SHOUT = {"type": "function", "name": "shout", "parameters": {"type": "object", "properties": {}}, "strict": False}


@pytest.fixture
async def backend() -> AsyncIterator[tuple[ScriptedBackend, str]]:
    """A model that says what it is told, and its address."""
    script = ScriptedBackend()
    async with serving(script) as url:
        yield script, url
    assert script.overrun == 0


def settings(url: str) -> str:
    return f"responses: {{backend: {{base_url: '{url}/v1', api_key: backend-key, model: scripted, retries: 0}}}}\n"


@pytest.mark.process
async def test_responses(opened: Opened, backend: tuple[ScriptedBackend, str]) -> None:
    script, url = backend
    async with opened("responses", KEYS + DESK + settings(url)) as wire:
        wire.title("Plain")
        script.plays(Turn(reasoning="Hm.", text="Hello, otter!"))
        first = (
            await wire.post(RESPONSES, "alice-key", {"model": "scripted", "input": "Hi", "metadata": {"a": "b"}})
        ).json()
        wire.title("Stored")
        one = f"{RESPONSES}/{first['id']}"
        await wire.get(one, "alice-key")
        await wire.get(one, "bob-key")
        await wire.get(f"{one}/input_items", "alice-key")
        await wire.get(f"{one}/input_items?order=sideways", "alice-key")
        await wire.post(f"{one}/cancel", "alice-key")
        script.plays(Turn(text="Again"))
        await wire.post(RESPONSES, "alice-key", {"input": "More", "previous_response_id": first["id"], "store": False})
        await wire.ask("DELETE", one, "alice-key")
        await wire.get(one, "alice-key")
        wire.title("Tools of the host")
        script.plays(Turn(calls=(Call("echo", '{"text": "otters"}'),)), Turn(text="It said otters."))
        await wire.post(RESPONSES, "alice-key", {"input": "Echo", "store": False})
        script.plays(Turn(calls=(Call("fails"), Call("nope", id="call_2"))), Turn(text="It failed."))
        await wire.post(RESPONSES, "alice-key", {"input": "Fail", "store": False})
        wire.title("Tools of the client")
        script.plays(Turn(calls=(Call("shout"),)))
        asked = {"input": "Shout", "tools": [SHOUT], "store": False}
        await wire.post(RESPONSES, "alice-key", asked)
        script.plays(Turn(calls=(Call("shout"),)))
        await wire.post(RESPONSES, "alice-key", asked | {"stream": True})
        wire.title("Streams")
        script.plays(Turn(calls=(Call("echo", '{"text": "otters"}'),)), Turn(text="It said otters.", size=8))
        await wire.post(RESPONSES, "alice-key", {"input": "Echo", "store": False, "stream": True})
        wire.title("Errors")
        for body in (
            {},
            {"input": 7},
            {"input": "x", "stream": "yes"},
            {"input": "x", "previous_response_id": "resp_none"},
            {"input": "x", "tools": [{"type": "unknown"}]},
            {"input": "x", "conversation": "conv_1"},
        ):
            script.plays(Turn(text="It was taken."))
            await wire.post(RESPONSES, "alice-key", body | {"store": False})
        for status in (400, 401, 429, 500):
            script.plays_for_ever(Refused(status=status))
            await wire.post(RESPONSES, "alice-key", {"input": "x", "store": False})
            await wire.post(RESPONSES, "alice-key", {"input": "x", "store": False, "stream": True})
        await wire.get(f"{RESPONSES}/resp_none", "alice-key")
        await wire.ask("DELETE", f"{RESPONSES}/resp_none", "alice-key")
        await wire.post(RESPONSES, "alice-key", {"input": "x"}, headers={"x-toolplug-session": "ABCDEFGH"})


async def test_responses_without_a_model(opened: Opened) -> None:
    async with opened("responses_off") as wire:
        await wire.post(RESPONSES, "alice-key", {"input": "x"})
        await wire.get(f"{RESPONSES}/resp_none", "alice-key")
