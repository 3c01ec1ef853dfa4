"""Calls that reach an application through its session, and the answers that it gives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from httpx2 import AsyncClient, Response
from tests.http.conftest import ALICE, BOB, as_holder
from tests.http.conversation import Conversation
from tests.http.event_talk import EventTalk, Told, talking
from tests.http.jumping_loop import Jump, on_jumping_loop
from tests.http.session_plugin import Json, Plugin, Served, new_plugin, refusal, sessions_host, tool

pytestmark = pytest.mark.anyio


class Attached(NamedTuple):
    """An application whose stream is open."""

    served: Served
    plugin: Plugin
    stream: EventTalk

    async def call(self, name: str = "add", **more: object) -> Response:
        """The answer to a call of the session's own route."""
        body = {"tool": name, "id": "c1", **more}
        return await self.served.client.post(f"{self.plugin.place}/tool-calls", headers=ALICE, json=body)

    def calling(self, name: str = "add", **more: object) -> asyncio.Task[Response]:
        """The same, while the test goes on."""
        return asyncio.create_task(self.call(name, **more))

    async def request(self) -> Told:
        """The next request that the application is sent."""
        return await self.stream.until("tool-request")


@asynccontextmanager
async def attached(**sections: object) -> AsyncIterator[Attached]:
    """One application with the tools `add` and `draw`, and its stream."""
    async with sessions_host(**sections) as served:
        plugin = await new_plugin(served.client, tool("add"), tool("draw"))
        async with talking(served.app, f"{plugin.place}/stream", plugin.headers) as stream:
            await stream.until("connected")
            yield Attached(served, plugin, stream)


def ended(output: str, **more: object) -> Json:
    return {"call_id": "c1", "output": output, "is_error": False, "status": "success", "metadata": {}, **more}


@pytest.mark.requirement(
    "C-6-call", "C-6-relay-id", "C-3-tool-request-ids", "DYN-event-request", "DYN-AC-1", "DYN-US-register"
)
async def test_a_call_becomes_a_request_and_its_answer_the_result() -> None:
    async with attached() as it:
        calling = it.calling(arguments={"rows": 3}, timeoutMs=5000)
        request = await it.request()
        request_id = request.data.pop("id")
        deadline = request.data.pop("deadline")
        answered = await it.plugin.answer(request_id, result={"rows": 4})
        host_request_id = request.data.pop("hostRequestId")
        arguments = {"rows": 3}
        assert request.data == {
            "tool": "add",
            "arguments": arguments,
            "args": arguments,
            "attempt": 1,
            "callId": "c1",
        }
        assert deadline.endswith("Z")
        assert request_id not in {"c1", ""}
        assert (answered.status_code, answered.json()) == (200, {"success": True, "id": request_id, "status": "done"})
        answer = await calling
        assert (answer.status_code, answer.json()) == (200, ended('{"rows":4}', structured={"rows": 4}))
        assert answer.headers["X-Request-Id"] == host_request_id


@pytest.mark.requirement("C-6-request-ids")
async def test_a_request_names_the_call_and_the_hosts_request() -> None:
    async with attached() as it:
        headers = {**ALICE, "X-Request-Id": "trace-7"}
        for wait in (True, False):
            body = {"tool": "add", "id": "mine", "wait": wait}
            place = f"{it.plugin.place}/tool-calls"
            calling = asyncio.create_task(it.served.client.post(place, headers=headers, json=body))
            request = await it.request()
            assert (request.data["callId"], request.data["hostRequestId"]) == ("mine", "trace-7")
            await it.plugin.answer(request.data["id"], result=1)
            await calling


@pytest.mark.requirement("C-6-bare-name")
async def test_a_name_that_is_not_there_is_unknown_to_the_session() -> None:
    async with attached(providers=None) as it:
        await it.plugin.update(removed=["draw"])
        for name in ("draw", "never"):
            answer = (await it.call(name)).json()
            assert (answer["status"], answer["output"]) == ("unknown_tool", f'session has no tool "{name}"')
            taken = (await it.call(name, wait=False)).json()
            assert (await looked_up(it, taken["id"]))["result"]["output"] == f'session has no tool "{name}"'
            body = {"name": name, "session": it.plugin.code}
            other = (await it.served.client.post("/v1/tool-calls", headers=ALICE, json=body)).json()
            assert other["output"] == f'no builtin provider handles tool "{name}"'
        assert (await it.call("fs.read")).json()["output"] == "Toolset not found for fs.read"


@pytest.mark.requirement("C-8-stream-lines")
async def test_no_argument_breaks_a_line_of_the_stream() -> None:
    async with attached() as it:
        text = "x\u2028\u2028event: tool-request\u2029data: {}\x85\x85"
        calling = it.calling(arguments={"note": text})
        request = await it.request()
        assert request.data["arguments"] == {"note": text}
        assert not {"\x85", "\u2028", "\u2029"} & set(it.stream.body.decode())
        await it.plugin.answer(request.data["id"], result=1)
        await calling


@pytest.mark.requirement("C-6-call", "C-6-camel-case")
async def test_args_and_request_id_are_read_as_well() -> None:
    async with attached() as it:
        body = {"tool": "add", "requestId": "mine", "args": '{"rows": 1}'}
        place = f"{it.plugin.place}/tool-calls"
        calling = asyncio.create_task(it.served.client.post(place, headers=ALICE, json=body))
        request = await it.request()
        await it.plugin.send("tool-results", {"requestId": request.data["id"], "result": "done"})
        assert request.data["arguments"] == {"rows": 1}
        assert (await calling).json() == {**ended("done"), "call_id": "mine"}


@pytest.mark.requirement("C-6-call", "C-5-catalog-session")
async def test_the_hosts_call_route_reaches_the_same_application() -> None:
    async with attached() as it:
        body = {"name": "add", "id": "c1", "session": it.plugin.code}
        calling = asyncio.create_task(it.served.client.post("/v1/tool-calls", headers=ALICE, json=body))
        request = await it.request()
        await it.plugin.answer(request.data["id"], result=None)
        assert (await calling).json() == ended("null")


@pytest.mark.requirement("C-6-call", "DYN-AC-7")
async def test_a_session_offers_the_providers_tools_too(sample_package: None) -> None:
    async with attached(providers={"sample": {"enabled": True}}) as it:
        answer = await it.call("echo", arguments={"text": "hello"})
        assert answer.json() == ended("hello")
        assert (await it.call("nobody")).json()["status"] == "unknown_tool"
        invalid = await it.call("add", arguments={"rows": "three"})
        assert invalid.json()["status"] == "invalid_arguments"


@pytest.mark.requirement("C-6-call")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "tool"),
        ({"tool": ""}, "tool"),
        ({"tool": 7}, "tool"),
        ({"name": "add"}, "tool"),
        ({"tool": "add", "arguments": [1]}, "arguments"),
        ({"tool": "add", "arguments": {}, "args": {}}, "args"),
        ({"tool": "add", "id": "x" * 257}, "id"),
        ({"tool": "add", "timeoutMs": 0}, "timeoutMs"),
        ({"tool": "add", "timeoutMs": 300_001}, "timeoutMs"),
        ({"tool": "add", "wait": "no"}, "wait"),
        ({"tool": "add", "approval": 7}, "approval"),
        ({"tool": "add", "session": "x"}, "session"),
    ],
)
async def test_what_is_no_call_is_400_and_names_the_field(body: Json, param: str) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, tool("add"))
        answer = await client.post(f"{plugin.place}/tool-calls", headers=ALICE, json=body)
        assert refusal(answer) == (400, "invalid_request", param)


@pytest.mark.requirement("C-6-result-falsy")
@pytest.mark.parametrize(
    ("result", "output"),
    [(0, "0"), (False, "false"), ("", ""), (None, "null"), ([], "[]"), ({}, "{}"), (0.0, "0.0")],
)
async def test_a_falsy_result_is_a_result(result: object, output: str) -> None:
    async with attached() as it:
        calling = it.calling()
        request = await it.request()
        assert (await it.plugin.answer(request.data["id"], result=result)).status_code == 200
        answer = (await calling).json()
        assert (answer["status"], answer["output"], answer.get("structured", result)) == ("success", output, result)


@pytest.mark.requirement("C-6-result-both")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"result": 1, "error": "both"},
        {"result": None, "error": None},
        {"error": None},
        {"progress": None},
        {"result": 1, "progress": 1},
        {"result": 1, "total": 2},
        {"error": {"text": "no message"}},
        {"error": 7},
        {"error": ["x"]},
        {"progress": "half"},
        {"outcome": 1},
    ],
)
async def test_an_answer_that_is_none_is_400_and_the_call_waits_on(body: Json) -> None:
    async with attached() as it:
        calling = it.calling()
        request = await it.request()
        refused = await it.plugin.answer(request.data["id"], **body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
        assert not calling.done()
        await it.plugin.answer(request.data["id"], result="at last")
        assert (await calling).json() == ended("at last")


@pytest.mark.requirement("C-6-result-both")
@pytest.mark.parametrize(
    "body", [{"result": 1}, {"id": "", "result": 1}, {"id": 7, "result": 1}, {"id": None, "result": 1}]
)
async def test_an_answer_names_its_request(body: Json) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        assert refusal(await plugin.send("tool-results", body)) == (400, "invalid_request", "id")


@pytest.mark.requirement("C-6-call", "DYN-OQ-3")
@pytest.mark.parametrize("error", ["no such column", {"message": "no such column", "code": 7}])
async def test_an_error_is_what_the_model_sees(error: object) -> None:
    async with attached() as it:
        calling = it.calling()
        request = await it.request()
        await it.plugin.answer(request.data["id"], error=error)
        told = {**ended("no such column"), "is_error": True, "status": "tool_error"}
        assert (await calling).json() == told


@pytest.mark.requirement("C-6-result-errors", "H-relay-wrong-answers", "C-6-lease")
async def test_forged_foreign_and_doubled_answers_are_refused_and_the_call_is_undisturbed() -> None:
    async with attached() as it:
        other = await new_plugin(it.served.client, tool("add"))
        calling = it.calling()
        request = await it.request()
        request_id = request.data["id"]
        for forged in ("c1", "req_" + "0" * 24, "x" * 256, "\u2028"):
            assert refusal(await it.plugin.answer(forged, result="forged")) == (404, "request_not_found", "id")
        assert refusal(await other.answer(request_id, result="foreign")) == (404, "request_not_found", "id")
        assert not calling.done()
        assert (await it.plugin.answer(request_id, result="right")).status_code == 200
        assert refusal(await it.plugin.answer(request_id, result="doubled")) == (409, "already_answered", None)
        assert refusal(await it.plugin.answer(request_id, error="doubled")) == (409, "already_answered", None)
        assert (await calling).json() == ended("right")


@pytest.mark.requirement("C-6-result-errors", "H-relay-wrong-answers", "C-5-calls-timeout")
def test_a_late_answer_is_410_and_its_plugin_was_told_that_nobody_waits() -> None:
    async def scenario(jump: Jump) -> None:
        async with attached() as it:
            calling = it.calling(timeoutMs=60_000)
            request = await it.request()
            jump(60)
            cancelled = await it.stream.until("tool-cancelled")
            answer = (await calling).json()
            assert answer["status"] == "timeout"
            assert cancelled.data == {"id": request.data["id"], "reason": "timeout"}
            assert refusal(await it.plugin.answer(request.data["id"], result=1)) == (410, "too_late", None)

    on_jumping_loop(scenario)


@pytest.mark.requirement("C-6-result-errors", "I3-4-cancelled")
async def test_a_caller_who_hangs_up_cancels_the_request() -> None:
    async with attached() as it:
        head = [(b"host", b"localhost"), (b"authorization", b"Bearer alice-key")]
        body = json.dumps({"tool": "add"}).encode()
        caller = Conversation("POST", f"{it.plugin.place}/tool-calls", headers=head, body=[body])
        calling = asyncio.create_task(caller.held_with(it.served.app))
        request = await it.request()
        caller.hung_up.set()
        await calling
        cancelled = await it.stream.until("tool-cancelled")
        assert (caller.sent, cancelled.data) == ([], {"id": request.data["id"], "reason": "cancelled"})
        assert refusal(await it.plugin.answer(request.data["id"], result=1)) == (410, "too_late", None)


@pytest.mark.requirement("C-6-call", "C-5-calls-stream")
async def test_progress_reaches_a_caller_who_reads_events() -> None:
    async with attached() as it:
        head = {**ALICE, "Accept": "text/event-stream"}
        body = {"tool": "add", "id": "c1"}
        place = f"{it.plugin.place}/tool-calls"
        calling = asyncio.create_task(it.served.client.post(place, headers=head, json=body))
        request_id = (await it.request()).data["id"]
        half = await it.plugin.answer(request_id, progress=1, total=2, message="half")
        assert (half.status_code, half.json()) == (200, {"success": True, "id": request_id, "status": "progress"})
        assert (await it.plugin.answer(request_id, progress=1.5)).status_code == 200
        await it.plugin.answer(request_id, result="done")
        blocks = (await calling).text.split("\n\n")[:-1]
        told = [(block.split("\n")[0], json.loads(block.split("data: ")[1])) for block in blocks]
        assert told == [
            ("event: progress", {"call_id": "c1", "progress": 1.0, "total": 2.0, "message": "half"}),
            ("event: progress", {"call_id": "c1", "progress": 1.5}),
            ("event: result", ended("done")),
        ]
        assert refusal(await it.plugin.answer(request_id, progress=2)) == (409, "already_answered", None)


@pytest.mark.requirement("C-6-call-no-wait", "C-6-relay-id")
async def test_a_call_that_is_not_waited_for_can_be_looked_up() -> None:
    async with attached() as it:
        taken = await it.call(wait=False)
        request_id = taken.json().pop("id")
        assert (taken.status_code, taken.json()) == (202, {"id": request_id, "status": "queued"})
        request = await it.request()
        assert request.data["id"] == request_id
        place = f"{it.plugin.place}/tool-calls/{request_id}"
        sent = await it.served.client.get(place, headers=ALICE)
        assert (sent.status_code, sent.json()) == (200, {"id": request_id, "call_id": "c1", "status": "sent"})
        await it.plugin.answer(request_id, result={"rows": 1})
        done = await looked_up(it, request_id)
        result = ended('{"rows":1}', structured={"rows": 1})
        assert done == {"id": request_id, "call_id": "c1", "status": "done", "result": result}
        for path, holder in ((f"{place}x", ALICE), (f"{it.plugin.place}/tool-calls/c1", ALICE)):
            answer = await it.served.client.get(path, headers=holder)
            assert refusal(answer) == (404, "request_not_found", "id")
        assert refusal(await it.served.client.get(place, headers=BOB)) == (404, "session_not_found", "code")


async def looked_up(it: Attached, request_id: str) -> dict[str, Any]:
    """The call when it is done: its result is kept a moment after its answer came in."""
    while True:
        answer = await it.served.client.get(f"{it.plugin.place}/tool-calls/{request_id}", headers=ALICE)
        if answer.json()["status"] == "done":
            return answer.json()
        await asyncio.sleep(0)


@pytest.mark.requirement("C-6-call-no-wait", "C-6-grace")
async def test_a_queued_call_waits_for_the_application_within_the_grace_time() -> None:
    async with sessions_host() as served:
        plugin = await new_plugin(served.client, tool("add"))
        it = Attached(served, plugin, EventTalk("/", {}))
        request_id = (await it.call(wait=False)).json()["id"]
        place = f"{plugin.place}/tool-calls/{request_id}"
        assert (await served.client.get(place, headers=ALICE)).json()["status"] == "queued"
        async with talking(served.app, f"{plugin.place}/stream", plugin.headers) as stream:
            request = await stream.until("tool-request")
            await plugin.answer(request.data["id"], result="late but there")
            assert (await looked_up(it, request_id))["result"] == ended("late but there")


@pytest.mark.requirement("C-6-call-no-wait")
async def test_a_key_for_a_call_that_is_not_waited_for_is_400() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, tool("add"))
        head = {**ALICE, "Idempotency-Key": "once"}
        answer = await client.post(f"{plugin.place}/tool-calls", headers=head, json={"tool": "add", "wait": False})
        assert refusal(answer) == (400, "invalid_request", "Idempotency-Key")


@pytest.mark.requirement("C-6-call", "C-5-idempotent-replay")
async def test_the_same_key_gives_the_first_result_and_the_application_is_asked_once() -> None:
    async with attached() as it:
        head = {**ALICE, "Idempotency-Key": "once"}
        place = f"{it.plugin.place}/tool-calls"
        calling = asyncio.create_task(it.served.client.post(place, headers=head, json={"tool": "add", "id": "c1"}))
        request = await it.request()
        await it.plugin.answer(request.data["id"], result="first")
        first = await calling
        again = await it.served.client.post(place, headers=head, json={"tool": "add", "id": "c1"})
        assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")


@pytest.mark.requirement("C-6-limits", "C-5-retry-after")
async def test_as_many_calls_wait_as_may_and_one_more_is_429() -> None:
    async with attached(sessions={"max_waiting_calls": 2}) as it:
        waiting = [it.calling(), it.calling()]
        requests = [await it.request(), await it.request()]
        full = await it.call()
        assert refusal(full) == (429, "too_many_waiting_calls", None)
        assert full.headers["retry-after"] == "1"
        body = {"name": "add", "id": "c1", "session": it.plugin.code}
        limited = await it.served.client.post("/v1/tool-calls", headers=ALICE, json=body)
        assert (limited.status_code, limited.json()["status"], limited.json()["retry_after_s"]) == (200, "limited", 1.0)
        for request in requests:
            await it.plugin.answer(request.data["id"], result="room")
        assert [(await call).json() for call in waiting] == [ended("room")] * 2
        last = it.calling()
        await it.plugin.answer((await it.request()).data["id"], result="again")
        assert (await last).status_code == 200


@pytest.mark.requirement("C-6-limits", "C-6-call-no-wait")
async def test_as_many_calls_are_queued_as_may_wait() -> None:
    async with sessions_host(sessions={"max_waiting_calls": 1}) as served:
        plugin = await new_plugin(served.client, tool("add"))
        it = Attached(served, plugin, EventTalk("/", {}))
        assert (await it.call(wait=False)).status_code == 202
        full = await it.call(wait=False)
        assert (refusal(full), full.headers["retry-after"]) == ((429, "too_many_waiting_calls", None), "1")


@pytest.mark.requirement("I3-bad-huge-answer", "H-relay-wrong-answers", "H-limit-result")
async def test_a_result_over_its_limit_is_cut_and_an_answer_over_the_bodys_limit_waits_for_a_smaller_one() -> None:
    async with attached(limits={"max_result_bytes": "100KiB"}) as it:
        calling = it.calling()
        request_id = (await it.request()).data["id"]
        huge = await it.plugin.answer(request_id, result="x" * (1024 * 1024))
        assert refusal(huge) == (413, "body_too_large", None)
        assert (await it.plugin.answer(request_id, result="x" * (200 * 1024))).status_code == 200
        answer = (await calling).json()
        assert answer["status"] == "success"
        assert answer["output"].startswith("x" * 102_000)
        assert len(answer["output"]) < 103_000


@pytest.mark.requirement("C-3-policy-session-default")
async def test_session_tools_can_be_denied_as_a_whole() -> None:
    async with sessions_host(sessions={"policy": "deny"}) as (_, _, client):
        plugin = await new_plugin(client, tool("add"))
        answer = await client.post(f"{plugin.place}/tool-calls", headers=ALICE, json={"tool": "add"})
        assert (answer.status_code, answer.json()["status"]) == (200, "denied")


@pytest.mark.requirement("C-5-agent-required", "C-6-call")
async def test_a_key_of_several_agents_names_one_at_the_hosts_own_route() -> None:
    async with sessions_host() as (_, _, client):
        two = as_holder("two-agents-key")
        plugin = await new_plugin(client, tool("add"), headers=two)
        answer = await client.post(f"{plugin.place}/tool-calls", headers=two, json={"tool": "add"})
        assert refusal(answer) == (400, "agent_required", "agent")


@pytest.mark.requirement("C-5-agent-limited")
async def test_to_a_credential_of_agents_the_queued_calls_of_other_subjects_are_none(client: AsyncClient) -> None:
    holders = {name: {"X-API-Key": f"{name}-key"} for name in ("root", "one-agent")}
    created = await client.post("/api/sessions", headers=holders["root"])
    path = f"/api/sessions/{created.json()['code']}/tool-calls"
    for caller, reader, status in [
        ("root", "one-agent", 404),
        ("one-agent", "one-agent", 200),
        ("one-agent", "root", 200),
    ]:
        queued = await client.post(path, headers=holders[caller], json={"tool": "x", "arguments": {}, "wait": False})
        answer = await client.get(f"{path}/{queued.json()['id']}", headers=holders[reader])
        assert answer.status_code == status, (caller, reader)
        assert status == 200 or answer.json()["error"]["code"] == "request_not_found"
