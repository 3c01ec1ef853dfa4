"""What an application lends is a tool like any other: hooks, limits, keys and policies hold for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.host.conftest import Package

from toolplug import CallContext, Host, Principal, ToolCall, ToolResult, ToolStatus, open_host
from toolplug.errors import ApiError
from toolplug.parts.sessions.running import RunningSessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.streams.stream import Reader
from toolplug.parts.sessions.tools.negotiation import Registration

pytestmark = pytest.mark.anyio

ALICE = Principal(subject="alice", scopes=frozenset({"tools:call", "tools:read", "sessions:write"}))
ADD = {"name": "add", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
HOOKS = """
    from toolplug import FunctionProvider

    class Guard(FunctionProvider):
        heard = []

        def before_call(self, call, context):
            return "thirteen is unlucky" if call.arguments.get("n") == 13 else None

        async def after_call(self, call, context, result):
            self.heard.append((call.name, str(result.status)))
"""


async def request_on(stream: Reader) -> dict[str, Any]:
    """The data of the next request that the plugin is sent."""
    while True:
        for event in (await stream.next()).split(b"\n\n"):
            if b"event: tool-request\n" in event:
                return orjson.loads(event.partition(b"data: ")[2])


async def lent(host: Host, *tools: object) -> tuple[Session, Reader]:
    """A session whose application is there."""
    session = (await host.sessions.create(ALICE)).session
    await session.register(Registration(plugin_type="table", tools=tools or (ADD,)))
    return session, await session.open_stream("plugin", None)


async def answered(host: Host, session: Session, stream: Reader, value: object, **context: object) -> ToolResult:
    """A call that the application answers with the value."""
    executor = host.executor_for(ALICE, session=session.code)
    arguments = {"n": 1}
    calling = asyncio.create_task(
        executor.execute(ToolCall("c1", "add", arguments), CallContext(principal=ALICE)._replace(**context))
    )
    session.relay.answer((await request_on(stream))["id"], value)
    return await calling


@pytest.mark.requirement("I3-4-hooks", "C-12-before-call", "C-12-after-call")
async def test_host_wide_hooks_hear_and_veto_the_calls_of_an_application(
    package: Package, config: Callable[[str], Path]
) -> None:
    package("toolplug-guard", {"guard": "guard_mod:Guard"}, guard_mod=HOOKS)
    async with open_host(config("providers: {guard: {enabled: true}}"), environ={}) as host:
        session, stream = await lent(host)
        executor = host.executor_for(ALICE, session=session.code)
        vetoed = await executor.execute(ToolCall("c1", "add", {"n": 13}), CallContext(principal=ALICE))
        assert vetoed.output == 'tool "add" is not allowed: hook: thirteen is unlucky'
        assert (await answered(host, session, stream, 2)).output == "2"
        heard = host.registry.running()["guard"].provider.heard  # type: ignore[attr-defined]
        assert heard == [("add", "denied"), ("add", "success")]


@pytest.mark.requirement("I3-4-hooks")
async def test_the_hosts_limits_hold_for_what_is_lent(config: Callable[[str], Path]) -> None:
    async with open_host(config("limits: {rate: 1/hour, max_result_bytes: 10}"), environ={}) as host:
        session, stream = await lent(host)
        result = await answered(host, session, stream, "twelve bytes")
        assert result.output == "twelve byt\n[cut: 2 of 12 bytes are missing]"
        limited = await host.executor_for(ALICE, session=session.code).execute(
            ToolCall("c2", "add", {}), CallContext(principal=ALICE)
        )
        assert limited.status is ToolStatus.LIMITED


@pytest.mark.requirement("I3-4-hooks")
async def test_an_idempotency_key_asks_the_application_once(config: Callable[[str], Path]) -> None:
    async with open_host(config("sessions: {grace: 30s}"), environ={}) as host:
        session, stream = await lent(host)
        first = await answered(host, session, stream, "done", idempotency_key="k")
        executor = host.executor_for(ALICE, session=session.code)
        context = CallContext(principal=ALICE, idempotency_key="k")
        again = await executor.execute(ToolCall("c2", "add", {"n": 1}), context)
        assert (first.output, again.output, again.metadata) == ("done", "done", {"idempotent_replayed": True})


@pytest.mark.requirement("C-3-policy-session-default", "I3-4-hooks")
@pytest.mark.parametrize(
    ("policy", "output"),
    [
        ("deny", 'tool "add" is not allowed: policy: its policy is deny'),
        ("ask", 'tool "add" is not allowed: approval: a person must approve this call first'),
    ],
)
async def test_the_policy_of_sessions_holds_for_every_tool_that_is_lent(
    config: Callable[[str], Path], policy: str, output: str
) -> None:
    async with open_host(config(f"sessions: {{policy: {policy}}}"), environ={}) as host:
        session, _ = await lent(host)
        executor = host.executor_for(ALICE, session=session.code)
        result = await executor.execute(ToolCall("c1", "add", {}), CallContext(principal=ALICE))
        assert list(executor.catalog) == ["add"]
        assert result.status is ToolStatus.DENIED
        assert result.output.startswith(output)


@pytest.mark.requirement("C-3-policy-disable", "I3-4-hooks", "C-2-reload-swap")
async def test_what_is_lent_is_hidden_while_the_policy_of_sessions_is_disable(
    config: Callable[[str], Path],
) -> None:
    path = config("sessions: {policy: disable}")
    async with open_host(path, environ={}) as host:
        session, stream = await lent(host)
        executor = host.executor_for(ALICE, session=session.code)
        result = await executor.execute(ToolCall("c1", "add", {"n": 1}), CallContext(principal=ALICE))
        assert (list(executor.catalog), result.status) == ([], ToolStatus.UNKNOWN_TOOL)
        assert result.output == 'no builtin provider handles tool "add"'
        [shown] = orjson.loads(session.tools_wire())
        assert (shown["name"], shown["available"], shown["reason"]) == ("add", False, "disabled")
        why = host.explain("add", ALICE, session=session.code)
        [gate] = [gate for gate in why.gates if gate.gate == "policy"]
        assert (why.found, gate.verdict, gate.origin) == (False, "refuses", f"{path}:1")
        path.write_text("sessions: {policy: allow}\nstore: memory://\n")
        await host.reload(by=ALICE)
        assert (await answered(host, session, stream, "yes")).output == "yes"


@pytest.mark.requirement("I3-4-hooks", "C-2-reload-swap")
async def test_a_reload_holds_open_sessions_to_the_new_rules(config: Callable[[str], Path]) -> None:
    path = config("sessions: {policy: allow, max_tools: 5}")
    async with open_host(path, environ={}) as host:
        session, stream = await lent(host)
        executor = host.executor_for(ALICE, session=session.code)
        assert (await answered(host, session, stream, "yes")).output == "yes"
        path.write_text("sessions: {policy: deny, max_tools: 7}\nstore: memory://\n")
        await host.reload(by=ALICE)
        assert host.sessions.limits.max_tools == 7
        result = await executor.execute(ToolCall("c1", "add", {"n": 1}), CallContext(principal=ALICE))
        assert result.status is ToolStatus.DENIED


@pytest.mark.requirement("I3-2-queued-restart", "I3-2-restart")
async def test_a_queued_call_is_taken_up_by_the_next_process(tmp_path: Path) -> None:
    settings = {"store": f"sqlite:///{tmp_path}/state.db"}
    async with open_host(settings, environ={}) as host:
        session = (await host.sessions.create(ALICE)).session
        await session.register(Registration(plugin_type="table", tools=[ADD]))
        deadline = asyncio.get_running_loop().time() + 60
        context = CallContext(principal=ALICE, session=session.code, deadline=deadline)
        queued = await host.part(RunningSessions).queued.start(
            session, ToolCall("mine", "add", {"n": 2}), context, most=1
        )
        code = session.code
    async with open_host(settings, environ={}) as host:
        session = await host.sessions.find(code, "default")
        assert (await host.part(RunningSessions).queued.look(session, queued)).status == "queued"
        stream = await session.open_stream("plugin", None)
        request = await request_on(stream)
        assert (request["id"], request["arguments"]) == (queued, {"n": 2})
        assert (await host.part(RunningSessions).queued.look(session, queued)).status == "sent"
        session.relay.answer(queued, 4)
        while (found := await host.part(RunningSessions).queued.look(session, queued)).status != "done":
            await asyncio.sleep(0)
        assert found.result is not None
        assert (found.call_id, found.result.output) == ("mine", "4")


@pytest.mark.requirement("I3-2-queued-restart", "C-6-lease")
async def test_an_answer_to_a_request_of_the_process_before_is_taken(tmp_path: Path) -> None:
    settings = {"store": f"sqlite:///{tmp_path}/state.db"}
    async with open_host(settings, environ={}) as host:
        session, stream = await lent(host)
        deadline = asyncio.get_running_loop().time() + 60
        context = CallContext(principal=ALICE, session=session.code, deadline=deadline)
        queued = await host.part(RunningSessions).queued.start(
            session, ToolCall("mine", "add", {"n": 2}), context, most=1
        )
        assert (await request_on(stream))["id"] == queued
        code = session.code
    async with open_host(settings, environ={}) as host:
        session = await host.sessions.find(code, "default")
        while (found := await host.part(RunningSessions).queued.look(session, queued)).status != "done":
            with suppress(ApiError):  # until the call is taken up
                session.relay.answer(queued, 4)
            await asyncio.sleep(0)
        assert found.result is not None
        assert (found.call_id, found.result.output) == ("mine", "4")


@pytest.mark.requirement("I3-2-restart")
@pytest.mark.parametrize("beside_it", [{"serving": False}, {"sessions": False}], ids=str)
async def test_a_process_beside_the_one_that_serves_sessions_takes_nothing_up(
    tmp_path: Path, beside_it: dict[str, bool]
) -> None:
    settings = {"store": f"sqlite:///{tmp_path}/state.db"}
    async with open_host(settings, environ={}) as host:
        session = (await host.sessions.create(ALICE)).session
        await session.register(Registration(plugin_type="table", tools=[ADD]))
        async with open_host(settings, environ={}, **beside_it) as beside:
            assert beside.sessions.live == ()
            assert (await beside.sessions.find(session.code, "default")).revision == 1
