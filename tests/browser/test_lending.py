"""toolplug.js in a browser: what a page lends, and what becomes of the calls."""

from __future__ import annotations

import re
from typing import Any

import pytest
from anyio import create_task_group, fail_after
from playwright.async_api import Page, Route
from tests.browser.host import PATIENCE_S, Caller
from tests.browser.lender import Lender

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,  # the page of data_table is in every run
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I3-5-browser-lend"),
]

READABLE = {"Access-Control-Allow-Origin": "*"}
NUMBER = {"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]}


@pytest.fixture
async def lender(page: Page, origin: str, host: str) -> Lender:
    await page.goto(f"{origin}/data_table.css")
    return Lender(page, host)


@pytest.mark.requirement("DYN-plugin-diff")
async def test_what_is_changed_in_one_go_is_one_update_with_only_the_difference(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    await lender.does("app.tool({name: 'one'}, () => 1); app.tool({name: 'two'}, () => 2); await app.settled()")
    first = await caller.metadata(code)
    async with caller.following(code) as following:
        await lender.does(
            """
            app.replace([
                {name: "one", handler: () => "other, but not to others"},
                {name: "two", description: "Second.", handler: () => 2},
                {name: "three", handler: () => 3},
            ], "three came");
            await app.settled();
            """
        )
        update = await following.next("tool-availability-update")
    anything = {"type": "object", "properties": {}}
    assert update["updates"] == {
        "added": [{"name": "three", "inputSchema": anything}],
        "removed": [],
        "modified": [{"name": "two", "description": "Second.", "inputSchema": anything}],
    }
    assert (update["reason"], update["revision"]) == ("three came", first["revision"] + 1)
    assert (await caller.call(code, "one"))["output"] == "other, but not to others"


@pytest.mark.requirement("DYN-plugin-diff")
async def test_nothing_is_sent_when_nothing_has_changed(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    await lender.lends("one", "() => 1", inputSchema=NUMBER, annotations={"readOnlyHint": True})
    before = await caller.metadata(code)
    sent: list[str] = []
    lender.page.on("request", lambda request: sent.append(request.url))
    again = {"annotations": {"readOnlyHint": True}, "inputSchema": dict(reversed(NUMBER.items()))}
    await lender.lends("one", "() => 1", **again)
    await lender.does("app.remove('nothing'); await app.settled()")
    assert (await caller.metadata(code))["revision"] == before["revision"]
    assert sent == []


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("0", "0"),
        ("false", "false"),
        ('""', ""),
        ("null", "null"),
        ("undefined", "null"),
        ("[]", "[]"),
        ("{a: [1, 'ö']}", '{"a":[1,"ö"]}'),
    ],
)
async def test_any_json_value_is_a_result(lender: Lender, caller: Caller, value: str, output: str) -> None:
    code = await lender.connect()
    await lender.lends("give", f"async () => ({value})")
    result = await caller.call(code, "give")
    assert (result["status"], result["output"]) == ("success", output)


async def test_a_tool_error_reaches_the_model_and_any_other_exception_only_the_console(
    lender: Lender, caller: Caller
) -> None:
    code = await lender.connect()
    await lender.lends("told", "() => { throw new toolplug.ToolError('there is no row 9') }")
    await lender.lends("hidden", "() => { throw new Error('the password is 1234') }")
    await lender.lends("cyclic", "() => { const it = {}; it.it = it; return it }")
    await lender.lends("mean", "() => ({ mean: 0 / 0 })")
    names = ("told", "hidden", "cyclic", "mean")
    async with lender.page.expect_console_message(lambda message: "the password is 1234" in message.text):
        told, hidden, cyclic, mean = [await caller.call(code, name) for name in names]
    assert (told["status"], told["output"]) == ("tool_error", "there is no row 9")
    assert (hidden["status"], hidden["output"]) == ("tool_error", 'internal error: tool "hidden" failed')
    assert cyclic["output"] == 'result of tool "cyclic" is not JSON'
    assert mean["output"] == 'result of tool "mean" is not JSON'


async def test_progress_comes_before_the_result(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    await lender.lends(
        "work", "(_, {progress}) => { progress(1, 3, 'first'); progress(2, 3); progress(3, 3); return 'done' }"
    )
    body = {"name": "work", "arguments": {}, "session": code}
    answered = await caller.send("POST", "/v1/tool-calls", json=body, headers={"Accept": "text/event-stream"})
    events = [block.split("\n")[0] for block in answered.text.strip().split("\n\n")]
    assert events[0] == "event: progress"
    assert events[-1] == "event: result"
    assert '"progress":3' in answered.text


async def test_a_handler_reads_the_trace_context_of_its_call(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    await lender.lends("traced", "(_, {traceparent, tracestate}) => ({ traceparent, tracestate })")
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1"}
    body = {"name": "traced", "arguments": {}, "session": code}
    traced = await caller.send("POST", "/v1/tool-calls", json=body, headers=trace)
    assert traced.json()["structured"] == trace
    assert (await caller.call(code, "traced"))["structured"] == {}


async def test_a_caller_that_goes_away_aborts_the_handler(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    waiting = "(_, {signal}) => new Promise((_, no) => signal.addEventListener('abort', () => no(signal.reason)))"
    await lender.lends("wait", waiting)
    async with create_task_group() as calls:
        calls.start_soon(caller.call, code, "wait")
        await lender.until("told.some(({phase}) => phase === 'started')")
        calls.cancel_scope.cancel()
    await lender.until("told.some(({phase}) => phase === 'cancelled')")


async def test_a_request_that_is_sent_again_is_not_run_again_and_answered_once(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    await lender.does("window.runs = 0; window.gate = Promise.withResolvers()")
    await lender.lends("slow", "async () => { runs += 1; await gate.promise; return runs }")
    await lender.lends("quick", "() => 'there'")
    results: list[Any] = []

    async def call() -> None:
        results.append(await caller.call(code, "slow"))

    with fail_after(PATIENCE_S):
        async with create_task_group() as calls:
            calls.start_soon(call)
            await lender.until("window.runs === 1")
            await lender.does("told.length = 0; window.dispatchEvent(new Event('online'))")
            await lender.until("told.some(({state}) => state === 'connected')")
            assert (await caller.call(code, "quick"))["output"] == "there"
            await lender.does("gate.resolve()")
    assert [result["structured"] for result in results] == [1]
    log = (await caller.send("GET", f"/api/sessions/{code}/events")).json()["events"]
    sent = [event["data"] for event in log if event["event"] == "tool-request"]
    assert [(request["tool"], request["attempt"]) for request in sent] == [("slow", 1), ("slow", 2), ("quick", 1)]


async def test_a_tool_that_the_host_refuses_does_not_hold_up_the_others(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    await lender.lends("good", "() => 1")
    settled = await lender.does(
        """
        app.tool({name: "bad", inputSchema: {type: "string"}}, () => 1);
        app.tool({name: "better"}, () => 1);
        app.remove("good");
        return await app.settled();
        """
    )
    assert settled["lent"] == ["better"]
    assert [refused["name"] for refused in settled["refused"]] == ["bad"]
    assert "must be of type object" in settled["refused"][0]["error"]
    assert [tool["name"] for tool in (await caller.metadata(code))["tools"]] == ["better"]


async def test_a_refused_tool_that_was_removed_is_tried_again_when_it_is_lent_again(
    lender: Lender, caller: Caller
) -> None:
    await lender.connect()
    await lender.lends("hello", "() => 1")
    assert (await lender.does("return (await app.settled()).refused"))[0]["name"] == "hello"
    assert (await caller.send("POST", "/v1/providers/hello/disable")).status_code == 200
    try:
        await lender.does("app.remove('hello'); await app.settled()")
        await lender.lends("hello", "() => 1")
        assert await lender.does("return await app.settled()") == {"lent": ["hello"], "refused": []}
    finally:
        assert (await caller.send("POST", "/v1/providers/hello/enable")).status_code == 200


async def test_what_a_session_has_no_room_for_takes_no_other_tool_away_and_is_tried_again(
    lender: Lender, caller: Caller
) -> None:
    code = await lender.connect()
    full = await lender.does(
        """
        for (let number = 0; number < 256; number += 1) app.tool({name: `tool_${number}`}, () => number);
        await app.settled();
        app.tool({name: "more"}, () => 1);
        return await app.settled();
        """
    )
    assert full["refused"] == [{"name": "more", "error": "257 tools; a session may have 256"}]
    assert len((await caller.metadata(code))["tools"]) == len(full["lent"]) == 256
    settled = await lender.does("app.remove('tool_0'); return await app.settled()")
    assert (settled["refused"], settled["lent"][-1]) == ([], "more")
    assert (await caller.call(code, "more"))["output"] == "1"


async def test_too_many_updates_wait_as_long_as_the_host_asks_and_then_go_as_one(
    lender: Lender, caller: Caller, host: str
) -> None:
    refused: list[str] = []

    async def too_many(route: Route) -> None:
        refused.append(route.request.post_data or "")
        error = {"code": "too_many_updates", "message": "more than 10 updates a minute"}
        headers = {
            "Retry-After": "20",
            "Access-Control-Expose-Headers": "Retry-After",
            "Access-Control-Allow-Origin": "*",
        }
        await route.fulfill(status=429, json={"error": error}, headers=headers)

    await lender.page.clock.install()
    code = await lender.connect()
    await lender.lends("one", "() => 1")
    await lender.page.route("**/update-tools", too_many, times=1)
    await lender.does("app.tool({name: 'two'}, () => 2)")
    await lender.until("told.some(({retryInMs}) => retryInMs === 20000)")
    await lender.does("app.tool({name: 'three'}, () => 3)")
    await lender.page.clock.run_for(19_000)
    assert {tool["name"] for tool in (await caller.metadata(code))["tools"]} == {"one"}
    await lender.page.clock.run_for(1_000)
    await lender.does("await app.settled()")
    metadata = await caller.metadata(code)
    assert {tool["name"] for tool in metadata["tools"]} == {"one", "two", "three"}
    assert len(refused) == 1
    assert metadata["revision"] == 2


async def test_a_revision_that_has_passed_is_read_again(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    await lender.lends("one", "() => 1")
    asked: list[str] = []

    async def mismatch_once(route: Route) -> None:
        asked.append(route.request.url.rpartition("/")[2])
        if len(asked) > 1:
            await route.continue_()
            return
        error = {"code": "revision_mismatch", "message": "the session is at revision 2, not 1"}
        await route.fulfill(status=412, json={"error": error}, headers=READABLE)

    await lender.page.route(re.compile("/(update-tools|register-tools|metadata)$"), mismatch_once)
    await lender.lends("two", "() => 2")
    assert asked == ["update-tools", "metadata", "update-tools"]
    assert {tool["name"] for tool in (await caller.metadata(code))["tools"]} == {"one", "two"}


async def test_an_answer_that_the_host_could_not_take_is_given_again(lender: Lender, caller: Caller) -> None:
    async def unavailable(route: Route) -> None:
        error = {"code": "store_unavailable", "message": "the store is busy"}
        await route.fulfill(status=503, json={"error": error}, headers=READABLE)

    code = await lender.connect()
    await lender.does("window.runs = 0")
    await lender.lends("count", "() => (runs += 1)")
    await lender.page.route("**/tool-results", unavailable, times=1)
    assert (await caller.call(code, "count"))["structured"] == 1
    assert await lender.does("return runs") == 1


async def test_an_answer_that_is_too_large_becomes_an_error_that_says_so(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    await lender.lends("huge", "() => 'x'.repeat(9 * 1024 * 1024)")
    result = await caller.call(code, "huge")
    assert result["status"] == "tool_error"
    assert result["output"].startswith('the result of tool "huge" was refused: ')


async def test_two_pages_with_one_token_end_in_what_the_last_one_said(
    lender: Lender, caller: Caller, chromium: Any, origin: str, host: str
) -> None:
    code = await lender.connect(kept=True)
    await lender.lends("one", "() => 1")
    token = await lender.does("return JSON.parse(Object.values({...sessionStorage})[0]).token")
    other = Lender(await lender.page.context.new_page(), host)
    await other.page.goto(f"{origin}/data_table.css")
    assert await other.connect(code=code, token=token) == code
    await other.lends("two", "() => 2")
    assert {tool["name"] for tool in (await caller.metadata(code))["tools"]} == {"two"}
    await lender.lends("three", "() => 3")
    assert {tool["name"] for tool in (await caller.metadata(code))["tools"]} == {"one", "three"}


async def test_a_page_that_outlives_a_second_one_puts_its_tools_right_when_it_is_called(
    lender: Lender, caller: Caller
) -> None:
    code = await lender.connect(kept=True)
    await lender.lends("one", "() => 1")
    token = await lender.does("return JSON.parse(Object.values({...sessionStorage})[0]).token")
    other = Lender(await lender.page.context.new_page(), lender.host)
    await other.page.goto(lender.page.url)
    await other.connect(code=code, token=token)
    await other.lends("two", "() => 2")
    async with caller.following(code) as following:
        await other.page.close()
        assert (await caller.call(code, "two"))["output"] == 'this page has no tool "two"'
        updates = (await following.next("tool-availability-update"))["updates"]
    assert ([tool["name"] for tool in updates["added"]], updates["removed"]) == (["one"], ["two"])
    assert (await caller.call(code, "one"))["output"] == "1"


@pytest.mark.requirement("I3-5-model-context")
async def test_what_the_page_registers_with_the_browser_is_lent_while_it_is_registered(
    lender: Lender, caller: Caller
) -> None:
    code = await lender.connect()
    await lender.does(
        """
        window.registration = new AbortController();
        // Some versions of Chromium report what a tool of the page throws as an error of the page.
        addEventListener("unhandledrejection", (event) => event.reason?.message === "secret" && event.preventDefault());
        addEventListener("error", (event) => event.error?.message === "secret" && event.preventDefault());
        const tool = {
            name: "double", title: "Double", description: "Doubles a number.",
            inputSchema: {type: "object", properties: {value: {type: "number"}}, required: ["value"]},
            annotations: {readOnlyHint: true},
            execute: async ({value}) => { if (value < 0) throw new Error("secret"); return {doubled: 2 * value} },
        };
        await document.modelContext.registerTool(tool, {signal: registration.signal});
        await app.lendModelContext();
        await app.settled();
        """
    )
    (lent,) = (await caller.metadata(code))["tools"]
    assert (lent["name"], lent["description"], lent["inputSchema"]) == ("double", "Doubles a number.", NUMBER)
    hints = "async () => (await document.modelContext.getTools())[0].annotations"
    said = {"destructiveHint": False} if "consequentialHint" in await lender.page.evaluate(hints) else {}
    assert lent["annotations"] == {"title": "Double", "readOnlyHint": True, **said}
    assert (await caller.call(code, "double", value=21))["structured"] == {"doubled": 42}
    failed = await caller.call(code, "double", value=-1)
    assert (failed["status"], failed["output"]) == ("tool_error", 'tool "double" failed in its page')
    async with caller.following(code) as following:
        await lender.does("registration.abort()")
        update = await following.next("tool-availability-update")
    assert update["updates"]["removed"] == ["double"]


async def test_a_model_context_that_fails_is_reported_and_leaves_what_was_lent(lender: Lender) -> None:
    await lender.connect()
    await lender.does(
        """
        window.failures = [];
        addEventListener("error", (event) => (failures.push(event.message), event.preventDefault()));
        const tools = [{ name: "one", window, description: "First." }];
        window.context = new EventTarget();
        context.executeTool = async () => "1";
        context.getTools = async () => { if (!tools.length) throw new Error("mine"); return tools.splice(0); };
        await app.lendModelContext(context);
        await app.settled();
        context.dispatchEvent(new Event("toolchange"));
        """
    )
    await lender.until("failures.length === 1")
    assert await lender.does("return [failures[0], app.tools]") == ["Uncaught Error: mine", ["one"]]


async def test_a_browser_without_model_context_lends_nothing_of_it(lender: Lender) -> None:
    await lender.connect()
    assert await lender.does("await app.lendModelContext(undefined ?? {}); return app.tools") == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"host": "nowhere"}, "invalid_host"),
        ({"host": "javascript:alert(1)"}, "invalid_host"),
        ({"host": "http://127.0.0.1:1"}, "unreachable"),
        ({"host": "http://127.0.0.1:1/stranger"}, "invalid_host"),
        ({"host": "http://127.0.0.1:1/stranger", "code": "ABCDEFGH", "token": "tps_1"}, "invalid_host"),
        ({"host": "http://127.0.0.1:1/broken"}, "unknown"),
        ({"code": "ABCDEFGH"}, "token_required"),
        ({"code": "ABCDEFGH", "token": "tps_wrong"}, "authentication_required"),
        ({"ttlSeconds": 0}, "invalid_request"),
    ],
)
async def test_what_is_wrong_has_a_code_and_a_message(
    lender: Lender, host: str, options: dict[str, Any], code: str
) -> None:
    headers = READABLE | {"Access-Control-Allow-Headers": "*"}
    await lender.page.route("**/stranger/**", lambda route: route.fulfill(json={}, headers=headers))
    await lender.page.route("**/broken/**", lambda route: route.fulfill(status=502, body="null", headers=headers))
    error = await lender.page.evaluate(
        """async ([module, options]) => {
            const { connect, ToolplugError } = await import(module);
            const error = await connect(options).catch((error) => error);
            return { right: error instanceof ToolplugError, code: error.code, message: error.message };
        }""",
        [f"{host}/toolplug.js", options],
    )
    assert error["right"]
    assert error["code"] == code
    assert len(error["message"]) > 20


async def test_an_ended_session_closes_the_application_and_says_so(lender: Lender, caller: Caller) -> None:
    code = await lender.connect(kept=True)
    await lender.lends("one", "() => 1")
    assert (await caller.send("DELETE", f"/api/sessions/{code}")).status_code == 204
    await lender.until("app.state === 'closed'")
    assert "was ended" in await lender.does("return told.at(-1).error")
    assert await lender.does("return await app.settled().catch(({code}) => code)") == "session_ended"
    assert await lender.does("return sessionStorage.length") == 0


async def test_a_page_that_ends_its_session_itself_is_told_of_no_error(lender: Lender, caller: Caller) -> None:
    code = await lender.connect()
    await lender.does("await app.end()")
    await lender.until("app.state === 'closed'")
    assert await lender.does("return told.at(-1)") == {"type": "state", "state": "closed", "error": None}
    assert (await caller.metadata(code))["error"]["code"] == "session_ended"


async def test_nothing_is_kept_unless_the_page_asks_and_no_url_holds_a_credential(lender: Lender) -> None:
    urls: list[str] = []
    lender.page.on("request", lambda request: urls.append(request.url))
    await lender.connect()
    await lender.lends("one", "() => 1")
    assert await lender.does("return sessionStorage.length + localStorage.length + document.cookie.length") == 0
    assert not any("tps_" in url for url in urls)
