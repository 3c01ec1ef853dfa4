"""Calls that a person has allowed by a rule: what finding the rule costs, beside a call that needs nobody."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from statistics import quantiles
from time import thread_time
from typing import Literal

from benchmarks.calling import ALICE, repeated
from benchmarks.frame import Batch, Row
from benchmarks.providers import Trivial
from toolplug import CallContext, Host, Principal, ToolCall, ToolResult, open_host
from toolplug.part_protocols.approvals import GrantTerms
from toolplug.parts.approvals.records import StoredApproval
from toolplug.parts.approvals.running import RunningApprovals

PERSON = Principal(subject="person", tenant="t1", scopes=frozenset({"approvals:write"}))
HOUR_S = 3600.0
CALLERS, GRANTS_OF_EACH = 200, 50
"""10,000 grants: as many of each caller and tool as there may be."""
CLAIMS = 2_000


@asynccontextmanager
async def _host(*, asks: bool) -> AsyncGenerator[Host]:
    """Open a host with the trivial tool, whose calls need an approval that a person can give for several."""
    rule = {"policy": "ask", "grants": {"most": "8h", "scope": "caller", "any": True}}
    entry = {"trivial": {"enabled": True, "tools": {"echo": rule if asks else "allow"}}}
    async with open_host({"store": "memory://", "providers": entry}, providers={"trivial": Trivial()}) as host:
        yield host


async def _grant(host: Host, caller: Principal, arguments: Mapping[str, object] | Literal[True] | None) -> None:
    """Store a grant as a decision does, without the call that is asked about."""
    part = host.part(RunningApprovals)
    tool = host.executor_for(caller).catalog.find("echo")
    assert part is not None
    assert tool is not None
    ref = tool.plan.ref
    asked: StoredApproval = {
        "tool": ref.name,
        "digest": ref.digest,
        "body": "",
        "arguments": {"text": "x"},
        "subject": caller.subject,
        "agent": None,
        "session": False,
        "state": "approved",
        "expires_at": 0.0,
        "decided_by": PERSON.subject,
        "key": None,
        "by_caller": False,
        "tenant": caller.tenant,
        "ref": [*ref[:3]],
        "names": ["text"],
    }
    await part.own.grants.make(asked, GrantTerms(HOUR_S, "caller", arguments), PERSON)


@asynccontextmanager
async def _calls(grant: Mapping[str, object] | Literal[True] | None, *, asks: bool) -> AsyncGenerator[Batch]:
    async with _host(asks=asks) as host:
        if asks:
            await _grant(host, ALICE, grant)
        yield await repeated(host.executor_for(ALICE), ToolCall("c1", "echo", {"text": "x"}))


def granted(grant: Mapping[str, object] | Literal[True] | None) -> AbstractAsyncContextManager[Batch]:
    """Make a call that this grant allows."""
    return _calls(grant, asks=True)


def allowed() -> AbstractAsyncContextManager[Batch]:
    """Make a call that needs nobody."""
    return _calls(None, asks=False)


@asynccontextmanager
async def claims() -> AsyncGenerator[Batch]:
    """Claim calls of many callers, each of whom has 50 rules; one of them, another one each time, fits."""
    async with _host(asks=True) as host:
        callers = [
            Principal(subject=f"caller_{number}", tenant="t1", scopes=frozenset({"tools:call"}))
            for number in range(CALLERS)
        ]
        for caller in callers:
            for number in range(GRANTS_OF_EACH):
                await _grant(host, caller, {"properties": {"text": {"const": f"text {number}"}}})
        tool = host.executor_for(callers[0]).catalog.find("echo")
        assert tool is not None
        plan, approvals = tool.plan, host.approvals
        contexts = [CallContext(caller) for caller in callers]
        calls = [ToolCall("c1", "echo", {"text": f"text {number}"}) for number in range(GRANTS_OF_EACH)]

        async def batch(_: int) -> float:
            took: list[float] = []
            for number in range(CLAIMS):
                # Of neither: the callers take turns, and so does what each of them asks for.
                context, call = contexts[number % CALLERS], calls[(number * 7 + number // CALLERS) % GRANTS_OF_EACH]
                began = thread_time()
                claim = approvals.claim_at_once(plan, call, call, context) or await approvals.claim(plan, call, context)
                took.append(thread_time() - began)
                assert not isinstance(claim, ToolResult), claim
            return quantiles(took, n=100)[98]

        await batch(1)
        yield batch


RULE: Mapping[str, object] = {"properties": {"text": {"maxLength": 100}}}
ROWS = (
    Row(
        name="a call that a grant for every call allows",
        ours=partial(granted, True),
        other=allowed,
        against="a call of an `allow` tool",
        hold=1.5,
        aim=1.3,
    ),
    Row(
        name="a call that a grant for equal calls allows",
        ours=partial(granted, None),
        other=allowed,
        against="a call of an `allow` tool",
        hold=1.5,
        aim=1.3,
    ),
    Row(
        name="a call that a grant with a rule allows",
        ours=partial(granted, RULE),
        other=allowed,
        against="a call of an `allow` tool",
        hold=1.5,
        aim=1.3,
    ),
    Row(
        name="finding which of 10,000 grants allows a call, of 50 for its caller and tool: p99",
        ours=claims,
        hold=50,
        aim=30,
        pairs=15,
        batch_s=0,
    ),
)
