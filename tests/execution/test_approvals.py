"""Calls that a person must approve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Limiter, Plan, Refusal, Tool
from toolplug.errors import ApiError, ToolUnavailable
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.live import LiveCatalog
from toolplug.execution.run import UnknownCalls
from toolplug.execution.task_runner import TaskRunner
from toolplug.part_protocols.approvals import LIFE_S
from toolplug.parts.approvals.running import Approvals
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import Record
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.anyio

ALICE = Principal(subject="alice", tenant="t1", scopes=frozenset({"tools:call"}))
BOB = Principal(subject="bob", tenant="t1", scopes=frozenset({"tools:call", "approvals:write"}))
EVE = Principal(subject="eve", tenant="t2", scopes=frozenset({"tools:call", "approvals:write"}))


class SlowStore(MemoryStore):
    """Gives others a turn between reading a record and writing it, as a store in a file does."""

    async def read(self, key: str) -> Record | None:
        record = await super().read(key)
        await asyncio.sleep(0)
        return record


class ApprovalHarness:
    """One tool that asks, and how often it was reached."""

    def __init__(self, store: MemoryStore, clock: ManualClock, runner: TaskRunner) -> None:
        self.store = store
        self.clock = clock
        self.approvals = Approvals(store)
        self.reached: list[object] = []
        accounting = CallAccounting()
        definition = ToolDefinition(name="pay", description="Pay.").owned_by("native", "bank")
        plan = Plan(
            ref=definition.ref,
            target=self._pay,
            schema=definition.parameters,
            switch=SourceSwitch(),
            counters=accounting.counters("bank", "pay"),
            abandoned=accounting.abandoned_limit("native", "bank"),
            runner=runner,
            timeout_s=60.0,
            max_result_bytes=1000,
            approval=self.approvals,
        )
        self.fault: Exception | None = None
        self.tool = Tool(definition, plan)
        self.executor = LiveCatalog(UnknownCalls(accounting.counters("_unknown", "_unknown")), Catalog([self.tool]))

    def limit(self, limiter: Limiter) -> None:
        """Put a limiter before the tool."""
        plan = replace(self.tool.plan, limiters=(limiter,))
        self.executor.publish(Catalog([self.tool._replace(plan=plan)]))

    async def _pay(self, call: ToolCall, context: CallContext) -> str:
        if self.fault is not None:
            raise self.fault
        self.reached.append(call.arguments)
        return "paid"

    async def call(
        self, principal: Principal, arguments: dict[str, object], approval: str | None = None, **more: object
    ) -> ToolResult:
        context = CallContext(principal=principal, approval=approval)._replace(**more)
        return await self.executor.execute(ToolCall("c1", "pay", arguments), context)

    async def asked(self, principal: Principal, arguments: dict[str, object]) -> str:
        """The id of the ticket of a new call."""
        result = await self.call(principal, arguments)
        assert result.status is ToolStatus.DENIED
        approval = result.metadata["approval"]
        assert isinstance(approval, dict)
        return approval["id"]


@pytest.fixture
async def approvals_harness() -> AsyncIterator[ApprovalHarness]:
    clock, runner = ManualClock(), TaskRunner()
    await runner.open()
    async with SlowStore(clock=clock) as store:
        yield ApprovalHarness(store, clock, runner)
    await runner.aclose()


@pytest.mark.requirement("C-3-policy-ask")
async def test_a_call_that_must_be_approved_is_denied_with_what_a_person_can_decide(
    approvals_harness: ApprovalHarness,
) -> None:
    result = await approvals_harness.call(ALICE, {"amount": 5})
    approval = result.metadata["approval"]
    assert isinstance(approval, dict)
    assert result.status is ToolStatus.DENIED
    assert result.output.startswith('tool "pay" is not allowed: approval: a person must approve this call first')
    assert set(approval) == {"id", "expires_at", "tool", "digest"}
    (ticket,) = await approvals_harness.approvals.waiting("t1")
    assert (ticket.id, ticket.tool, ticket.arguments, ticket.subject, ticket.state) == (
        approval["id"],
        "pay",
        {"amount": 5},
        "alice",
        "waiting",
    )
    assert ticket.expires_at == approval["expires_at"]
    assert approvals_harness.reached == []


@pytest.mark.requirement("C-3-policy-ask-decide", "ROUTE-OQ-approval")
async def test_an_approved_call_runs_once_when_it_is_repeated(approvals_harness: ApprovalHarness) -> None:
    ticket = await approvals_harness.asked(ALICE, {"amount": 5})
    waiting = await approvals_harness.call(ALICE, {"amount": 5}, ticket)
    assert waiting.output == 'tool "pay" is not allowed: approval: no decision yet; try again later'
    decided = await approvals_harness.approvals.decide(ticket, "approve", BOB)
    assert (decided.state, decided.decided_by) == ("approved", "bob")
    assert (await approvals_harness.call(ALICE, {"amount": 5}, ticket)).output == "paid"
    again = await approvals_harness.call(ALICE, {"amount": 5}, ticket)
    assert again.output == 'tool "pay" is not allowed: approval: it was used already; call again without one'
    assert approvals_harness.reached == [{"amount": 5}]


async def test_a_denied_call_stays_denied(approvals_harness: ApprovalHarness) -> None:
    ticket = await approvals_harness.asked(ALICE, {})
    await approvals_harness.approvals.decide(ticket, "deny", BOB)
    assert (
        await approvals_harness.call(ALICE, {}, ticket)
    ).output == 'tool "pay" is not allowed: approval: it was denied by bob'
    assert approvals_harness.reached == []


@pytest.mark.requirement("C-3-policy-ask-bound")
@pytest.mark.parametrize(
    ("principal", "arguments", "more"),
    [
        (ALICE, {"amount": 6}, {}),
        (BOB, {"amount": 5}, {}),
        (ALICE, {"amount": 5}, {"agent": "other"}),
        (ALICE, {"amount": 5}, {"session": "ABCDEFGH"}),
    ],
)
async def test_an_approval_is_for_one_call_of_one_caller(
    approvals_harness: ApprovalHarness, principal: Principal, arguments: dict[str, object], more: dict[str, object]
) -> None:
    ticket = await approvals_harness.asked(ALICE, {"amount": 5})
    await approvals_harness.approvals.decide(ticket, "approve", BOB)
    result = await approvals_harness.call(principal, arguments, ticket, **more)
    assert "it was given for another call, or before the tool has changed; call again without one" in result.output
    assert approvals_harness.reached == []
    assert (await approvals_harness.call(ALICE, {"amount": 5}, ticket)).output == "paid"


async def test_another_tenant_neither_sees_decides_nor_uses_a_ticket(approvals_harness: ApprovalHarness) -> None:
    ticket = await approvals_harness.asked(ALICE, {})
    assert await approvals_harness.approvals.waiting("t2") == []
    with pytest.raises(ApiError) as refused:
        await approvals_harness.approvals.decide(ticket, "approve", EVE)
    assert refused.value.code == "approval_not_found"
    text = 'tool "pay" is not allowed: approval: there is no such approval, or it has expired; call again without one'
    assert (await approvals_harness.call(EVE, {}, ticket)).output == text
    assert (await approvals_harness.call(ALICE, {}, "../x")).output == text


async def test_a_ticket_expires_whether_or_not_it_was_approved(approvals_harness: ApprovalHarness) -> None:
    ticket = await approvals_harness.asked(ALICE, {})
    approvals_harness.clock.now += LIFE_S - 1
    await approvals_harness.approvals.decide(ticket, "approve", BOB)
    approvals_harness.clock.now += 1
    assert (await approvals_harness.call(ALICE, {}, ticket)).status is ToolStatus.DENIED
    assert await approvals_harness.approvals.waiting("t1") == []
    assert approvals_harness.reached == []


async def test_a_ticket_is_decided_once(approvals_harness: ApprovalHarness) -> None:
    ticket = await approvals_harness.asked(ALICE, {})
    await approvals_harness.approvals.decide(ticket, "deny", BOB)
    with pytest.raises(ApiError, match="denied already"):
        await approvals_harness.approvals.decide(ticket, "approve", BOB)


@pytest.mark.requirement("C-3-policy-ask-bound")
async def test_of_two_calls_with_one_ticket_at_once_one_runs(approvals_harness: ApprovalHarness) -> None:
    ticket = await approvals_harness.asked(ALICE, {})
    await approvals_harness.approvals.decide(ticket, "approve", BOB)
    results = await asyncio.gather(*(approvals_harness.call(ALICE, {}, ticket) for _ in range(2)))
    assert sorted(result.status for result in results) == [ToolStatus.DENIED, ToolStatus.SUCCESS]
    assert approvals_harness.reached == [{}]


@pytest.mark.requirement("C-3-policy-ask-decide")
async def test_of_two_people_who_decide_at_once_one_does(approvals_harness: ApprovalHarness) -> None:
    ticket = await approvals_harness.asked(ALICE, {})
    decided = await asyncio.gather(
        approvals_harness.approvals.decide(ticket, "approve", BOB),
        approvals_harness.approvals.decide(ticket, "deny", BOB),
        return_exceptions=True,
    )
    assert [type(outcome).__name__ for outcome in decided].count("ApiError") == 1


@pytest.mark.requirement("C-3-policy-ask-repeated")
async def test_an_approved_ticket_is_used_by_the_next_call_that_is_the_same_and_names_none(
    approvals_harness: ApprovalHarness,
) -> None:
    ticket = await approvals_harness.asked(ALICE, {"amount": 5, "to": "bob"})
    await approvals_harness.approvals.decide(ticket, "approve", BOB)
    for principal, arguments, more in (
        (ALICE, {"amount": 6, "to": "bob"}, {}),
        (BOB, {"amount": 5, "to": "bob"}, {}),
        (ALICE, {"amount": 5, "to": "bob"}, {"agent": "other"}),
        (ALICE, {"amount": 5, "to": "bob"}, {"session": "ABCDEFGH"}),
    ):
        refused = await approvals_harness.call(principal, arguments, **more)
        assert refused.status is ToolStatus.DENIED
    results = await asyncio.gather(
        *(approvals_harness.call(ALICE, {"to": "bob", "amount": 5}) for _ in range(2))  # the order of keys is no change
    )
    assert sorted(result.status for result in results) == [ToolStatus.DENIED, ToolStatus.SUCCESS]
    assert approvals_harness.reached == [{"to": "bob", "amount": 5}]
    again = await approvals_harness.call(ALICE, {"amount": 5, "to": "bob"}, ticket)
    assert again.output == 'tool "pay" is not allowed: approval: it was used already; call again without one'


class OnePerHour:
    """A limiter that admits nothing while it is `full`."""

    full = True
    setting = "rate"

    async def admit(self, deadline: float) -> Refusal | None:
        return Refusal("1 call an hour", 3600.0) if self.full else None

    def on_answer(self, status: str) -> None: ...

    def on_end(self) -> None: ...


@pytest.mark.requirement("C-3-policy-ask-reached")
@pytest.mark.parametrize("named", [True, False])
async def test_an_approval_is_used_up_only_when_the_provider_is_reached(
    approvals_harness: ApprovalHarness, named: bool
) -> None:
    limiter = OnePerHour()
    approvals_harness.limit(limiter)
    ticket = await approvals_harness.asked(ALICE, {})
    await approvals_harness.approvals.decide(ticket, "approve", BOB)
    name = ticket if named else None
    assert (await approvals_harness.call(ALICE, {}, name)).status is ToolStatus.LIMITED
    (kept,) = await approvals_harness.approvals.waiting("t1")
    assert (kept.state, approvals_harness.reached) == ("approved", [])
    limiter.full = False
    assert (await approvals_harness.call(ALICE, {}, name)).output == "paid"
    assert (await approvals_harness.call(ALICE, {}, name)).status is ToolStatus.DENIED
    assert approvals_harness.reached == [{}]


class Queue(OnePerHour):
    """Lets calls wait for their turn."""

    def __init__(self) -> None:
        self.waits, self.turn = asyncio.Event(), asyncio.Event()

    async def admit(self, deadline: float) -> Refusal | None:
        self.waits.set()
        await self.turn.wait()
        return None


@pytest.mark.requirement("C-3-policy-ask-reached")
async def test_a_call_that_is_cancelled_before_its_provider_is_reached_leaves_its_approval(
    approvals_harness: ApprovalHarness,
) -> None:
    queue = Queue()
    approvals_harness.limit(queue)
    ticket = await approvals_harness.asked(ALICE, {})
    await approvals_harness.approvals.decide(ticket, "approve", BOB)
    calling = asyncio.create_task(approvals_harness.call(ALICE, {}))
    await queue.waits.wait()
    calling.cancel()
    await asyncio.wait({calling})
    (kept,) = await approvals_harness.approvals.waiting("t1")
    assert (kept.state, approvals_harness.reached) == ("approved", [])
    queue.turn.set()
    assert (await approvals_harness.call(ALICE, {})).output == "paid"


@pytest.mark.requirement("C-3-policy-ask-reached")
async def test_an_approval_stays_used_where_the_source_went_away_during_the_call(
    approvals_harness: ApprovalHarness,
) -> None:
    ticket = await approvals_harness.asked(ALICE, {})
    await approvals_harness.approvals.decide(ticket, "approve", BOB)
    not_started = ToolUnavailable("its server is down", code="server_down", retry_after_s=2.0)
    approvals_harness.fault = not_started
    assert (await approvals_harness.call(ALICE, {})).status is ToolStatus.UNAVAILABLE
    approvals_harness.fault = ToolUnavailable("its server is down", code="server_down")
    assert (await approvals_harness.call(ALICE, {})).status is ToolStatus.UNAVAILABLE
    (kept,) = await approvals_harness.approvals.waiting("t1")
    assert kept.state == "used"
