"""Tasks of clients of `/mcp`: when a call becomes one, how it is read, answered and cancelled, and by whom."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.task_client import FORMS, TASKS, McpCaller, with_tasks

from toolplug import CallContext, Principal, ToolCall
from toolplug_tasks import records

Serve = Callable[..., AbstractAsyncContextManager[Any]]

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I39-tasks")]


async def test_a_call_that_is_not_done_in_time_is_a_task_where_the_client_declares_them(
    serve: Serve, tmp_path: Path
) -> None:
    async with serve() as served:
        ann = with_tasks(served.callers["ann"].client)
        said = await ann.send("server/discover")
        assert said["capabilities"]["extensions"] == {TASKS: {}}
        task = await ann.call("wait_for", file=str(tmp_path / "a"))
        assert (task["resultType"], task["status"], task["pollIntervalMs"]) == ("task", "working", 1000)
        assert task["ttlMs"] == 2 * 3_600_000
        heard = await ann.ended(task["taskId"], until=lambda each: "statusMessage" in each)
        assert (heard["status"], heard["statusMessage"]) == ("working", "1 of 3: looking")
        (tmp_path / "a").touch()
        done = await ann.ended(task["taskId"])
        assert (done["status"], done["resultType"]) == ("completed", "complete")
        assert done["result"]["content"] == [{"type": "text", "text": "it is there"}]
        assert "statusMessage" not in done


async def test_other_calls_and_clients_are_answered_as_ever(serve: Serve, tmp_path: Path) -> None:
    async with serve(tasks_after="200ms") as served:
        client = served.callers["ann"].client
        (tmp_path / "a").touch()
        quick = await with_tasks(client).call("wait_for", file=str(tmp_path / "a"))
        assert (quick["resultType"], quick["content"][0]["text"]) == ("complete", "it is there")
        undeclared = McpCaller(client)
        waiting = asyncio.create_task(undeclared.call("wait_for", file=str(tmp_path / "b")))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        (tmp_path / "b").touch()
        assert (await waiting)["content"][0]["text"] == "it is there"
        refused = await undeclared.task("task_" + "0" * 32)
        assert (refused["code"], refused["data"]) == (-32021, {"requiredCapabilities": {"extensions": {TASKS: {}}}})
        unknown = await with_tasks(client).call("nothing")
        assert unknown["code"] == -32602


async def test_the_id_of_a_task_is_of_use_to_its_caller_only(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        ann, bob = (with_tasks(served.callers[name].client) for name in ("ann", "bob"))
        task_id = (await ann.call("wait_for", file=str(tmp_path / "a")))["taskId"]
        for method in ("tasks/get", "tasks/cancel"):
            assert (await bob.send(method, taskId=task_id))["code"] == -32602
        assert (await bob.send("tasks/update", taskId=task_id, inputResponses={}))["code"] == -32602
        for invented in ("task_" + "0" * 32, "task_../" + task_id, "", 7, None):
            assert (await ann.task(invented))["code"] == -32602
        assert (await served.callers["bob"].client.get(f"/v1/tasks/{task_id}")).status_code == 404
        assert (await served.callers["bob"].client.delete(f"/v1/tasks/{task_id}")).status_code == 404
        assert (await ann.task(task_id))["status"] == "working"
        wrong = await ann.send("tasks/get", {"Mcp-Name": "another"}, taskId=task_id)
        assert wrong["message"] == "mcp-name header does not match the request body's 'taskId' parameter"
        assert (await ann.send("tasks/get", {"Mcp-Name": task_id}, taskId=task_id))["status"] == "working"


async def test_a_task_is_cancelled_and_stays_so(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        ann = with_tasks(served.callers["ann"].client)
        task_id = (await ann.call("wait_for", file=str(tmp_path / "a")))["taskId"]
        assert (await ann.send("tasks/cancel", taskId=task_id))["resultType"] == "complete"
        assert (await ann.task(task_id))["status"] == "cancelled"
        (tmp_path / "a").touch()
        await asyncio.sleep(0.2)
        ended = await ann.task(task_id)
        assert (ended["status"], "result" in ended) == ("cancelled", False)
        metrics = (await served.callers["ann"].client.get("/metrics")).text
        assert 'antwort_tasks_ended_total{status="cancelled"} 1.0' in metrics
        assert "antwort_tasks_running 0.0" in metrics


async def test_a_tool_that_fails_completes_its_task_with_its_error(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        ann = with_tasks(served.callers["ann"].client)
        task_id = (await ann.call("fail_after", file=str(tmp_path / "a")))["taskId"]
        (tmp_path / "a").touch()
        done = await ann.ended(task_id)
        assert (done["status"], done["result"]["isError"]) == ("completed", True)
        assert done["result"]["content"][0]["text"] == "it cannot be done"


async def test_a_task_outlives_the_timeout_of_its_tool_and_not_its_own(serve: Serve, tmp_path: Path) -> None:
    limits = {"limits": {"timeout": "100ms"}}
    async with serve(limits, task_timeout="2s") as served:
        ann = with_tasks(served.callers["ann"].client)
        task_id = (await ann.call("wait_for", file=str(tmp_path / "a")))["taskId"]
        await asyncio.sleep(0.5)
        assert (await ann.task(task_id))["status"] == "working"
        done = await ann.ended(task_id)
        assert done["result"]["_meta"]["toolplug/status"] == "timeout"
        assert done["result"]["content"][0]["text"] == 'tool "wait_for" timed out after 2 s'


async def test_a_question_in_mid_run_is_a_task_that_asks_at_once(serve: Serve) -> None:
    async with serve(tasks_after="1h") as served:
        ann = with_tasks(served.callers["ann"].client, **FORMS)
        task = await ann.call("book")
        asks = await ann.ended(task["taskId"], until=lambda each: each["status"] == "input_required")
        ((name, request),) = asks["inputRequests"].items()
        assert request["params"]["message"] == "How many seats?"
        bad = {name: {"action": "perhaps"}}
        refused = await ann.send("tasks/update", taskId=task["taskId"], inputResponses=bad)
        assert refused["message"].startswith(f"inputResponses.{name}: it should have an action of accept")
        await ann.send("tasks/update", taskId=task["taskId"], inputResponses={"other": {"action": "accept"}})
        assert (await ann.task(task["taskId"]))["status"] == "input_required"
        answer = {name: {"action": "accept", "content": {"seats": 3}}}
        assert (await ann.send("tasks/update", taskId=task["taskId"], inputResponses=answer))[
            "resultType"
        ] == "complete"
        done = await ann.ended(task["taskId"])
        assert done["result"]["content"][0]["text"] == "accept: 3"
        assert "inputRequests" not in done
        nobody = await with_tasks(served.callers["ann"].client).call("book")
        assert nobody["isError"]


async def test_a_call_that_waits_for_another_person_is_a_task_at_once(serve: Serve) -> None:
    async with serve(tasks_after="1h") as served:
        ann, boss = with_tasks(served.callers["ann"].client, **FORMS), served.callers["boss"].client
        for decision, said in (("approve", "3"), ("deny", "is not allowed")):
            task = await ann.call("add", a=1, b=2)
            assert (task["status"], task["statusMessage"]) == ("working", "waits for approval")
            (ticket,) = [
                each for each in (await boss.get("/v1/approvals")).json()["approvals"] if each["state"] == "waiting"
            ]
            await boss.post(f"/v1/approvals/{ticket['id']}", json={"decision": decision})
            done = await ann.ended(task["taskId"])
            assert said in done["result"]["content"][0]["text"]


async def test_nobody_decides_and_the_refusal_is_the_result(serve: Serve) -> None:
    async with serve({"approvals": {"life": "1s"}}, tasks_after="1h") as served:
        ann = with_tasks(served.callers["ann"].client)
        task = await ann.call("add", a=1, b=2)
        assert task["statusMessage"] == "waits for approval"
        done = await ann.ended(task["taskId"])
        assert done["result"]["_meta"]["toolplug/status"] == "denied"


async def test_a_question_before_the_work_stays_one_of_the_request(serve: Serve) -> None:
    async with serve(tasks_after="1h") as served:
        boss = with_tasks(served.callers["boss"].client, **FORMS)
        asked = await boss.call("add", a=1, b=2)
        assert (asked["resultType"], [*asked["inputRequests"]]) == ("input_required", ["approval"])


class AsksLate:
    """A call that asks for an approval before its work, but only once the event is set. Is an `ExtendedCall`."""

    declared: Mapping[str, object] = {}
    timeout_s = 60.0

    def __init__(self) -> None:
        self.call = ToolCall("1", "add", {"a": 1, "b": 2})
        self.context = CallContext(Principal(subject="ann", tenant="t1"))
        self.go_on = asyncio.Event()
        self.repeated: tuple[object, object] | None = None

    async def run(
        self, context: CallContext, *, during: Any = None, responses: Any = None, state: str | None = None
    ) -> dict[str, object]:
        await self.go_on.wait()
        if not responses:
            asks = {"approval": {"method": "elicitation/create", "params": {"mode": "form", "message": "May it run?"}}}
            return {"resultType": "input_required", "inputRequests": asks, "requestState": "the state"}
        self.repeated = responses, state
        return {"resultType": "complete", "content": [{"type": "text", "text": "3"}], "isError": False}


async def test_an_approval_that_is_asked_of_a_task_is_answered_by_its_update(serve: Serve) -> None:
    async with serve(tasks_after="10ms") as served:
        ann = with_tasks(served.callers["ann"].client, **FORMS)
        (extension,) = served.host.plugins.mcp_extensions()
        call = AsksLate()
        task = await extension.call_tool(call)
        call.go_on.set()
        asks = await ann.ended(task["taskId"], until=lambda each: each["status"] == "input_required")
        ((name, request),) = asks["inputRequests"].items()
        assert request["params"]["message"] == "May it run?"
        approval = {"action": "accept", "content": {"approve": True}}
        await ann.send("tasks/update", taskId=task["taskId"], inputResponses={name: approval})
        done = await ann.ended(task["taskId"])
        assert (done["status"], done["result"]["content"][0]["text"]) == ("completed", "3")
        assert call.repeated == ({"approval": approval}, "the state")


async def test_a_task_is_forgotten_an_hour_after_its_end(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert records.KEPT_S == 3600
    (tmp_path / "a").touch()
    monkeypatch.setattr(records, "KEPT_S", 1.0)
    async with serve() as served:
        client = served.callers["ann"].client
        call = {"name": "wait_for", "arguments": {"file": str(tmp_path / "a")}}
        task = (await client.post("/v1/tool-calls", json=call, headers={"Prefer": "respond-async"})).json()
        # Until it is gone, which is never if it were kept.
        gone = await with_tasks(client).ended(task["taskId"], until=lambda each: "code" in each)
        assert gone["code"] == -32602


async def test_a_caller_has_a_hundred_tasks_at_most(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolplug_tasks.records.MAX_TASKS", 2)
    async with serve({"limits": {"timeout": "300ms", "drain": "0s"}}) as served:
        client = served.callers["ann"].client
        ann, bob = with_tasks(client), with_tasks(served.callers["bob"].client)
        for _ in range(2):
            assert (await ann.call("wait_for", file=str(tmp_path / "a")))["resultType"] == "task"
        refused = await ann.call("wait_for", file=str(tmp_path / "a"))
        assert refused["message"].startswith("the call was ended after 0.3 s: no more tasks of this caller")
        asynchronous = {"Prefer": "respond-async"}
        over = await client.post("/v1/tool-calls", json={"name": "book"}, headers=asynchronous)
        assert (over.status_code, over.json()["error"]["code"]) == (429, "quota_exceeded")
        assert (await bob.call("wait_for", file=str(tmp_path / "a")))["resultType"] == "task"


async def test_calls_that_become_tasks_at_once_count_each_other(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolplug_tasks.records.MAX_TASKS", 2)
    async with serve() as served:
        client = served.callers["ann"].client
        call = {"name": "wait_for", "arguments": {"file": str(tmp_path / "a")}}
        answers = await asyncio.gather(
            *(client.post("/v1/tool-calls", json=call, headers={"Prefer": "respond-async"}) for _ in range(10))
        )
        assert Counter(each.status_code for each in answers) == {202: 2, 429: 8}


async def test_http_has_the_same_record(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        client = served.callers["ann"].client
        call = {"name": "wait_for", "arguments": {"file": str(tmp_path / "a")}}
        accepted = await client.post("/v1/tool-calls", json=call, headers={"Prefer": "wait=5, respond-async"})
        assert (accepted.status_code, accepted.headers["preference-applied"]) == (202, "respond-async")
        task, place = accepted.json(), accepted.headers["location"]
        assert (task["status"], place) == ("working", f"/v1/tasks/{task['taskId']}")
        ann = with_tasks(client)
        # Its message is written within a second, and then nothing changes until the file is there.
        await ann.ended(task["taskId"], until=lambda each: "statusMessage" in each)
        read = (await client.get(place)).json()
        of_mcp = await ann.task(task["taskId"])
        assert {name: of_mcp[name] for name in read} == read
        (tmp_path / "a").touch()
        await ann.ended(task["taskId"])
        done = (await client.get(place)).json()
        assert done["result"]["content"] == [{"type": "text", "text": "it is there"}]
        assert (await client.delete(place)).status_code == 204
        assert (await client.get(place)).json()["error"]["code"] == "task_not_found"
        assert (await client.delete(place)).status_code == 404
        assert "/v1/tasks/{id}" in (await client.get("/v1/openapi.json")).json()["paths"]


async def test_of_two_people_behind_one_key_each_has_tasks_of_its_own(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        client = served.callers["ann"].client
        call = {"name": "wait_for", "arguments": {"file": str(tmp_path / "a")}}
        mine, others = ({"X-Toolplug-Credential-Shop": each} for each in ("mine", "other"))
        place = (await client.post("/v1/tool-calls", json=call, headers={"Prefer": "respond-async", **mine})).headers[
            "location"
        ]
        for headers in (others, {}):
            assert (await client.get(place, headers=headers)).status_code == 404
            assert (await client.delete(place, headers=headers)).status_code == 404
        task_id = place.rpartition("/")[2]
        for method in ("tasks/get", "tasks/cancel"):
            assert (await with_tasks(client).send(method, taskId=task_id))["code"] == -32602
            assert (await with_tasks(client).send(method, others, taskId=task_id))["code"] == -32602
        assert (await with_tasks(client).send("tasks/get", mine, taskId=task_id))["status"] == "working"
        assert (await client.get(place, headers=mine)).json()["status"] == "working"
        assert (await client.delete(place, headers=mine)).status_code == 204


async def test_deleting_a_task_that_runs_ends_it(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        client = served.callers["ann"].client
        task = await with_tasks(client).call("wait_for", file=str(tmp_path / "a"))
        assert (await client.delete(f"/v1/tasks/{task['taskId']}")).status_code == 204
        async with asyncio.timeout(10):
            while "antwort_tasks_running 0.0" not in (await client.get("/metrics")).text:  # noqa: ASYNC110  the end is told nobody
                await asyncio.sleep(0.02)


async def test_without_an_entry_or_the_section_there_is_nothing_of_it(in_process_host: Any, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("from toolplug import tool\n@tool\ndef one() -> int:\n    return 1\n")
    own = {"own": {"type": "./tools.py", "enabled": True}}
    async with in_process_host({"providers": own}) as served:
        client = served.nobody
        asked = await client.post("/v1/tool-calls", json={"name": "one"}, headers={"Prefer": "respond-async"})
        assert (asked.status_code, asked.json()["output"]) == (200, "1")
        assert "extensions" not in (await with_tasks(client).send("server/discover"))["capabilities"]
        assert (await client.get("/v1/tasks/task_1")).status_code == 404


async def test_after_a_restart_what_had_ended_is_kept_and_what_outlasts_the_drain_has_timed_out(
    serve: Serve, tmp_path: Path
) -> None:
    async with serve() as served:
        ann = with_tasks(served.callers["ann"].client)
        done, cut = [(await ann.call("wait_for", file=str(tmp_path / name)))["taskId"] for name in "ab"]
        (tmp_path / "a").touch()
        await ann.ended(done)
    async with serve() as served:
        ann = with_tasks(served.callers["ann"].client)
        assert (await ann.task(done))["result"]["content"][0]["text"] == "it is there"
        ended = await ann.task(cut)
        assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
        meta = ended["result"]["_meta"]
        assert (meta["toolplug/status"], meta["toolplug/metadata"]["code"]) == ("timeout", "draining")


async def test_a_call_that_ends_within_the_drain_has_its_result_after_a_restart(serve: Serve) -> None:
    async with serve({"limits": {"drain": "30s"}}) as served:
        client = served.callers["ann"].client
        asked = await client.post("/v1/tool-calls", json={"name": "pause"}, headers={"Prefer": "respond-async"})
        assert asked.status_code == 202
    async with serve() as served:
        found = (await served.callers["ann"].client.get(asked.headers["Location"])).json()
        assert (found["status"], found["result"]["content"][0]["text"]) == ("completed", "rested")


async def test_a_task_that_waits_for_a_person_does_not_hold_up_the_end(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolplug.runtime.tasks.KEEPING_S", 3600.0)  # more than a part has for `finish()`
    async with serve() as served:
        ann = with_tasks(served.callers["ann"].client)
        task_id = (await ann.call("add", a=1, b=2))["taskId"]
        assert (await ann.task(task_id))["statusMessage"] == "waits for approval"
    assert "closing the part" not in caplog.text
    async with serve() as served:
        failed = await with_tasks(served.callers["ann"].client).task(task_id)
        assert (failed["status"], failed["error"]["data"]) == ("failed", {"code": "outcome_unknown"})


@pytest.mark.parametrize("section", [{}, {"tasks": {"task_timeout": "30m"}}], ids=["no section", "a section"])
async def test_an_entry_enables_it_with_its_settings(
    serve: Serve, in_process_host: Any, tmp_path: Path, section: dict[str, object]
) -> None:
    entries = {
        "own": {"type": "./tools.py", "enabled": True},
        "later": {"type": "tasks", "enabled": True, "tasks_after": "50ms"},
    }
    async with in_process_host(
        {"providers": entries, "limits": {"drain": "0s"}, **section},
        principals=[Principal(subject="ann", scopes=frozenset({"tools:read", "tools:call"}))],
    ) as served:
        ann = with_tasks(served.callers["ann"].client)
        task = await ann.call("wait_for", file=str(tmp_path / "a"))
        assert (task["resultType"], task["ttlMs"]) == ("task", (1.5 if section else 2) * 3_600_000)
        assert (await served.callers["ann"].client.get(f"/v1/tasks/{task['taskId']}")).status_code == 200


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"tasks_after": "2h"}, "tasks.tasks_after: should be at most 1h, not '2h'"),
        ({"task_timeout": "0"}, "tasks.task_timeout: "),
        ({"after": "1s"}, "tasks.after: unknown key 'after'"),
    ],
)
async def test_wrong_settings_say_what_is_wrong(serve: Serve, settings: dict[str, object], expected: str) -> None:
    with pytest.raises(Exception, match="tasks") as caught:
        async with serve(**settings):
            pass
    assert expected in str(caught.value)
