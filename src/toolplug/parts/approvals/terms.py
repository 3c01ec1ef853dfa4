"""What comes with a decision: it is checked against the tool of the call, as the caller has it now."""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import perf_counter

from toolplug.catalog.call import DECIDE_SCOPE, EMPTY, CallContext, Principal, ToolCall
from toolplug.catalog.plan import NO_GRANTS, GrantRule, NeedsApproval, Tool
from toolplug.catalog.text import clean_text
from toolplug.config.units import format_duration
from toolplug.errors import AccessError, ApiError, InvalidArguments
from toolplug.execution.executor import LazyExecutor, ToolExecutor
from toolplug.execution.isolated_hooks import read_only_call
from toolplug.part_protocols.approvals import MAX_REASON, Decision, DecisionTerms, GrantTerms
from toolplug.part_protocols.host_part import HostTools
from toolplug.parts.approvals.held import is_within
from toolplug.parts.approvals.limits import MAX_CALLS
from toolplug.parts.approvals.records import StoredApproval
from toolplug.parts.approvals.rules import closed_rule
from toolplug.signatures.values import decode_arguments

_OWN_GRANT = "under {ask: caller} a caller may decide its own call, and makes no grants: leave grant out"
_SAME_CREDENTIAL = (
    "the credential that made this call cannot decide it; decide with another one that has approvals:write, with"
    " `toolplug approvals`, or set the policy {ask: caller}"
)
_HOOKS_S = 5.0
"""Seconds that plugins have for the arguments that a person has changed."""


class _NoTools:
    """The tools of approvals without a host: a decision there can only be a yes or a no."""

    def owner_of(self, tenant: str, name: str) -> str | None:
        return None

    def toolset(self, tenant: str, toolset: str) -> ToolExecutor:
        raise LookupError(toolset)

    def executor_for(self, principal: Principal, agent: str | None, session: str | None) -> ToolExecutor:
        text = "this process has no tools: only a running host takes other arguments"
        raise ApiError("invalid_arguments", text, "arguments")


NO_TOOLS: HostTools = _NoTools()


def check_owner(kept: StoredApproval, by: Principal, own: str | None, terms: DecisionTerms) -> None:
    """Raise `ApiError` for a decision of the credential that asked, and for a grant that it makes for itself."""
    same = by.credential != "" and kept.get("credential") == by.credential
    if own is not None and (own or same):
        if not kept["by_caller"]:
            raise ApiError("own_call", own or _SAME_CREDENTIAL, "id")
        if terms.grant is not None:
            raise ApiError("own_call", _OWN_GRANT, "grant")
    if own is None and terms.grant is not None and (kept["by_caller"] or not by.has_scope(DECIDE_SCOPE)):
        message = "a grant needs somebody with approvals:write, and under {ask: caller} the caller makes none"
        raise ApiError("grant_not_allowed", message, "grant")


def reason_of(terms: DecisionTerms) -> str | None:
    """Return the reason that a person gives, without characters that are not seen."""
    return terms.reason and clean_text(terms.reason)


async def check_terms(
    terms: DecisionTerms, decision: Decision, kept: StoredApproval, tools: HostTools
) -> Mapping[str, object] | None:
    """Check what comes with a decision; return the arguments that are to run in place of the caller's, None for those.

    Raises `ApiError`.
    """
    if terms.reason is not None and len(terms.reason) > MAX_REASON:
        raise ApiError("invalid_arguments", f"the reason has more than {MAX_REASON:,} characters", "reason")
    if terms.arguments is None and terms.grant is None:
        return None
    if decision == "deny":
        raise ApiError("invalid_grant", "a denial has neither a grant nor other arguments", "decision")
    if terms.grant is not None:
        _check_grant(terms.grant, kept)
    if terms.arguments is None:
        return None
    caller = _caller(kept)
    return await _check_arguments(terms.arguments, kept, caller, await _tool(kept, caller, tools))


def _caller(kept: StoredApproval) -> Principal:
    agents = kept.get("agents")
    return Principal(
        kept["subject"],
        kept["tenant"],
        frozenset(kept.get("scopes", ())),
        None if agents is None else frozenset(agents),
    )


async def _tool(kept: StoredApproval, caller: Principal, tools: HostTools) -> Tool:
    """Return the tool of a call as its caller has it. Raises `ApiError` if that is another one than was asked for."""
    try:
        executor = tools.executor_for(caller, kept["agent"], kept.get("code"))
        catalog = await executor.open_catalog() if isinstance(executor, LazyExecutor) else executor.catalog
    except AccessError as error:
        raise ApiError("tool_not_found", f"the caller cannot make this call any more: {error}", "id") from None
    tool = catalog.find(kept["tool"])
    if tool is None or tool.plan.ref.digest != kept["digest"]:
        what = "is gone" if tool is None else "has another definition now"
        raise ApiError("tool_not_found", f"the tool {kept['tool']!r} {what}; the call must be asked again", "id")
    return tool


async def _check_arguments(
    given: Mapping[str, object], kept: StoredApproval, caller: Principal, tool: Tool
) -> Mapping[str, object]:
    """Return the arguments that are to run, once the tool's schema and the plugins have let them pass."""
    plan = tool.plan
    try:
        arguments = decode_arguments(given)
        lines = plan.schema.refusals(arguments)
        if not lines and plan.convert is not None:
            plan.convert(decode_arguments(given))
    except InvalidArguments as error:
        lines = tuple(error.lines)
        arguments = {}
    if lines:
        text = "; ".join(lines)
        raise ApiError("invalid_arguments", f"the arguments are not valid for {kept['tool']!r}: {text}", "arguments")
    hooks = plan.hooks.current
    if hooks is not None and hooks.asks:
        context = CallContext(caller, kept.get("code"), kept["agent"], options=kept.get("options") or EMPTY)
        shown = read_only_call(ToolCall("decision", plan.ref.name, arguments), nested=True)
        hooks.calls.running += 1  # no reload closes a plugin while it is asked
        try:
            answer = hooks.refusal(shown, context, tool.definition, perf_counter() + _HOOKS_S)
            refusal = answer if answer is None or isinstance(answer, str | NeedsApproval) else await answer
        finally:
            hooks.calls.leave()
        if isinstance(refusal, str):
            raise ApiError("refused_by_plugin", f"a plugin refuses these arguments: {refusal}", "arguments")
    return arguments


def _check_grant(grant: GrantTerms, kept: StoredApproval) -> None:
    """Raise `ApiError` for a grant that the file does not allow, or that says nothing."""
    stored = kept.get("grants")
    rule = NO_GRANTS if stored is None else GrantRule(**stored)
    if not 0 < grant.for_s < math.inf:
        raise ApiError("invalid_grant", "for is a duration of more than 0, such as 8h", "grant.for")
    if grant.calls is not None and not 1 <= grant.calls <= MAX_CALLS:
        raise ApiError("invalid_grant", f"calls is 1 to {MAX_CALLS:,}", "grant.calls")
    if not rule.most:
        text = "the file allows no grants for this tool: set tools.NAME.grants.most, such as 8h"
        raise ApiError("grant_not_allowed", text, "grant")
    if grant.for_s > rule.most:
        text = f"the file allows grants of at most {format_duration(rule.most)} for this tool (grants.most)"
        raise ApiError("grant_not_allowed", text, "grant.for")
    if not is_within(rule, grant.scope, ""):
        text = (
            "the file allows grants for one session only: give the scope session (--session on the command line), or"
            " allow every session of the caller with grants.scope: caller"
        )
        raise ApiError("grant_not_allowed", text, "grant.scope")
    if grant.scope == "session" and kept.get("code") is None:
        text = "the call has no session; give the scope caller, if the file allows it"
        raise ApiError("invalid_grant", text, "grant.scope")
    if grant.arguments is True:
        if not rule.any:
            text = "the file allows no grant for every call of this tool (grants.any: true)"
            raise ApiError("grant_not_allowed", text, "grant.arguments")
    elif grant.arguments is not None:
        closed_rule(grant.arguments, kept.get("names"))
