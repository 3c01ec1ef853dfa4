"""The one function that runs a call, and the only way from a provider's exception to a result.

    switch → gates → decode → validate → hooks → replay → breaker, rate, concurrency → target → encode, size → count

Order and texts are CONTRACT.md section 3. What every call needs stands here and in `attempt`; a plan with more around
it (hooks, limiters, retries, artifacts), and a call with an idempotency key, goes through `guarded` on the way.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import cast

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus, quick_call
from toolplug.catalog.current import current_frame
from toolplug.catalog.plan import Plan
from toolplug.catalog.schema import compiled
from toolplug.errors import InvalidArguments
from toolplug.execution.attempt import Running, begin, finished, sized
from toolplug.execution.audit import audit
from toolplug.execution.guarded import guarded
from toolplug.execution.results import denied, ended, failed, gone, readable
from toolplug.signatures.values import decoded

MAX_DEPTH = 16

_REFUSED = frozenset({ToolStatus.DENIED, ToolStatus.LIMITED, ToolStatus.UNKNOWN_TOOL})


async def run(plan: Plan, call: ToolCall, context: CallContext) -> ToolResult:
    """Run one call by its plan. Only the caller's own cancellation escapes."""
    began = perf_counter()
    result, inner = None, call
    try:
        nested = current_frame.get()[1] >= MAX_DEPTH
        if plan.gates or nested or not plan.switch.open:
            result = _refused(plan, call, context, nested)
        if result is None:
            inner = _prepared(plan, call)
    except BaseException as error:  # noqa: BLE001  a converter is the provider's own code
        result = sized(plan, failed(call, error, plan))
    if result is None:
        try:
            if plan.guarded or context.idempotency_key is not None:
                result = await guarded(plan, call, inner, context, began)
            else:
                outcome = begin(plan, call, inner, context, began)
                result = await finished(call, outcome) if isinstance(outcome, Running) else outcome
        except (asyncio.CancelledError, GeneratorExit):
            plan.series.record(ToolStatus.CANCELLED, perf_counter() - began)
            raise
        except Exception as error:  # noqa: BLE001  what stands around the target may fail too
            result = failed(call, error, plan)
    status = result.status
    plan.series.record(status, perf_counter() - began)
    if status in _REFUSED:
        audit("tool.call", status, context.principal, call.name, context.trace)
    return result


def unknown_tool(call: ToolCall, text: str, context: CallContext) -> ToolResult:
    """The answer to a name that the caller's catalog does not list; audited like every refusal."""
    audit("tool.call", ToolStatus.UNKNOWN_TOOL, context.principal, call.name, context.trace)
    return ended(call._replace(name=readable(call.name)), ToolStatus.UNKNOWN_TOOL, readable(text))


def _refused(plan: Plan, call: ToolCall, context: CallContext, nested: bool) -> ToolResult | None:
    """Hidden and unknown are one answer, and come before any refusal of what the caller can see."""
    hidden = not plan.switch.open
    refusal = None
    for gate in plan.gates:
        reason = gate.refusal(context.principal)
        if reason is not None and gate.hides:
            hidden = True
        elif reason is not None and refusal is None:
            refusal = denied(call, gate.name, reason)
    if hidden:
        return gone(call)
    if refusal is None and nested:
        return denied(call, "depth", f"tools call one another {MAX_DEPTH} deep")
    return refusal


def _prepared(plan: Plan, call: ToolCall) -> ToolCall:
    """The call under the tool's own name, with its arguments decoded, validated and converted."""
    given = call.arguments
    arguments = decoded(given) if plan.copies or type(given) is not dict else cast("dict[str, object]", given)
    try:
        valid = compiled(plan.schema.text).is_valid(arguments)
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise InvalidArguments(plan.schema.refusals(arguments))
    converted = arguments if plan.convert is None else plan.convert(arguments)
    name = plan.ref.name
    if converted is given and call.name == name:
        return call
    return quick_call(ToolCall, (call.id, name, converted))
