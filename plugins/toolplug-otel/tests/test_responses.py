"""The spans of a response and of a chat completion: one trace, which is the caller's."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.responses.backend.script import Answer, Call, Gate, Held, Refused, Turn, Usage, calls, says
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.serving import serving

from toolplug import CallContext
from toolplug.crashes import CodeOwner
from toolplug.execution.isolated_hooks import FailureCounts, OwnedTracer
from toolplug.http import create_app
from toolplug.parts.responses.answers.tracing import trace_turn
from toolplug.parts.responses.backend import Delta
from toolplug.parts.responses.backend import Usage as TokenUsage
from toolplug_otel.tracer import ToolTracer
from toolplug_otel.turn import start_response

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.requirement("I32-turn-spans"),
]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
ADD = Call("add", '{"a": 1, "b": 2}', "call_add")
TURN = [
    Turn(text="4711", calls=(ADD,), usage=Usage(10, 5, cached=2)),
    Turn(text="4711", usage=Usage(20, 7, reasoning=3)),
]
DOORS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "4711"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "4711"}]},
}


def instrumented(app: ASGIApp, provider: TracerProvider) -> ASGIApp:
    """The application as the instrumentation of a web framework serves it: each request has a span."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        with provider.get_tracer("server").start_as_current_span("POST"):
            await app(scope, receive, send)

    return serve


@asynccontextmanager
async def served(
    recorder: Any, *says: Answer, instrument: bool = False
) -> AsyncIterator[tuple[Any, httpx2.AsyncClient]]:
    """A traced host behind HTTP, with a scripted model."""
    backend = ScriptedBackend()
    backend.plays(*says)
    async with serving(backend) as url:
        settings = {"backend": {"base_url": f"{url}/v1", "model": "small", "retries": 0}}
        async with recorder.open(responses=settings) as traced:
            app = create_app(traced.host)
            if instrument:
                app = instrumented(app, traced.tracer_provider)
            async with serving(app) as host, httpx2.AsyncClient(base_url=host, timeout=60) as client:
                yield traced, client


def named(spans: Any) -> dict[str, list[Any]]:
    """The spans by their names, in the order of their beginnings."""
    found: dict[str, list[Any]] = {}
    for span in sorted(spans, key=lambda span: span.start_time):
        found.setdefault(span.name, []).append(span)
    return found


async def ended(traced: Any, count: int) -> Any:
    """The spans that have ended, once there are so many: the server's own ends after its answer is read."""
    while len(traced.exporter.get_finished_spans()) < count:
        await anyio.lowlevel.checkpoint()
    return traced.spans()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("door", DOORS)
async def test_a_turn_is_one_trace(recorder: Any, door: str, stream: bool) -> None:
    async with served(recorder, *TURN, instrument=True) as (traced, client):
        answer = await client.post(door, json={"model": "large", "stream": stream, **DOORS[door]}, headers=TRACED)
        assert answer.status_code == 200, answer.text
        spans = named(await ended(traced, 5))
    (turn,), questions, (call,) = spans["invoke_agent"], spans["chat large"], spans["execute_tool add"]
    assert {span.context.trace_id for each in spans.values() for span in each} == {turn.context.trace_id}
    assert turn.parent.span_id == spans["POST"][0].context.span_id
    assert {span.parent.span_id for span in (*questions, call)} == {turn.context.span_id}
    assert [span.kind for span in (turn, *questions)] == [SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.CLIENT]
    asked = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "large"}
    assert [dict(span.attributes) for span in questions] == [
        {
            "gen_ai.operation.name": "chat",
            **asked,
            "gen_ai.response.finish_reasons": ("tool_calls",),
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 5,
            "gen_ai.usage.cache_read.input_tokens": 2,
        },
        {
            "gen_ai.operation.name": "chat",
            **asked,
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": 20,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.reasoning.output_tokens": 3,
        },
    ]
    whole = dict(turn.attributes)
    assert whole.pop("gen_ai.conversation.id")
    assert whole == {
        "gen_ai.operation.name": "invoke_agent",
        **asked,
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 3,
    }
    assert not any("4711" in span.to_json() for each in spans.values() for span in each)


async def test_the_trace_is_that_of_the_caller(recorder: Any) -> None:
    async with served(recorder, *TURN) as (traced, client):
        await client.post("/v1/responses", json={"input": "4711"}, headers=TRACED)
        spans = named(traced.spans())
    assert {f"{span.context.trace_id:032x}" for each in spans.values() for span in each} == {TRACE}
    (turn,) = spans["invoke_agent"]
    assert f"{turn.parent.span_id:016x}" == PARENT
    assert spans["execute_tool add"][0].parent.span_id == turn.context.span_id


async def test_a_tool_gets_the_context_of_its_own_call(recorder: Any) -> None:
    async with served(recorder, calls(Call("traced", "{}")), says("Bye")) as (traced, client):
        answer = (await client.post("/v1/responses", json={"input": "Hi"}, headers=TRACED)).json()
        (call,) = named(traced.spans())["execute_tool traced"]
    (told,) = [item["output"] for item in answer["output"] if item["type"] == "mcp_call"]
    assert f"{call.context.span_id:016x}" in told


async def test_a_response_that_fails_has_the_code_of_its_error(recorder: Any) -> None:
    async with served(recorder, calls(ADD), Refused(status=400)) as (traced, client):
        assert (await client.post("/v1/responses", json={"input": "Hi"})).json()["status"] == "failed"
        spans = named(traced.spans())
    failed = (spans["invoke_agent"][0], spans["chat small"][1])
    assert [span.attributes["error.type"] for span in failed] == ["backend_refused", "backend_refused"]
    assert {(span.status.status_code, span.status.description, span.events) for span in failed} == {
        (StatusCode.ERROR, None, ())
    }
    assert "error.type" not in spans["chat small"][0].attributes


async def test_the_spans_of_a_client_that_hangs_up_end(recorder: Any) -> None:
    gate = Gate()
    async with served(recorder, Held(turn=says("Hello"), gate=gate, after=2)) as (traced, client):
        async with client.stream("POST", "/v1/responses", json={"input": "Hi", "stream": True}) as answer:
            async for line in answer.aiter_lines():
                if "output_text.delta" in line:
                    break
        await gate.left.wait()
        while len(traced.exporter.get_finished_spans()) < 2:
            await anyio.lowlevel.checkpoint()
        spans = named(traced.spans())
    ended = [spans["invoke_agent"][0], spans["chat small"][0]]
    assert [span.attributes["error.type"] for span in ended] == ["cancelled", "cancelled"]


async def test_a_tracer_that_raises_changes_no_answer(
    recorder: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*given: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(ToolTracer, "start_turn", fails)
    async with served(recorder, *TURN) as (traced, client):
        assert (await client.post("/v1/responses", json={"input": "Hi"})).json()["status"] == "completed"
        assert list(named(traced.spans())) == ["execute_tool add"]
    lost = [record for record in caplog.records if "a tracer of responses" in record.getMessage()]
    assert [record.levelno for record in lost] == [logging.ERROR]
    assert "its span is lost" in lost[0].getMessage()


async def test_a_question_says_its_numbers_and_a_response_its_agent() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    running: dict[str, Context] = {}
    context = CallContext(agent="clerk")._replace(conversation="c1")
    turn = start_response(provider.get_tracer("t"), "large\x1b[2J", context, running)
    assert list(running) == [turn.headers["traceparent"]]
    question = {"temperature": 0.5, "top_p": True, "seed": 7, "max_tokens": 9, "stop": "x"}
    turn.start_chat(question).end(None, "stop\n", "cancelled")
    turn.end(None, None)
    assert running == {}, "nothing is kept of a response that has ended"
    asked, whole = exporter.get_finished_spans()
    assert (asked.name, whole.name) == ("chat large\N{REPLACEMENT CHARACTER}[2J", "invoke_agent clerk")
    found = dict(asked.attributes or {})
    assert {name: value for name, value in found.items() if ".request." in name} == {
        "gen_ai.request.model": "large\N{REPLACEMENT CHARACTER}[2J",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.seed": 7,
        "gen_ai.request.max_tokens": 9,
    }
    assert found["gen_ai.response.finish_reasons"] == ("stop\N{REPLACEMENT CHARACTER}",)
    assert (found["error.type"], asked.status.status_code) == ("cancelled", StatusCode.ERROR)
    told = dict(whole.attributes or {})
    assert (told["gen_ai.agent.name"], told["gen_ai.conversation.id"]) == ("clerk", "c1")
    assert whole.status.status_code is StatusCode.UNSET


async def test_a_turn_ends_with_what_is_known_of_its_questions() -> None:
    """The wrapper of the model's server by itself: of failures and of those who leave."""
    ended: list[tuple[Any, ...]] = []

    class Spans:
        headers: Mapping[str, str] = {}

        def start_turn(self, model: str, context: CallContext) -> Spans:
            ended.append((model,))
            return self

        def start_chat(self, question: object) -> Spans:
            return self

        def end(self, usage: Any, *why: Any) -> None:
            ended.append((usage, *why))

    class Model:
        default_model = "small"

        async def ask(self, question: object, *, stream: bool) -> AsyncIterator[Delta]:
            yield Delta(usage=TokenUsage(1, 2))
            yield Delta(finish="stop")

    tracers: Any = [OwnedTracer(Spans(), CodeOwner("p"), FailureCounts())]
    given: Any = Model()

    async def run_two() -> None:
        with trace_turn(given, tracers, CallContext(), None) as (backend, _):
            async with aclosing(backend.ask({}, stream=True)) as deltas:
                async for _ in deltas:
                    pass
            async with aclosing(backend.ask({}, stream=True)) as deltas:
                async for _ in deltas:
                    break
            raise KeyError

    with pytest.raises(KeyError):
        await run_two()
    once = TokenUsage(1, 2)
    assert ended == [
        ("small",),
        (once, "stop", None),
        (once, None, "cancelled"),
        (once.plus(once), "KeyError"),
    ]
