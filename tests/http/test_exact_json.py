"""Integers of any size, duplicate keys and depth, wherever arguments and results cross HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.http.conftest import ALICE, BOB
from tests.http.session_plugin import new_plugin, refusal, sessions_host, tool
from tests.http.test_session_calls import attached, ended

from toolplug import FunctionProvider, Principal
from toolplug import tool as as_tool
from toolplug.catalog.exact_json import dump_json

pytestmark = pytest.mark.anyio

WEI = 2**64 + 1
LONGEST = 10**4300 - 1


class Ledger(FunctionProvider):
    """Adds amounts that no double holds."""

    @as_tool
    async def add(self, amounts: list[int]) -> dict[str, int]:
        """Add the amounts."""
        return {"sum": sum(amounts)}

    @as_tool
    async def twice(self, amount: int) -> int:
        """Double the amount."""
        return 2 * amount

    @as_tool
    async def wait(self) -> None:
        """Never answer."""
        await asyncio.Event().wait()


@pytest.fixture
def ledger(package: Any) -> dict[str, object]:
    package("toolplug-ledger", {"ledger": f"{__name__}:Ledger"})
    return {"ledger": {"enabled": True}}


def nested(levels: int) -> str:
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


@pytest.mark.requirement("C-3-exact-integers")
@pytest.mark.parametrize("as_text", [False, True], ids=["object", "text"])
async def test_integers_are_exact_in_arguments_and_results(ledger: dict[str, object], as_text: bool) -> None:
    async with sessions_host(providers=ledger) as served:
        given: object = {"amounts": [WEI, -(2**63) - 1, 1]}
        body = {"name": "add", "id": "c1", "arguments": json.dumps(given) if as_text else given}
        answer = await served.client.post("/v1/tool-calls", headers=ALICE, json=body)
        expected = WEI - 2**63
        assert answer.json() == ended(f'{{"sum":{expected}}}', structured={"sum": expected})


@pytest.mark.requirement("C-3-exact-integers")
@pytest.mark.parametrize("as_text", [False, True], ids=["object", "text"])
@pytest.mark.parametrize(("digits", "status"), [(4299, "success"), (4301, "invalid_arguments")])
async def test_an_integer_may_have_4300_digits(
    ledger: dict[str, object], as_text: bool, digits: int, status: str
) -> None:
    async with sessions_host(providers=ledger) as served:
        text = f'{{"amount":{"1" * digits}}}'
        body = f'{{"name":"twice","arguments":{json.dumps(text) if as_text else text}}}'
        headers = {**ALICE, "content-type": "application/json"}
        answer = await served.client.post("/v1/tool-calls", headers=headers, content=body)
        assert (answer.status_code, answer.json()["status"]) == (200, status)
        assert status != "success" or answer.json()["output"] == "2" * digits


@pytest.mark.requirement("C-3-exact-integers")
async def test_integers_are_exact_through_a_session() -> None:
    async with attached() as it:
        calling = it.calling(arguments={"rows": WEI})
        request = await it.request()
        assert request.data["arguments"] == {"rows": WEI}
        await it.plugin.answer(request.data["id"], result={"rows": LONGEST})
        assert (await calling).json()["structured"] == {"rows": LONGEST}


@pytest.mark.requirement("C-3-exact-integers")
async def test_a_bound_of_a_definition_is_exact() -> None:
    async with sessions_host() as served:
        plugin = await new_plugin(served.client, tool("m", inputSchema={"properties": {"a": {"maximum": WEI}}}))
        listed = await served.client.get(f"{plugin.place}/metadata", headers=ALICE)
        assert f'"maximum":{WEI}' in listed.text
        called = await served.client.post(
            f"{plugin.place}/tool-calls", headers=ALICE, json={"tool": "m", "arguments": {"a": WEI + 1}}
        )
    assert called.json()["status"] == "invalid_arguments"
    assert called.json()["output"].endswith(f"/a: is greater than the maximum of {WEI}")


@pytest.mark.requirement("C-3-exact-integers")
async def test_a_result_with_a_longer_integer_is_not_json() -> None:
    async with attached() as it:
        calling = it.calling()
        request = await it.request()
        body = json.dumps({"id": request.data["id"], "result": 0})[:-2] + "1" + "0" * 4300 + "}"
        headers = {**it.plugin.headers, "content-type": "application/json"}
        await it.served.client.post(f"{it.plugin.place}/tool-results", headers=headers, content=body)
        answer = (await calling).json()
        assert (answer["status"], answer["output"]) == ("tool_error", 'result of tool "add" is not JSON')


@pytest.mark.requirement("C-3-exact-integers")
@pytest.mark.parametrize(("digits", "status"), [(4300, "success"), (4301, "invalid_arguments")])
async def test_a_queued_call_keeps_its_integers(digits: int, status: str) -> None:
    async with attached() as it:
        body = f'{{"tool":"add","wait":false,"arguments":{{"rows":{"7" * digits}}}}}'
        headers = {**ALICE, "content-type": "application/json"}
        taken = await it.served.client.post(f"{it.plugin.place}/tool-calls", headers=headers, content=body)
        place = f"{it.plugin.place}/tool-calls/{taken.json()['id']}"
        if status == "success":
            request = await it.request()
            assert request.data["arguments"] == {"rows": int("7" * digits)}
            await it.plugin.answer(request.data["id"], result=int("8" * digits))
        while (state := (await it.served.client.get(place, headers=ALICE)).json())["status"] != "done":
            await asyncio.sleep(0)
        assert state["result"]["status"] == status
        assert status != "success" or state["result"]["output"] == "8" * digits


@pytest.mark.requirement("C-3-argument-depth")
@pytest.mark.parametrize("as_text", [False, True], ids=["object", "text"])
@pytest.mark.parametrize(
    ("levels", "status"), [(128, "success"), *((levels, "invalid_arguments") for levels in (129, 240, 1000))]
)
async def test_arguments_have_at_most_128_levels_as_object_and_as_text(as_text: bool, levels: int, status: str) -> None:
    async with attached() as it:
        arguments = json.dumps(nested(levels)) if as_text else nested(levels)
        headers = {**ALICE, "content-type": "application/json"}
        body = f'{{"tool":"add","arguments":{arguments}}}'
        place = f"{it.plugin.place}/tool-calls"
        calling = asyncio.create_task(it.served.client.post(place, headers=headers, content=body))
        if status == "success":
            await it.plugin.answer((await it.request()).data["id"], result=1)
        answer = (await calling).json()
        assert answer["status"] == status
        deep = 'invalid arguments for tool "add"\n/: more than 128 levels deep'
        assert status == "success" or answer["output"] == deep


BREAKER = {"breaker": {"failures": 5, "open_for": "30s"}}


@pytest.mark.requirement("C-3-shared-breaker")
async def test_what_one_tenant_sends_opens_no_breaker_for_another(ledger: dict[str, object]) -> None:
    async with sessions_host(providers=ledger, limits=BREAKER) as served:
        mine = await new_plugin(served.client, tool("add_rows"))
        body = {"tool": "add_rows", "arguments": nested(1000)}
        for _ in range(6):
            answer = await served.client.post(f"{mine.place}/tool-calls", headers=ALICE, json=body)
            assert answer.json()["status"] == "invalid_arguments"
        body = {"name": "twice", "arguments": {"amount": 1}}
        answer = await served.client.post("/v1/tool-calls", headers=BOB, json=body)
        assert answer.json()["status"] == "success"


@pytest.mark.requirement("C-3-shared-breaker")
async def test_an_impatient_caller_opens_no_breaker_for_another(ledger: dict[str, object]) -> None:
    async with sessions_host(providers=ledger, limits=BREAKER) as served:
        for _ in range(6):
            body = {"name": "wait", "timeoutMs": 5}
            answer = await served.client.post("/v1/tool-calls", headers=ALICE, json=body)
            assert answer.json()["status"] == "timeout"
        body = {"name": "twice", "arguments": {"amount": 1}}
        answer = await served.client.post("/v1/tool-calls", headers=BOB, json=body)
        assert answer.json()["status"] == "success"


@pytest.mark.requirement("C-3-shared-breaker")
async def test_an_application_that_does_not_answer_opens_no_breaker_for_another(ledger: dict[str, object]) -> None:
    async with sessions_host(providers=ledger, limits={"breaker": {"failures": 1, "open_for": "30s"}}) as served:
        mine = await new_plugin(served.client, tool("add_rows"))
        me = Principal(subject="alice", tenant="t1", scopes=frozenset({"tools:call"}))
        catalog = served.host.executor_for(me, session=mine.code).catalog
        (of_session,), (of_provider,) = catalog["add_rows"].plan.limiters, catalog["twice"].plan.limiters

        assert await of_session.admit(0.0) is None
        of_session.on_answer("timeout")
        of_session.on_end()
        assert of_provider.refusal() is None

        await of_provider.admit(0.0)
        of_provider.on_answer("panic")
        assert await of_session.admit(0.0) is not None  # each level must admit


@pytest.mark.requirement("C-3-duplicate-keys")
@pytest.mark.parametrize(
    "body",
    [
        '{"name":"twice","name":"add","arguments":{"amount":1}}',
        '{"name":"twice","arguments":{"amount":1,"amount":2}}',
        '{"name":"twice","arguments":{"amount":1,"\\u0061mount":2}}',
        f'{{"name":"twice","arguments":{{}},"options":{nested(300)},"name":"add"}}',
    ],
)
async def test_a_duplicate_key_in_a_body_is_refused(ledger: dict[str, object], body: str) -> None:
    async with sessions_host(providers=ledger) as served:
        headers = {**ALICE, "content-type": "application/json"}
        answer = await served.client.post("/v1/tool-calls", headers=headers, content=body)
        assert refusal(answer) == (400, "invalid_json", None)
        assert "duplicate key" in answer.json()["error"]["message"]


@pytest.mark.requirement("C-3-duplicate-keys")
async def test_a_duplicate_key_in_arguments_as_text_is_invalid(ledger: dict[str, object]) -> None:
    async with sessions_host(providers=ledger) as served:
        body = {"name": "twice", "arguments": '{"amount":1,"amount":2}'}
        answer = (await served.client.post("/v1/tool-calls", headers=ALICE, json=body)).json()
        assert (answer["status"], answer["output"]) == (
            "invalid_arguments",
            'invalid arguments for tool "twice"\n/: duplicate key "amount"',
        )


@pytest.mark.requirement("C-3-duplicate-keys")
async def test_a_duplicate_key_in_json_rpc_is_a_parse_error(ledger: dict[str, object]) -> None:
    async with sessions_host(providers=ledger) as served:
        headers = {**ALICE, "content-type": "application/json", "accept": "application/json, text/event-stream"}
        body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"twice","name":"add"}}'
        answer = await served.client.post("/mcp", headers=headers, content=body)
        assert answer.json()["error"]["code"] == -32700


@pytest.mark.parametrize("beside", [1, WEI])
async def test_a_number_that_is_not_finite_is_null_whatever_is_beside_it(beside: int) -> None:
    written = dump_json({"a": [float("inf"), (float("nan"),)], "b": beside, "c": "NaN"})
    assert json.loads(written, parse_constant=_refuse) == {"a": [None, [None]], "b": beside, "c": "NaN"}


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
