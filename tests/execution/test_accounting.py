"""What outlives a catalog: the same counters, windows and breakers under the same level."""

from __future__ import annotations

import json
import logging

import pytest
from tests.execution.harness import Harness

from toolplug.catalog.call import CallContext, Principal, ToolCall
from toolplug.catalog.gates import PolicyGate
from toolplug.execution.accounting import CallAccounting, level_of
from toolplug.execution.live import LiveCatalog
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
    assert all(
        list(line) == ["ts", "event", "outcome", "principal", "tenant", "target", "request_id"] for line in lines
    )
    assert "hunter2" not in caplog.text
    assert harness.counted() == {"denied": 1, "success": 1, "limited": 1, "unknown_tool": 1}
