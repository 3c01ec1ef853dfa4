"""The example hosts run as they stand, served over HTTP, with a scripted backend as their model."""

from __future__ import annotations

import runpy
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI
from tests.requirement_table import ROOT
from tests.responses.backend.script import Call, Refused, Turn, calls, says
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.harness import PATIENCE_S
from tests.responses.judges.judged import Judged
from tests.responses.serving import serving

pytestmark = pytest.mark.anyio

OWN_LOOPS = ["fastapi_loop", "starlette_loop"]
GREET = Call("hello", '{"name": "Ada"}')


@pytest.fixture
async def backend(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedBackend]:
    app = ScriptedBackend()
    async with serving(app) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "backend-key")
        monkeypatch.setenv("MODEL", "scripted")
        yield app
    assert app.overrun == 0


Served = Callable[[str], Any]


@pytest.fixture
async def served(backend: ScriptedBackend) -> AsyncIterator[Served]:
    """Serves an example, with its lifespan; gives its address."""
    async with AsyncExitStack() as opened:

        async def serve(name: str) -> str:
            app = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["app"]
            await opened.enter_async_context(app.router.lifespan_context(app))
            return await opened.enter_async_context(serving(app))

        yield serve


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as opened:
        yield opened


@pytest.mark.process
@pytest.mark.requirement("I6-4-own-loop", "SC-001")
async def test_a_host_on_fastapi_writes_its_own_loop(
    backend: ScriptedBackend, served: Served, client: httpx2.AsyncClient
) -> None:
    backend.plays(calls(GREET, Call("hello", "{}", "call_2")), says("They are greeted."))
    answer = await client.post(f"{await served('fastapi_loop')}/ask", json={"question": "Greet Ada and the world."})
    assert answer.json() == {"answer": "They are greeted."}
    assert backend.asked[0].tool_names == ["hello"]
    assert [message.get("content") for message in backend.asked[1].messages[2:]] == ["Hello, Ada!", "Hello, world!"]


@pytest.mark.process
@pytest.mark.requirement("I6-4-own-loop")
async def test_its_loop_ends(backend: ScriptedBackend, served: Served, client: httpx2.AsyncClient) -> None:
    backend.plays_for_ever(calls(Call("nothing")))
    answer = await client.post(f"{await served('fastapi_loop')}/ask", json={"question": "Go on."})
    assert (answer.status_code, len(backend.asked)) == (502, 8)
    assert backend.asked[1].messages[-1]["content"] == 'no builtin provider handles tool "nothing"'


@pytest.mark.process
@pytest.mark.requirement("I6-4-own-loop", "FR-007a")
async def test_a_host_on_starlette_expands_stubs_and_streams(
    backend: ScriptedBackend, served: Served, client: httpx2.AsyncClient
) -> None:
    backend.plays(
        Turn(text="Rolling. ", calls=(Call("roll_dice", '{"sides": 1}'), Call("roll_dice", '{"sides": 0}', "call_2"))),
        says("It is 1."),
    )
    body = {"model": "scripted", "messages": [{"role": "user", "content": "Roll!"}], "tools": [{"type": "dice"}]}
    answer = await client.post(f"{await served('starlette_loop')}/chat", json=body)
    assert answer.text == "Rolling. It is 1."
    assert backend.asked[0].tool_names == ["roll_dice"]
    assert [message.get("content") for message in backend.asked[1].messages[2:]] == [
        "1",
        'internal error: builtin tool "roll_dice" panicked',
    ]


@pytest.mark.requirement("I6-4-own-loop")
@pytest.mark.parametrize("name", OWN_LOOPS)
def test_a_loop_of_ones_own_is_short_and_imports_the_registry_alone(name: str) -> None:
    source = (ROOT / "examples" / f"{name}.py").read_text("utf-8")
    (imported,) = [line for line in source.splitlines() if line.startswith(("from toolplug ", "from toolplug."))]
    assert imported.startswith("from toolplug import Function")
    assert "open_host" not in source
    assert len(source.splitlines()) < 60


@pytest.mark.process
@pytest.mark.requirement("I6-4-shipped", "SC-001")
async def test_a_host_serves_the_shipped_endpoint_beside_its_own_routes(
    backend: ScriptedBackend, served: Served, client: httpx2.AsyncClient
) -> None:
    backend.plays(calls(GREET), says("Hello, Ada!"), Refused(status=401, message="wrong key"))
    url = await served("responses_host")
    assert (await client.get(f"{url}/somewhere")).json() == {"nothing at": "somewhere"}
    async with (
        httpx2.AsyncClient(transport=Judged()) as http,
        AsyncOpenAI(base_url=f"{url}/ai/v1", max_retries=0, http_client=http) as openai,
    ):
        answer = await openai.responses.create(model="scripted", input="Greet Ada.")
    assert answer.output_text == "Hello, Ada!"
    assert [item.type for item in answer.output] == ["mcp_call", "message"]
