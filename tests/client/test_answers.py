"""What becomes of a call: the function runs once under its rules, and its end is one answer."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.client.fixtures import QUICK, Row, application, entered, waited, waiting
from tests.client.scripted_host import CODE, WAIT_S, ScriptedHost
from tests.http.jumping_loop import Jump, on_jumping_loop

from toolplug import CallContext, ToolError

pytestmark = [pytest.mark.anyio, pytest.mark.process]


async def test_a_call_reaches_the_function_with_values_of_its_own_types(host: ScriptedHost) -> None:
    app = application(host)

    @app.tool
    async def add_rows(rows: list[Row]) -> Row:
        return rows[0]

    async with entered(app, host) as stream:
        await stream.request("r1", "add_rows", rows=[{"name": "otter"}])
        assert await host.result() == {"id": "r1", "result": {"name": "otter", "size": 1}}


async def test_a_function_reads_the_trace_context_of_its_call(host: ScriptedHost) -> None:
    app = application(host)
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1"}

    @app.tool
    async def traced(context: CallContext) -> dict[str, str]:
        return dict(context.trace_context)

    async with entered(app, host) as stream:
        await stream.request("r1", "traced", trace_context=trace)
        assert await host.result() == {"id": "r1", "result": trace}
        await stream.request("r2", "traced", trace_context={"traceparent": "no", "tracestate": "a=1"})
        assert await host.result() == {"id": "r2", "result": {}}
        await stream.request("r3", "traced")
        assert await host.result() == {"id": "r3", "result": {}}


@pytest.mark.parametrize("value", [0, False, "", None, [], {}])
async def test_a_result_that_is_falsy_is_a_result(host: ScriptedHost, value: object) -> None:
    app = application(host)

    @app.tool
    async def nothing() -> object:
        return value

    async with entered(app, host) as stream:
        await stream.request("r1", "nothing")
        assert await host.result() == {"id": "r1", "result": value}


async def test_wrong_arguments_never_reach_the_function(host: ScriptedHost) -> None:
    app, called = application(host), asyncio.Event()

    @app.tool
    async def count(by: int) -> None:
        called.set()

    async with entered(app, host) as stream:
        await stream.request("r1", "count", by="secret")
        answer = await host.result()
    assert answer["error"].startswith('invalid arguments for tool "count"\n/by: ')
    assert "secret" not in answer["error"]
    assert not called.is_set()


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (ToolError("no such row"), "no such row"),
        (ToolError("half a \ud800"), "half a ?"),
        (ValueError("secret"), 'internal error: tool "fail" failed'),
        (SystemExit(3), 'internal error: tool "fail" failed'),
        (KeyboardInterrupt(), 'internal error: tool "fail" failed'),
        (GeneratorExit(), 'internal error: tool "fail" failed'),
        (BaseException("secret"), 'internal error: tool "fail" failed'),
        (StopIteration(), 'internal error: tool "fail" failed'),
        (asyncio.CancelledError(), 'internal error: tool "fail" failed'),
    ],
)
@pytest.mark.parametrize("blocking", [False, True])
async def test_whatever_a_function_raises_is_one_answer_and_the_next_call_is_served(
    host: ScriptedHost, caplog: pytest.LogCaptureFixture, raised: BaseException, text: str, blocking: bool
) -> None:
    app = application(host)

    if blocking:

        @app.tool(name="fail")
        def fail_in_a_thread() -> None:
            raise raised

    else:

        @app.tool
        async def fail() -> None:
            raise raised

    async with entered(app, host) as stream:
        for request_id in ("r1", "r2"):
            await stream.request(request_id, "fail")
            assert await host.result() == {"id": request_id, "error": text}
    logged = [record.levelno for record in caplog.records if record.message == "tool 'fail' raised"]
    assert logged == ([] if isinstance(raised, ToolError) else [logging.ERROR] * 2)


async def test_a_function_that_cancels_itself_is_answered(host: ScriptedHost) -> None:
    app = application(host)

    @app.tool
    async def give_up() -> None:
        cast("asyncio.Task[object]", asyncio.current_task()).cancel()
        await asyncio.sleep(0)

    async with entered(app, host) as stream:
        await stream.request("r1", "give_up")
        assert await host.result() == {"id": "r1", "error": 'internal error: tool "give_up" failed'}


@pytest.mark.parametrize("value", [b"bytes", float("nan"), (item for item in ()), object()])
async def test_a_result_that_is_not_json_is_an_error_that_says_so(host: ScriptedHost, value: object) -> None:
    app = application(host)

    @app.tool
    async def strange() -> object:
        return value

    async with entered(app, host) as stream:
        await stream.request("r1", "strange")
        assert await host.result() == {"id": "r1", "error": 'result of tool "strange" is not JSON'}


async def test_a_result_whose_own_code_fails_is_masked(host: ScriptedHost) -> None:
    class Broken(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("secret")

    app = application(host)

    @app.tool
    async def broken() -> object:
        return Broken(a=1)

    async with entered(app, host) as stream:
        await stream.request("r1", "broken")
        assert await host.result() == {"id": "r1", "error": 'internal error: tool "broken" failed'}


def test_a_call_that_nobody_can_wait_for_any_more_is_given_up() -> None:
    backoff = replace(QUICK, silence_s=2 * QUICK.call_s)

    async def scenario(jump: Jump) -> None:
        async with ScriptedHost().listening() as host:
            app = application(host, backoff=backoff)
            began, cancelled = waiting(app)

            @app.tool
            async def ping() -> str:
                return "pong"

            async with entered(app, host) as stream:
                await stream.request("r1", "wait")
                await waited(began)
                jump(backoff.call_s)
                await waited(cancelled)
                await stream.request("r2", "ping")
                assert await host.result() == {"id": "r2", "result": "pong"}

    on_jumping_loop(scenario)


@pytest.mark.requirement("DYN-OQ-3")
async def test_a_call_of_a_tool_that_was_removed_meanwhile_is_answered(host: ScriptedHost) -> None:
    async with entered(application(host), host) as stream:
        await stream.request("r1", "gone")
        assert await host.result() == {"id": "r1", "error": 'the application has no tool "gone" any more'}


async def test_a_function_that_blocks_runs_in_a_thread_under_the_callers_context(host: ScriptedHost) -> None:
    app, blocked, user = application(host), threading.Event(), contextvars.ContextVar("user", default="nobody")
    user.set("alice")

    @app.tool
    def block() -> str:
        assert blocked.wait(WAIT_S)
        return user.get()

    @app.tool
    async def release() -> None:
        blocked.set()

    async with entered(app, host) as stream:
        await stream.request("r1", "block")
        await stream.request("r2", "release")
        assert [await host.result(), await host.result()] == [
            {"id": "r2", "result": None},
            {"id": "r1", "result": "alice"},
        ]


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_function_reports_its_progress(host: ScriptedHost, blocking: bool) -> None:
    app, heard, may_end = application(host), asyncio.Event(), threading.Event()

    if blocking:

        @app.tool(name="work")
        def work_in_a_thread(context: CallContext) -> str | None:
            context.report(1, 2, "half")
            context.report(float("nan"))
            assert may_end.wait(WAIT_S)
            return context.session

    else:

        @app.tool
        async def work(context: CallContext) -> str | None:
            context.report(1, 2, "half")
            context.report(float("nan"))
            await waited(heard)
            return context.session

    async with entered(app, host) as stream:
        await stream.request("r1", "work")
        assert await host.result() == {"id": "r1", "progress": 1, "total": 2, "message": "half"}
        heard.set()
        may_end.set()
        assert await host.result() == {"id": "r1", "result": CODE}


async def test_a_cancelled_request_cancels_the_function_and_is_not_answered(host: ScriptedHost) -> None:
    app = application(host)
    began, cancelled = waiting(app)

    @app.tool
    async def ping() -> str:
        return "pong"

    async with entered(app, host) as stream:
        await stream.request("r1", "wait")
        await waited(began)
        await stream.send("tool-cancelled", {"id": "r1", "reason": "timeout"}, 2)
        await stream.send("tool-cancelled", {"id": "unknown", "reason": "timeout"}, 3)
        await waited(cancelled)
        await stream.request("r1", "wait", 2, position=4)
        await stream.request("r2", "ping", position=5)
        assert await host.result() == {"id": "r2", "result": "pong"}


async def test_only_so_many_functions_run_at_once_and_the_others_wait_in_order(host: ScriptedHost) -> None:
    app, may_end, calls = application(host, max_running=2), asyncio.Event(), []

    @app.tool
    async def work(number: int) -> int:
        calls.append(number)
        await waited(may_end)
        return number

    async with entered(app, host) as stream:
        for number in range(5):
            await stream.request(f"r{number}", "work", number=number)
        await stream.request("wrong", "work")
        assert (await host.result())["id"] == "wrong"
        assert calls == [0, 1]
        may_end.set()
        assert sorted([(await host.result())["result"] for _ in range(5)]) == calls == [0, 1, 2, 3, 4]


async def test_a_blocking_function_keeps_its_place_until_it_has_ended(host: ScriptedHost) -> None:
    app, may_end, began = application(host, max_running=1), threading.Event(), threading.Event()

    @app.tool
    def block() -> None:
        began.set()
        assert may_end.wait(WAIT_S)

    @app.tool
    async def next_one() -> bool:
        return may_end.is_set()

    async with entered(app, host) as stream:
        await stream.request("r1", "block")
        assert await asyncio.to_thread(began.wait, WAIT_S)
        await stream.send("tool-cancelled", {"id": "r1"}, 2)
        await stream.request("r2", "next_one")
        await stream.request("r3", "unknown")
        assert (await host.result())["id"] == "r3"
        may_end.set()
        assert await host.result() == {"id": "r2", "result": True}
