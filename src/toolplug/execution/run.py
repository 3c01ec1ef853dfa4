"""The pipeline of a call: `run` is the only function that runs one and turns a provider's exception into a result.

    switch → gates → decode → validate → before_call → approval → replay → breaker, rate, concurrency
        → target → encode → change_result → size → count → after_call

Order and texts are those of reference/statuses.md. Calls with hooks or with an idempotency key, and plans with
approval, limiters, retries or artifacts, go through `run_pipeline`; any other call goes straight to the target.
Who waits for a result, what a caller that goes away leaves running, attempts and their limiters are in `attempts.py`;
what is counted is in `accounting.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from time import perf_counter
from typing import NamedTuple

from toolplug.catalog.call import (
    EMPTY,
    NOT_SENT,
    CallContext,
    ToolCall,
    ToolResult,
    ToolStatus,
    current_frame,
    quick_call,
    quick_result,
)
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.exact_json import TOO_LARGE, TOO_SMALL, as_object
from toolplug.catalog.plan import (
    NO_HOOKS,
    Approval,
    ApprovalClaim,
    HookSource,
    NeedsApproval,
    Plan,
    listed_name,
)
from toolplug.errors import InvalidArguments, StoreError
from toolplug.execution.accounting import CallCounters, audit
from toolplug.execution.attempts import (
    ABANDONED,
    PipelineCall,
    StartedCall,
    allowed_seconds,
    begin,
    limit_seconds,
    run_with_retries,
    wait_for_result,
)
from toolplug.execution.call_hooks import CallHooks
from toolplug.execution.idempotency import outcome_unknown
from toolplug.execution.isolated_hooks import read_only_call
from toolplug.execution.results import (
    ASCII_SAFE,
    denied_result,
    error_result,
    gone_result,
    limited_result,
    readable,
    refusal_reason,
    text_result,
    timed_out,
    unavailable,
    within_size,
)
from toolplug.signatures.values import decode_arguments, encode_value, integer_too_long

_LOG = logging.getLogger("toolplug.execution")
# Python 3.11 finds a member of an enumeration in 100 ns, and each call that a grant allows is asked for it.
_SUCCESS = ToolStatus.SUCCESS
_NOT_REACHED = frozenset({ToolStatus.LIMITED, ToolStatus.DENIED, ToolStatus.UNAVAILABLE})


async def run_pipeline(it: PipelineCall) -> ToolResult:
    """Run approval, replay, limiters and the target with its retries; plugins may change what a tool returned."""
    approval = it.plan.approvals if it.needs is not None else it.plan.approval
    if approval is None and it.needs is not None:
        return denied_result(it.call, "approval", f"{it.needs}; and there is no one to ask")
    return await (_replay_or_run(it) if approval is None else _run_approved(approval, it))


async def _run_approved(approval: Approval, it: PipelineCall) -> ToolResult:
    """Return the refusal of an unapproved call, else its result; the approval is released if no tool was reached."""
    claim = await approval.claim(it.plan, it.call, it.context, it.needs, listed_name(it.call, it.tool))
    if isinstance(claim, ToolResult):
        return claim
    if claim.ticket is not None and claim.ticket == it.context.approval:
        # It is used up: the tool sees the ticket of a call that it makes itself, and none of its own.
        it.context = it.context._replace(approval=None)
    elif claim.ticket is None and claim.goes_on is not None:
        # Another call has the right meanwhile. This one may not begin anything: it is about what that one waited for.
        it.context = it.context._replace(approval=claim.goes_on)
    try:
        refusal = None if claim.arguments is None else await _replace_arguments(it, claim.arguments)
        result = await _replay_or_run(it) if refusal is None else refusal
    except (asyncio.CancelledError, Exception):
        if not it.reached:
            await claim.release()
        raise
    if _may_have_run(it, result):
        await claim.end()
    else:
        await claim.release(as_object(result.metadata.get("approval")))
    if claim.arguments is not None and refusal is None:
        # Beside the output: a structured value, and the text of one, stay what the tool has returned.
        note = f"[a person has changed the arguments: it ran with {encode_value(claim.arguments)}]"
        result = result._replace(parts=(*result.parts, {"type": "text", "text": note}))
    return result._replace(metadata={**result.metadata, **claim.metadata}) if claim.metadata else result


async def _replace_arguments(it: PipelineCall, arguments: Mapping[str, object]) -> ToolResult | None:
    """Let these arguments run, which a person has put in place of the caller's; return the refusal of a plugin."""
    changed = it.call._replace(arguments=dict(arguments))
    it.inner = _prepare(it.plan, changed)
    if it.hooks is None:
        return None
    it.shown = read_only_call(it.inner, nested=True)
    if not it.hooks.asks:
        return None
    return (await _find_veto(it.call, it.shown, it.context, it.tool, it.hooks, it.began + it.seconds))[0]


def _may_have_run(it: PipelineCall, result: ToolResult) -> bool:
    """Return True if the tool may have had its effect.

    A source that becomes unavailable during a call does not say when to retry.
    """
    return it.reached and (_is_lost(result) or result.status not in _NOT_REACHED)


def _is_lost(result: ToolResult) -> bool:
    # With `retry_after_s`, or without a credential, the call was not sent, so the tool cannot have run.
    lost = result.status is ToolStatus.UNAVAILABLE and result.retry_after_s is None
    return lost and result.metadata.get("code") not in NOT_SENT


def _add_claim(result: ToolResult, claim: ApprovalClaim) -> tuple[ToolResult, bool]:
    """Return the result with what the claim says of it, and False if the tool cannot have run."""
    call_id, name, output, status, structured, parts, metadata, retry_after_s = result
    reached = status is _SUCCESS or status not in _NOT_REACHED or _is_lost(result)
    more = claim.metadata
    if more is EMPTY:
        return result, reached
    if metadata is not EMPTY:
        more = {**metadata, **more}
    return quick_result(ToolResult, (call_id, name, output, status, structured, parts, more, retry_after_s)), reached


async def _replay_or_run(it: PipelineCall) -> ToolResult:
    """Return the first result under the call's key, or this call's own, which is stored if the tool was reached.

    A call that is cancelled while its tool runs leaves `outcome_unknown`: the tool may still have its effect.
    """
    plan, call, context, replay = it.plan, it.call, it.context, it.plan.replay
    if replay is None or context.idempotency_key is None:
        return await _try(it)
    try:
        # `it.inner` has the decoded arguments: two spellings of the same JSON are one call.
        first = await replay.begin(plan, it.inner, context, it.seconds)
    # Refused, not run without a key: the caller has asked for at most one run, and nobody could say later whether it
    # had been the second one.
    except StoreError as error:
        _LOG.error("the store of idempotent replays fails: %s", error)
        return unavailable(call, "its store cannot answer", code="store_unavailable")
    if first is not None:
        return first._replace(call_id=call.id, name=call.name)
    try:
        result = await _try(it)
    except (asyncio.CancelledError, Exception):
        # A cancelled caller gets no result, but its repetition does: not the result of a second run.
        await replay.finish(plan, context, outcome_unknown(call) if it.reached else None)
        raise
    await replay.finish(plan, context, result if _may_have_run(it, result) else None)
    return result


async def _try(it: PipelineCall) -> ToolResult:
    result = await run_with_retries(it)
    if not it.ended:
        return result
    if it.hooks is not None and it.hooks.changes:
        limit = it.plan.max_result_bytes
        until = it.began + it.seconds
        result = await it.hooks.change_result(it.shown or it.call, it.context, it.tool, result, until, limit)
    return await within_size(it.plan, result, it.context)


MAX_DEPTH = 16

# What an audit has to show: somebody asked for what he may not have. Failures of tools are in the metrics.
_REFUSED = frozenset({ToolStatus.DENIED, ToolStatus.LIMITED, ToolStatus.UNKNOWN_TOOL})


async def run(  # noqa: PLR0912, PLR0915  one function is the whole pipeline
    plan: Plan, call: ToolCall, context: CallContext, hooked: bool = False, tool: ToolDefinition | None = None
) -> ToolResult:
    """Run one call by its plan and return its result. Raises only the caller's own cancellation.

    A `hooked` call has the hooks of its plan's host at the moment when it begins; they see the `tool` as it is listed.
    """
    began = perf_counter()
    result, inner, shown, seconds, needs, claim = None, call, None, plan.timeout_s, None, None
    hooks = plan.hooks.current if hooked else None
    if hooks is not None:
        # Before anything is awaited: a plugin that is removed from now on waits for the end of this call.
        hooks.calls.running += 1
    try:
        try:
            # Everything that can refuse comes first and awaits nothing, so that a refused call costs no task and no
            # turn.
            if plan.gates or not plan.switch.open or current_frame.get()[1] >= MAX_DEPTH:
                result = _check_gates(plan, call, context)
            if result is None:
                inner = _prepare(plan, call)
                shown = _show(plan, inner) if hooks is not None and hooks.shows else inner
        # Its size is limited too: a converter of the provider may raise an error with a text of megabytes.
        except BaseException as error:  # noqa: BLE001  a converter is the provider's own code
            result = await within_size(plan, error_result(call, error, plan, context), context)
        if result is None:
            try:
                # Without a deadline of the caller the plan's own time stands, and no clock is read.
                seconds = seconds if context.deadline is None else allowed_seconds(plan, context, began)
                asked = hooks is not None and hooks.asks
                if asked and hooks is not None and shown is not None:
                    result, needs = await _find_veto(call, shown, context, tool, hooks, began + seconds)
                # Asked again after the hooks, whose time counts for the call; without hooks and deadline nothing can
                # have passed.
                if (asked or context.deadline is not None) and began + seconds <= perf_counter():
                    result = timed_out(call, limit_seconds(plan, context, seconds))
                elif result is None and (plan.needs_pipeline or not (context.idempotency_key is needs is None)):
                    claim = _claim_at_once(plan, call, inner, context, needs, tool)
                    if claim is None:
                        it = PipelineCall(plan, call, inner, context, began, seconds, hooks, tool, shown, needs)
                        result = await run_pipeline(it)
                # The one limiter of the short way: every provider has it, and an integer is compared faster than a
                # limiter is asked.
                if result is None and plan.abandoned.running >= plan.abandoned.limit:
                    plan.counters.limited_by(ABANDONED)
                    result = limited_result(call, plan.abandoned.refusal())
                elif result is None:
                    result = begin(plan, call, inner, context, began, seconds)
                    if isinstance(result, StartedCall):
                        result = await wait_for_result(call, result, context)
                    if result is not None and hooks is not None and hooks.changes:
                        until, limit = began + seconds, plan.max_result_bytes
                        result = await hooks.change_result(shown or call, context, tool, result, until, limit)
                    if result is None:
                        result = timed_out(call, limit_seconds(plan, context, seconds))
                    # Characters may be several bytes: a text that is short enough in the worst case is not encoded to
                    # measure it.
                    elif len(result.output) * ASCII_SAFE > plan.max_result_bytes:
                        result = await within_size(plan, result, context)
                if claim is not None:
                    result, was_reached = _add_claim(result, claim)
                    await claim.release() if not was_reached else None
            # The one exception that leaves: its caller is gone. `GeneratorExit` means that the loop is gone too, and
            # nothing can be awaited any more.
            except (asyncio.CancelledError, GeneratorExit) as left:
                plan.counters.record(ToolStatus.CANCELLED, perf_counter() - began)
                if hooks is not None and hooks.observes and isinstance(left, asyncio.CancelledError):
                    await _note(hooks, shown or call, context, tool, _cancelled_result(call), perf_counter() - began)
                raise
            except Exception as error:  # noqa: BLE001  stores and limiters may fail too
                result = error_result(call, error, plan, context)
        status, duration_s = result.status, perf_counter() - began
        plan.counters.record(status, duration_s)
        if status in _REFUSED:
            _audit_refusal(call, tool, result, context)
        if hooks is not None and hooks.observes:
            shown = shown or read_only_call(call, nested=False)
            noted = hooks.report_answer(shown, context, tool, result, duration_s, seconds - duration_s)
            if noted is not None:
                await noted  # as `_note`, without its coroutine, which would cost each call 0.2 µs
        return result
    finally:
        if hooks is not None:
            hooks.calls.leave()


def _show(plan: Plan, inner: ToolCall) -> ToolCall:
    """Return the call as plugins see it, whose changes of it the tool may not see."""
    return read_only_call(inner, nested=plan.copies or plan.convert is not None)


def _claim_at_once(
    plan: Plan,
    call: ToolCall,
    inner: ToolCall,
    context: CallContext,
    needs: str | None,
    tool: ToolDefinition | None,
) -> ApprovalClaim | None:
    """Return the right to run that a grant gives without a wait; None if there is none, or something else to ask."""
    if plan.at_once is None or not (needs is context.approval is context.idempotency_key is None):
        return None
    return plan.at_once.claim_at_once(plan, call, inner, context, listed_name(call, tool))


def _audit_refusal(call: ToolCall, tool: ToolDefinition | None, result: ToolResult, context: CallContext) -> None:
    reason = refusal_reason(result)
    why = {"reason": reason} if reason else {}
    audit("tool.call", result.status, context.principal, listed_name(call, tool), context.request_id, None, **why)


async def _find_veto(
    call: ToolCall,
    shown: ToolCall,
    context: CallContext,
    tool: ToolDefinition | None,
    hooks: CallHooks,
    until: float,
) -> tuple[ToolResult | None, str | None]:
    """Return the refusal of a plugin's `before_call`, and why one wants an approval; None if none does."""
    reason = hooks.refusal(shown, context, tool, until)
    # Hooks may be synchronous: those answer without a coroutine and without an await.
    if reason is not None and not isinstance(reason, str | NeedsApproval):
        reason = await reason
    if isinstance(reason, str):
        return denied_result(call, "hook", reason), None
    return None, None if reason is None else reason.reason


def _cancelled_result(call: ToolCall) -> ToolResult:
    """Return what plugins see of a call that its caller has left."""
    return text_result(call, ToolStatus.CANCELLED, "the caller did not wait for the result")


async def _note(
    hooks: CallHooks,
    shown: ToolCall,
    context: CallContext,
    tool: ToolDefinition | None,
    result: ToolResult,
    duration_s: float,
) -> None:
    """Pass the end of a call that nobody waits for to the plugins."""
    noted = hooks.report_answer(shown, context, tool, result, duration_s, 0.0)
    # None if no hook has to be waited for, as for the hooks that run in the background.
    if noted is not None:
        await noted


class UnknownCalls(NamedTuple):
    """Answers the calls of names that a caller's catalog does not list; plugins see them too."""

    counters: CallCounters
    hooks: HookSource = NO_HOOKS

    async def answer(self, call: ToolCall, text: str, context: CallContext) -> ToolResult:
        """Count and audit the call, and return its result with this text."""
        self.counters.record(ToolStatus.UNKNOWN_TOOL, 0.0)
        hooks = self.hooks.current
        if hooks is None:
            return _unknown_tool(call, text, context)

        async def answer_unknown(context: CallContext) -> ToolResult:
            result = _unknown_tool(call, text, context)
            await _note(hooks, read_only_call(call, nested=False), context, None, result, 0.0)
            return result

        # A reload that changes the hooks waits until the calls that began with the old ones have been answered.
        hooks.calls.running += 1
        try:
            return await hooks.trace(None, call, context, answer_unknown)
        finally:
            hooks.calls.leave()


def _unknown_tool(call: ToolCall, text: str, context: CallContext) -> ToolResult:
    audit("tool.call", ToolStatus.UNKNOWN_TOOL, context.principal, call.name, context.request_id)
    return text_result(call._replace(name=readable(call.name)), ToolStatus.UNKNOWN_TOOL, readable(text))


def _check_gates(plan: Plan, call: ToolCall, context: CallContext) -> ToolResult | None:
    """Return the refusal of a gate; a hidden tool reads as an unknown one, before any refusal of a visible tool."""
    # A source that is switched off is as good as not there: its tools must not be told from unknown names.
    hidden = not plan.switch.open
    refusal = None
    for gate in plan.gates:
        reason = gate.refusal(context.principal)
        if reason is not None and gate.hides:
            hidden = True
        # The first refusal is the answer, but the loop goes on: a hiding gate after it still hides the tool.
        elif reason is not None and refusal is None:
            refusal = denied_result(call, gate.name, reason)
    if hidden:
        return gone_result(call)
    if refusal is None and current_frame.get()[1] >= MAX_DEPTH:
        return denied_result(call, "depth", f"tools call one another {MAX_DEPTH} deep")
    return refusal


def _prepare(plan: Plan, call: ToolCall) -> ToolCall:
    """Return the call under the tool's own name, with its arguments decoded, validated and converted."""
    given = call.arguments
    arguments: dict[str, object]
    if plan.copies or type(given) is not dict:
        arguments = decode_arguments(given)
    else:  # every value is a scalar
        # The caller's own mapping is passed on without a copy: with scalars only, the tool can change nothing that the
        # caller sees but its keys, and `converted` is a new object where a converter exists.
        arguments = given  # pyright: ignore[reportUnknownVariableType]  a `cast` here is a call of 25 ns
        for key, value in arguments.items():
            # `type` and not `isinstance`: a bool is an int as well, and has no digits to count.
            if type(value) is int and not TOO_SMALL < value < TOO_LARGE:
                raise integer_too_long(f"/{key}")
    refusals = plan.schema.refusals(arguments)
    if refusals:
        raise InvalidArguments(refusals)
    converted = arguments if plan.convert is None else plan.convert(arguments)
    name = plan.ref.name
    if converted is given and call.name == name:
        return call
    return quick_call(ToolCall, (call.id, name, converted))
