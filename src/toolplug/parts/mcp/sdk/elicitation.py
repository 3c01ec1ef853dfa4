"""Asking the user of an MCP client: to approve a call, in both eras of the protocol, and what a running call asks.

    2025-11-25  `elicitation/create` is sent to the client while its call waits
    2026-07-28  the call is answered by an `InputRequiredResult`; the client repeats it with the answer

The `requestState` is the approval ticket of the call, or names the round of questions of a server behind the host
(`input_rounds`). Neither needs a signature: both are valid for one call of one caller who may decide.

A caller that has to sign in is sent to the link by its client where that opens URLs: by the error -32042 in 2025-11-25,
by an `InputRequiredResult` in 2026-07-28, whose repetition needs no state, as it proves nothing.

What a running call of a server of 2025-11-25 asks is sent in 2025-11-25 only: in 2026-07-28 the call would have to end
first, and its server cannot be called again with the answer.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolplug.catalog.call import (
    EMPTY,
    Ask,
    CallContext,
    CannotAsk,
    NobodyToAsk,
    ToolResult,
    ToolStatus,
    UserAnswer,
)
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.text import clean_text
from toolplug.config.units import format_duration
from toolplug.errors import ApiError, StoreError
from toolplug.part_protocols.approvals import (
    LIFE_S,
    NO_TERMS,
    Decision,
    DecisionTerms,
    GrantTerms,
    HostApprovals,
    Ticket,
)
from toolplug.parts.mcp.input_rounds import InputRounds, Round, is_round, round_of
from toolplug.parts.mcp.sdk.askers import MAX_QUESTIONS
from toolplug.parts.mcp.serving.server_endpoint import McpCaller

MAX_QUESTION = 16_384
"""Characters of a question. A person approves only what can be shown whole; a longer call is not asked about."""

_KEY = "approval"
_SIGN_IN = "sign_in"
_NO_FIELDS: dict[str, Any] = {"type": "object", "properties": {}}
_UNKNOWN_STATE = (
    "this requestState is unknown, has expired or been used, or belongs to another call; call the tool again without it"
)
_NOT_KEPT = "its server asks the user first, and the host cannot keep the question now; try again later"
_DECISIONS: dict[str, Decision] = {"accept": "approve", "decline": "deny"}
_ONCE, _SESSION, _DENY = "once", "this session", "deny"
_FIELD = "decision"

_LOG = logging.getLogger("toolplug.mcp")

Execute = Callable[[CallContext], Awaitable[ToolResult]]


async def call_with_approval(
    ctx: ServerRequestContext[McpCaller, Any],
    params: types.CallToolRequestParams,
    context: CallContext,
    execute: Execute,
) -> ToolResult | types.InputRequiredResult:
    """Run the call; if it needs approval and the client can ask its user, ask, and return the result of the decision.

    If the user dismisses the question, the call stays refused and its ticket open. A call that ends with the questions
    of a server is answered by them, and one whose caller has to sign in by the link, where the client can open it.
    """
    if params.request_state is not None and not is_round(params.request_state):  # repeated with the decision
        response = (params.input_responses or {}).get(_KEY)
        await _decide(ctx.lifespan_context.approvals, params.request_state, response, context)
        context = context._replace(approval=params.request_state)
    while True:
        result = await execute(context)
        if (signing_in := _ask_to_sign_in(ctx, params, result)) is not None:
            return signing_in
        if (asked := round_of(context.ask, result)) is not None:
            questions = await _with_questions(ctx, params, context, asked)
            return result._replace(output=_NOT_KEPT) if questions is None else questions
        ticket = None if result.status is not ToolStatus.DENIED else await _decidable(ctx, result, context)
        grant = None if ticket is None else await _session_grant(ctx.lifespan_context.approvals, ticket.id, context)
        question = None if ticket is None else question_of(ticket, grant)
        # What the user has just dismissed is not asked again.
        if ticket is None or question is None or ticket.id == context.approval:
            return result
        # Without a grant to offer, accept and decline do.
        form = _NO_FIELDS if grant is None else _choices()
        request = types.ElicitRequest(params=types.ElicitRequestFormParams(message=question, requested_schema=form))
        if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return types.InputRequiredResult(input_requests={_KEY: request}, request_state=ticket.id)
        response = await _answer(ctx, request)
        if not await _decide(ctx.lifespan_context.approvals, ticket.id, response, context):
            return result
        # A script may go on to the next question.
        context = context._replace(approval=ticket.id)


def _ask_to_sign_in(
    ctx: ServerRequestContext[McpCaller, Any], params: types.CallToolRequestParams, result: ToolResult
) -> types.InputRequiredResult | None:
    """Return what has the client open the link to sign in; None where the text of the result has to do.

    Raises `UrlElicitationRequiredError` to a client of 2025-11-25. Only links of this host are opened.
    """
    url = as_object(result.metadata.get("sign_in")).get("url")
    own = isinstance(url, str) and bool(ctx.lifespan_context.url) and url.startswith(f"{ctx.lifespan_context.url}/")
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if not own or result.status is not ToolStatus.UNAVAILABLE or elicitation is None or elicitation.url is None:
        return None
    if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        if _SIGN_IN in (params.input_responses or {}):
            return None  # the user has been asked, and has not signed in, or not yet
        request = types.ElicitRequest(params=types.ElicitRequestURLParams(message=result.output, url=str(url)))
        return types.InputRequiredResult(input_requests={_SIGN_IN: request})
    # The id is not secret, and the link is.
    asked = hashlib.sha256(str(url).encode()).hexdigest()[:32]
    raise UrlElicitationRequiredError(
        [types.ElicitRequestURLParams(message=result.output, url=str(url), elicitation_id=asked)], result.output
    )


async def asking(
    ctx: ServerRequestContext[McpCaller, Any],
    params: types.CallToolRequestParams,
    context: CallContext,
    during: Ask | None = None,
) -> Ask:
    """Return what asks the client's user during the call of this request.

    `during` is what an extension asks with while a call of 2026-07-28 runs.

    Raises `MCPError` for a call that is repeated with answers to questions that were not asked for it.
    """
    if not _can_ask(ctx):
        return NobodyToAsk("the caller's client does not offer elicitation of forms, or reads no stream of events")
    if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return await _rounds(ctx, params, context, during)

    async def ask(question: str, schema: Mapping[str, object]) -> UserAnswer:
        params = types.ElicitRequestFormParams(message=question, requested_schema=dict(schema))
        answer = await _answer(ctx, types.ElicitRequest(params=params))
        if answer is None:
            raise CannotAsk("the caller's client gave no answer that can be read")
        return UserAnswer(answer.action, answer.content or EMPTY)

    return ask


async def _rounds(
    ctx: ServerRequestContext[McpCaller, Any],
    params: types.CallToolRequestParams,
    context: CallContext,
    during: Ask | None,
) -> Ask:
    """Return what ends the call with questions, and has the answers to those with which it has ended before."""
    state = params.request_state
    if context.approval is not None or (state is not None and not is_round(state)):
        if during is not None:
            return during
        reason = "the call needs an approval, which is used by one request of a client of 2026-07-28"
        return NobodyToAsk(reason, approves=True)
    if state is None:
        return InputRounds(during=during)
    responses = params.input_responses or {}
    given = [_user_answer(responses.get(_key_of(number))) for number in range(MAX_QUESTIONS)]
    try:
        caller = ctx.lifespan_context
        answers = await caller.rounds.take(state, given, params.name, params.arguments, context, caller.scope)
    except StoreError as error:
        _LOG.error("answers to a server are lost, as the store of its questions fails: %s", error)
        raise MCPError(types.INTERNAL_ERROR, "the store of the host cannot answer; call the tool again") from None
    if answers is None:
        raise MCPError(types.INVALID_PARAMS, _UNKNOWN_STATE)
    return InputRounds(answers, during)


async def _with_questions(
    ctx: ServerRequestContext[McpCaller, Any], params: types.CallToolRequestParams, context: CallContext, asked: Round
) -> types.InputRequiredResult | None:
    """Return the answer of a call that ends with questions; None if the round cannot be kept."""
    try:
        caller = ctx.lifespan_context
        state = await caller.rounds.keep(asked, params.name, params.arguments, context, caller.scope)
    except StoreError as error:
        _LOG.error("questions of a server are not asked, as the store fails: %s", error)
        return None
    if state is None:
        _LOG.error("questions of a server are not asked, as too many wait for answers")
        return None
    requests: dict[str, types.InputRequest] = {
        _key_of(number): types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=item.text, requested_schema=dict(item.schema))
        )
        for number, item in enumerate(asked.questions.values())
    }
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def _key_of(number: int) -> str:
    return f"question-{number + 1}"


def _user_answer(response: object) -> UserAnswer | None:
    return UserAnswer(response.action, response.content or EMPTY) if isinstance(response, types.ElicitResult) else None


def _choices() -> dict[str, Any]:
    """Return the form of a question whose answer may hold for a session."""
    field = {"type": "string", "title": "Decision", "enum": [_ONCE, _SESSION, _DENY], "default": _ONCE}
    return {"type": "object", "properties": {_FIELD: field}}


def question_of(ticket: Ticket, grant: GrantTerms | None = None) -> str | None:
    """Return the question for the user, with invisible characters escaped; None if it is too long."""
    arguments = json.dumps(ticket.arguments, ensure_ascii=False)
    if clean_text(arguments) != arguments:
        arguments = json.dumps(ticket.arguments)
    question = f'Run the tool "{ticket.tool}" with these arguments?\n\n{arguments}'
    if grant is not None:
        calls = "every call of this tool" if grant.arguments is True else "calls with the same arguments"
        question += f'\n\n"{_SESSION}" also allows {calls} in this session, for {format_duration(grant.for_s)}.'
    return question if len(question) <= MAX_QUESTION else None


async def _decidable(
    ctx: ServerRequestContext[McpCaller, Any], result: ToolResult, context: CallContext
) -> Ticket | None:
    """Return the ticket of a refused call, if its caller may decide it and its client can ask."""
    ticket_id = as_object(result.metadata.get("approval")).get("id")
    if not isinstance(ticket_id, str) or not _can_ask(ctx):
        return None
    try:
        return await ctx.lifespan_context.approvals.decidable(ticket_id, context.principal)
    except StoreError as error:
        _LOG.error("approval of a call is not requested, as the store of approvals fails: %s", error)
        return None


async def _session_grant(approvals: HostApprovals, ticket_id: str, context: CallContext) -> GrantTerms | None:
    """Return the grant for its session that a call's person may make; None where the store fails."""
    try:
        return await approvals.session_grant(ticket_id, context.principal)
    except StoreError as error:
        _LOG.error("a question offers no grant, as the store of approvals fails: %s", error)
        return None


def _can_ask(ctx: ServerRequestContext[McpCaller, Any]) -> bool:
    """Return whether the client supports forms; a bare `elicitation: {}` is older than the URL mode and means forms."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request


async def _answer(ctx: ServerRequestContext[McpCaller, Any], request: types.ElicitRequest) -> types.ElicitResult | None:
    """Return the user's answer; None if no valid one comes in five minutes: a ticket may wait for days."""
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    try:
        return await ctx.session.send_request(request, types.ElicitResult, LIFE_S, related)
    except (MCPError, ValidationError) as error:
        _LOG.info("a client did not answer a question to its user: %s", type(error).__name__)
        return None


async def _decide(approvals: HostApprovals, ticket_id: str, response: object, context: CallContext) -> bool:
    """Decide the ticket by the user's answer if the caller may; return whether it is decided."""
    decision = _DECISIONS.get(response.action) if isinstance(response, types.ElicitResult) else None
    chosen = (response.content or EMPTY).get(_FIELD, _ONCE) if isinstance(response, types.ElicitResult) else _ONCE
    principal, terms = context.principal, NO_TERMS
    if chosen == _DENY and decision is not None:
        decision = "deny"
    try:
        if decision is None or await approvals.decidable(ticket_id, principal) is None:
            return False
        if chosen == _SESSION and decision == "approve":
            terms = DecisionTerms(grant=await approvals.session_grant(ticket_id, principal))
        await approvals.decide(
            ticket_id, decision, principal, decided="elicitation", request_id=context.request_id, own=None, terms=terms
        )
    except ApiError:
        return True  # another decision came first, and holds
    except StoreError as error:
        _LOG.error("a decision on a call is lost, as the store of approvals fails: %s", error)
        return False
    return True
