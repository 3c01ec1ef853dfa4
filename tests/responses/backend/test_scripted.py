"""The scripted backend says what its script says, as a Chat Completions server would; judged by the `openai` client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from tests.responses.backend.script import Call, CutOff, Ended, Garbled, Gate, Held, Refused, Turn, Usage, calls, says
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.serving import serving

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I6-5-scripted")]

ASK = {"model": "any", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
async def backend() -> AsyncIterator[tuple[ScriptedBackend, AsyncOpenAI]]:
    app = ScriptedBackend()
    async with serving(app) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield app, client


Backend = tuple[ScriptedBackend, AsyncOpenAI]


async def streamed(client: AsyncOpenAI) -> list[ChatCompletionChunk]:
    chunks: list[ChatCompletionChunk] = []
    async for chunk in await client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}):
        chunks.append(chunk)
    return chunks


async def test_a_turn_is_one_completion(backend: Backend) -> None:
    app, client = backend
    app.plays(Turn(text="Hi", reasoning="Hm", calls=(Call("add", '{"a": 1}'),), usage=Usage(7, 3, cached=2)))
    whole = await client.chat.completions.create(**ASK)
    message = whole.choices[0].message
    assert (message.content, message.model_extra) == ("Hi", {"reasoning_content": "Hm"})
    assert [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()] == [
        ("call_1", "add", '{"a": 1}')
    ]
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.total_tokens) == (7, 10)
    assert app.asked[0].messages == ASK["messages"]


async def test_a_stream_has_the_same_in_fragments(backend: Backend) -> None:
    app, client = backend
    app.plays(Turn(text="Hello there", calls=(Call("add", '{"a": 1}', "c1"), Call("sub", "{}", "c2"))))
    chunks = await streamed(client)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Hello there"
    arguments = {0: "", 1: ""}
    for call in [call for delta in deltas for call in delta.tool_calls or ()]:
        assert call.function is not None
        arguments[call.index] += call.function.arguments or ""
    assert arguments == {0: '{"a": 1}', 1: "{}"}
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [15]


async def test_faults_are_what_the_client_calls_them(backend: Backend) -> None:
    app, client = backend
    app.plays(
        Refused(status=429, headers={"Retry-After": "7"}),
        Refused(status=503),
        Garbled(turn=says("Hello"), after=2),
        CutOff(turn=says("Hello"), after=2),
    )
    with pytest.raises(openai.RateLimitError) as limited:
        await client.chat.completions.create(**ASK)
    assert limited.value.response.headers["retry-after"] == "7"
    with pytest.raises(openai.InternalServerError):
        await streamed(client)
    with pytest.raises(ValueError, match="Expecting property name"):
        await streamed(client)
    with pytest.raises(openai.APIConnectionError):
        await streamed(client)


async def test_a_stream_may_end_too_early(backend: Backend) -> None:
    app, client = backend
    app.plays(Ended(turn=says("Hello"), after=2))
    assert [chunk.choices[0].finish_reason for chunk in await streamed(client)] == [None, None]


async def test_a_turn_waits_at_its_gate_and_sees_its_client_leave(backend: Backend) -> None:
    app, client = backend
    gate, other = Gate(), Gate()
    app.plays(Held(turn=says("Hello"), gate=gate, after=2), Held(turn=says("Hello"), gate=other))
    stream = await client.chat.completions.create(**ASK, stream=True)
    await anext(stream)
    await gate.reached.wait()
    gate.go.set()
    assert len([chunk async for chunk in stream]) == 3
    leaving = asyncio.create_task(client.chat.completions.create(**ASK))
    await other.reached.wait()
    leaving.cancel()
    await other.left.wait()


async def test_a_request_past_the_end_of_the_script_is_told_so(backend: Backend) -> None:
    app, client = backend
    app.plays(calls(Call("add")))
    await client.chat.completions.create(**ASK)
    with pytest.raises(openai.BadRequestError, match="the script is at its end"):
        await client.chat.completions.create(**ASK)
    assert app.overrun == 1
    app.plays_for_ever(says("again"))
    for _ in range(3):
        assert (await client.chat.completions.create(**ASK)).choices[0].message.content == "again"
