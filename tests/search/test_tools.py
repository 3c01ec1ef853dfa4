"""`search_tools` and `call_tool`: what they find, whom they find it for, and how what was found is called."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.search.conftest import OpenMany
from tests.search.many_provider import name_of

from toolplug import CallContext, Principal, ToolCall, ToolExecutor, ToolResult

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-9-tool-search")]

CALLER = frozenset({"tools:call"})
ALICE = Principal(subject="alice", tenant="t1", scopes=CALLER)
BOB = Principal(subject="bob", tenant="t2", scopes=CALLER)


async def searched(tools: ToolExecutor, query: str, **more: object) -> ToolResult:
    """The result of one search."""
    return await tools.execute(ToolCall("s1", "search_tools", {"query": query, **more}))


def names(result: ToolResult) -> list[str]:
    """The names that a search has found."""
    structured: Any = result.structured
    return [tool["name"] for tool in structured["tools"]]


async def called(tools: ToolExecutor, name: str, arguments: object = None, **context: Any) -> ToolResult:
    """The result of one call through `call_tool`."""
    given = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
    return await tools.execute(ToolCall("c1", "call_tool", given), CallContext(principal=ALICE, **context))


async def test_a_search_finds_a_tool_with_its_description_and_parameters(open_many: OpenMany) -> None:
    async with open_many() as host:
        result = await searched(host.executor_for(ALICE), "merge the branch of a department", limit=1)
    assert result.status == "success"
    found: Any = result.structured
    assert found["tools"] == [
        {
            "name": "merge_branch_37",
            "description": "Merge the branch of a department in the system of record.",
            "parameters": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "the id of the branch"},
                    "note": {"type": "string", "description": "what to write in the log"},
                },
                "required": ["id"],
                "additionalProperties": False,
            },
        }
    ]
    assert orjson.loads(result.output) == found


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("share invoices", "share_invoice_9"),
        ("SHARE_INVOICE_9", "share_invoice_9"),
        ("shareInvoice", "share_invoice_9"),
        ("I need the tool that exports the reports", "export_report_45"),
        ("merge\u202e branch\u200b", "merge_branch_37"),
        ("  ticket,archive!!", "archive_ticket_26"),
    ],
)
async def test_words_are_found_however_they_are_written(open_many: OpenMany, query: str, best: str) -> None:
    async with open_many() as host:
        assert names(await searched(host.executor_for(ALICE), query))[0] == best


async def test_every_tool_is_found_by_its_own_name(open_many: OpenMany) -> None:
    async with open_many() as host:
        tools = host.executor_for(ALICE)
        missed = [
            number for number in range(100) if name_of(number) not in names(await searched(tools, name_of(number)))
        ]
    assert missed == []


async def test_a_search_that_finds_nothing_says_so(open_many: OpenMany) -> None:
    async with open_many() as host:
        tools = host.executor_for(ALICE)
        results = [await searched(tools, query) for query in ("zeppelin", "?!", "\u202e\u200b", " ")]
    found: Any = [result.structured for result in results]
    assert [(each["tools"], each["unmatched"], each["of"]) for each in found] == [
        ([], ["zeppelin"], 100),
        ([], [], 100),
        ([], [], 100),
        ([], [], 100),
    ]
    assert found[0]["hint"] == "No tool fits 'zeppelin': none of the 100 tools that are not listed has its words"
    assert {result.status for result in results} == {"success"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "query"),
        ({"query": ""}, "query"),
        ({"query": "x" * 1_000_000}, "too large to explain"),
        ({"query": ["merge"]}, "query"),
        ({"query": "merge", "limit": 0}, "limit"),
        ({"query": "merge", "limit": 10_000}, "limit"),
        ({"query": "merge", "tenant": "t2"}, "tenant"),
        ("{not json", "JSON"),
    ],
)
async def test_invalid_searches_are_refused(open_many: OpenMany, arguments: Any, said: str) -> None:
    async with open_many() as host:
        result = await host.executor_for(ALICE).execute(ToolCall("s1", "search_tools", arguments))
    assert (result.status, said in result.output) == ("invalid_arguments", True)
    assert len(result.output) < 3_000


async def test_a_query_of_a_thousand_words_is_answered(open_many: OpenMany) -> None:
    async with open_many() as host:
        result = await searched(host.executor_for(ALICE), "merge branch " * 76)
    assert names(result)[0] == "merge_branch_37"


@pytest.mark.parametrize("arguments", [{"id": "7", "note": "done"}, '{"id": "7", "note": "done"}'])
async def test_what_was_found_is_called_with_an_object_or_its_text(open_many: OpenMany, arguments: object) -> None:
    async with open_many() as host:
        result = await called(host.executor_for(ALICE), "merge_branch_37", arguments)
    direct = {"did": "merge_branch_37", "of": "alice", "id": "7", "note": "done"}
    assert result == ToolResult(
        call_id="c1",
        name="merge_branch_37",
        output=orjson.dumps(direct).decode(),
        structured=direct,
        parts=({"type": "text", "text": "part"},),
        metadata={"seen": "merge_branch_37"},
    )


async def test_a_deferred_tool_is_called_by_its_own_name_as_well(open_many: OpenMany) -> None:
    async with open_many() as host:
        tools = host.executor_for(ALICE)
        assert tools.can_execute("merge_branch_37")
        result = await tools.execute(ToolCall("c1", "merge_branch_37", {"id": "7"}))
    assert result.status == "success"


async def test_invalid_arguments_are_answered_as_by_the_tool_with_its_schema(open_many: OpenMany) -> None:
    async with open_many() as host:
        tools = host.executor_for(ALICE)
        result = await called(tools, "merge_branch_37", {"branch": 7})
        direct = await tools.execute(ToolCall("c1", "merge_branch_37", {"branch": 7}))
        schema = tools.catalog["merge_branch_37"].definition.parameters.text.decode()
    assert result == direct._replace(output=f"{direct.output}\nThe parameters of merge_branch_37: {schema}")
    assert result.status == "invalid_arguments"


async def test_errors_of_a_tool_are_answered_as_by_itself(open_many: OpenMany) -> None:
    async with open_many() as host:
        tools = host.executor_for(ALICE)
        assert await called(tools, "merge_branch_37", {"id": "none"}) == await tools.execute(
            ToolCall("c1", "merge_branch_37", {"id": "none"})
        )


@pytest.mark.parametrize("name", ["unheard_of", "", "x" * 300, "many.merge_branch_37"])
async def test_an_unknown_name_is_answered_as_by_a_direct_call(open_many: OpenMany, name: str) -> None:
    async with open_many() as host:
        tools = host.executor_for(ALICE)
        result = await called(tools, name)
        direct = await tools.execute(ToolCall("c1", name, {}), CallContext(principal=ALICE))
    assert result == direct
    assert result.status == "unknown_tool"


@pytest.mark.parametrize("name", ["search_tools", "call_tool"])
async def test_the_two_tools_do_not_call_one_another(open_many: OpenMany, name: str) -> None:
    async with open_many() as host:
        result = await called(host.executor_for(ALICE), name, {"query": "merge"})
    assert (result.status, result.output) == ("tool_error", f"call {name} itself, not through call_tool")


@pytest.mark.parametrize("arguments", [{}, {"name": 7}, {"name": "x", "arguments": [1]}, {"name": "x", "more": 1}, "["])
async def test_invalid_calls_are_refused(open_many: OpenMany, arguments: Any) -> None:
    async with open_many() as host:
        result = await host.executor_for(ALICE).execute(ToolCall("c1", "call_tool", arguments))
    assert (result.status, result.name) == ("invalid_arguments", "call_tool")


async def test_progress_and_the_deadline_reach_the_tool(open_many: OpenMany) -> None:
    reports: list[tuple[object, ...]] = []
    async with open_many() as host:
        await called(
            host.executor_for(ALICE), "merge_branch_37", {"id": "7"}, report=lambda *said: reports.append(said)
        )
        late = await called(host.executor_for(ALICE), "merge_branch_37", {"id": "7"}, deadline=0.0)
    assert reports == [(1.0, 2.0, "half done")]
    assert (late.status, late.name) == ("timeout", "merge_branch_37")


async def test_a_call_is_counted_once_under_the_name_of_its_tool(open_many: OpenMany) -> None:
    async with open_many() as host:
        await called(host.executor_for(ALICE), "merge_branch_37", {"id": "7"})
        await searched(host.executor_for(ALICE), "merge")
        counted = [
            (sample.labels["provider"], sample.labels["tool_name"], sample.value)
            for family in host.metrics.collect()
            for sample in family.samples
            if sample.name.endswith("builtin_tool_executions_total") and sample.value
        ]
    assert counted == [("many", "merge_branch_37", 1.0), ("_search", "search_tools", 1.0)]


async def test_gates_limits_and_approval_are_those_of_the_tool(open_many: OpenMany) -> None:
    rules = {"merge_branch_37": "ask", "share_invoice_9": "deny", "export_report_45": {"limits": {"rate": "1/minute"}}}
    async with open_many({"tools": rules}) as host:
        tools = host.executor_for(ALICE)
        asked = await called(tools, "merge_branch_37", {"id": "7"})
        ticket: Any = asked.metadata["approval"]
        root = Principal(subject="root", tenant="t1", scopes=frozenset({"admin"}))
        await host.approvals.decide(ticket["id"], "approve", root)
        approved = await called(tools, "merge_branch_37", {"id": "7"}, approval=ticket["id"])
        again = await called(tools, "merge_branch_37", {"id": "7"}, approval=ticket["id"])
        denied = await called(tools, "share_invoice_9", {"id": "7"})
        limited = [(await called(tools, "export_report_45", {"id": "7"})).status for _ in range(2)]
    assert [asked.status, approved.status, again.status, denied.status] == ["denied", "success", "denied", "denied"]
    assert limited == ["success", "limited"]


async def test_idempotent_calls_are_replayed(open_many: OpenMany) -> None:
    async with open_many() as host:
        tools = host.executor_for(ALICE)
        first = await called(tools, "merge_branch_37", {"id": "7"}, idempotency_key="k")
        second = await called(tools, "merge_branch_37", {"id": "7"}, idempotency_key="k")
    assert second.metadata == {**first.metadata, "idempotent_replayed": True}


async def test_nobody_finds_or_calls_the_tool_of_another_tenant(open_many: OpenMany) -> None:
    async with open_many({"tools": {"merge_branch_37": {"tenants": ["t1"]}}}) as host:
        ours, theirs = host.executor_for(ALICE), host.executor_for(BOB)
        assert "merge_branch_37" in names(await searched(ours, "merge branch"))
        assert "merge_branch_37" not in names(await searched(theirs, "merge branch", limit=20))
        result = await theirs.execute(
            ToolCall("c1", "call_tool", {"name": "merge_branch_37", "arguments": {"id": "7"}})
        )
    assert (result.status, result.output) == ("unknown_tool", 'no builtin provider handles tool "merge_branch_37"')


async def test_a_tool_that_is_gone_after_the_search_is_unknown(open_many: OpenMany) -> None:
    async with open_many() as host:
        tools = host.executor_for(ALICE)
        assert names(await searched(tools, "merge branch", limit=1)) == ["merge_branch_37"]
        await host.disable("many", by=ALICE)
        assert (await tools.execute(ToolCall("c1", "call_tool", {"name": "merge_branch_37"}))).status == "unknown_tool"
        await host.enable("many", by=ALICE)
        assert names(await searched(tools, "merge branch", limit=1)) == ["merge_branch_37"]


async def test_without_the_scope_to_call_the_search_is_refused_like_every_tool(open_many: OpenMany) -> None:
    reader = Principal(subject="reader", scopes=frozenset({"tools:read"}))
    async with open_many() as host:
        tools = host.executor_for(reader)
        assert [tool.name for tool in tools.catalog.shown.definitions()] == ["search_tools", "call_tool"]
        results = [
            await tools.execute(ToolCall("c", "search_tools", {"query": "merge"})),
            await tools.execute(ToolCall("c", "call_tool", {"name": "merge_branch_37", "arguments": {"id": "7"}})),
        ]
    assert [result.status for result in results] == ["denied", "denied"]


async def test_a_result_is_bounded_and_its_best_tool_whole(open_many: OpenMany) -> None:
    async with open_many() as host:
        result = await searched(host.executor_for(ALICE), "system of record", limit=20)
    assert len(result.output) < 17 * 1024
    found: Any = result.structured
    assert (len(found["tools"]), found["of"]) == (20, 100)


async def test_ten_thousand_tools_of_one_word_are_searched(open_many: OpenMany) -> None:
    async with open_many(
        {"count": 0, "extra": [f"w{'x' * (number % 50)}_{number}" for number in range(10_000)]}
    ) as host:
        result = await searched(host.executor_for(ALICE), "w")
    assert len(names(result)) == 5
