"""What outlives a catalog: the same counters, windows and breakers under the same level."""

from __future__ import annotations

import json
import logging

import pytest
from tests.execution.harness import Harness

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.plan import PolicyGate
from toolplug.execution.accounting import CallAccounting, level_of
from toolplug.execution.live import LiveCatalog
from toolplug.execution.results import refusal_reason
from toolplug.execution.run import UnknownCalls

pytestmark = pytest.mark.anyio


async def tool(call: object, context: object) -> str:
    return "ran"


@pytest.mark.requirement("DESIGN-ledger", "I2-3-state-survives")
def test_a_level_has_one_memory_whatever_its_numbers() -> None:
    accounting, level = CallAccounting(), ("native", "plays")

    assert accounting.rate(level, 1, 60) is accounting.rate(level, 2, 60)
    assert accounting.breaker(level, 1, 60.0) is accounting.breaker(level, 2, 60.0)
    assert accounting.concurrency_limit(level, 1, 0) is accounting.concurrency_limit(level, 2, 0)
    assert accounting.abandoned_limit("native", "plays") is accounting.abandoned_limit("native", "plays")
    assert accounting.counters("plays", "tool") is accounting.counters("plays", "tool")
    assert accounting.rate((), 1, 60) is not accounting.rate(level, 1, 60)
    assert (accounting.rate((), 1, 60).what, accounting.rate(level, 1, 60).what) == ("every tool", "plays")


@pytest.mark.requirement("LAW-6", "I2-3-state-survives")
async def test_counters_never_fall_when_a_tool_gets_a_new_plan(harness: Harness) -> None:
    for round_of_plans in range(1, 4):
        plan = harness.plan(tool, counters=harness.accounting.counters("plays", "tool"))
        await harness.call(tool, counters=plan.counters)
        assert harness.counted() == {"success": round_of_plans}
        assert sum(harness.counters.buckets) == round_of_plans
    assert level_of(plan.ref) == ("native", "plays", "tool")
    assert harness.accounting.all_counters() == [harness.counters]


@pytest.mark.requirement("H-trust-audit-agrees", "H-trust-no-leak")
async def test_every_refusal_is_one_audit_line_and_one_count(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    context = CallContext(principal=Principal(subject="alice", tenant="t1"), request_id="r1")
    live = LiveCatalog(UnknownCalls(harness.counters), harness.catalog(tool=tool))
    with caplog.at_level(logging.INFO, logger="toolplug.audit"):
        await harness.call(tool, {"token": "hunter2"}, context=context, gates=(PolicyGate("line"),))
        await harness.call(tool, context=context)
        harness.abandoned.running = harness.abandoned.limit
        await harness.call(tool, context=context)
        await live.execute(ToolCall("c1", "\ud800other"), context)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "toolplug.audit"]

    assert [(line["event"], line["outcome"], line["target"]) for line in lines] == [
        ("tool.call", "denied", "tool"),
        ("tool.call", "limited", "tool"),
        ("tool.call", "unknown_tool", "\ud800other"),
    ]
    assert {(line["principal"], line["tenant"], line["request_id"]) for line in lines} == {("alice", "t1", "r1")}
    members = ["ts", "event", "outcome", "principal", "tenant", "target", "request_id"]
    assert [list(line) for line in lines] == [[*members, "reason"], [*members, "reason"], members]
    assert [line.get("reason") for line in lines[::2]] == ["policy: its policy is deny", None]
    assert lines[1]["reason"].startswith("its breaker is open: ")
    assert "hunter2" not in caplog.text
    assert harness.counted() == {"denied": 1, "success": 1, "limited": 1, "unknown_tool": 1}


@pytest.mark.parametrize(
    ("status", "output", "reason"),
    [
        ("denied", "tool \"a\" is not allowed: approval: ask first; then repeat it with 't1'", "approval: ask first"),
        ("limited", 'tool "a" is limited: 5 a minute, retry in 3 s', "5 a minute, retry in 3 s"),
        ("denied", f"of another host: {'x' * 10**6}", f"{'x' * 283}"),
        ("denied", "no", ""),
        ("tool_error", "a secret: of the tool", ""),
    ],
)
def test_the_log_has_why_a_call_was_refused_and_no_text_of_a_tool(status: str, output: str, reason: str) -> None:
    assert refusal_reason(ToolResult("c1", "a", output, ToolStatus(status))) == reason
