"""Asking the user of an MCP client: to approve a call, in both eras of the protocol, and what a running call asks.

    2025-11-25  `elicitation/create` is sent to the client while its call waits
    2026-07-28  the call is answered by an `InputRequiredResult`; the client repeats it with the answer

The approval ticket of the call is the `requestState`. It needs no signature: a ticket is valid for one call of one
caller, and only a caller that may decide it is asked.

What a running call asks itself is sent in 2025-11-25 only: in 2026-07-28 the call would have to end first.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolplug.catalog.call import EMPTY, Ask, CallContext, CannotAsk, ToolResult, ToolStatus, UserAnswer
from toolplug.catalog.text import cleaned
from toolplug.errors import ApiError, StoreError
from toolplug.execution.approvals import LIFE_S, Approvals, Decision, Ticket
from toolplug.mcp.server_endpoint import Caller
from toolplug.signatures.values import as_object

MAX_QUESTION = 16_384
"""Characters of a question. A person approves only what can be shown whole; a longer call is not asked about."""

_KEY = "approval"
_NO_FIELDS: dict[str, Any] = {"type": "object", "properties": {}}
_DECISIONS: dict[str, Decision] = {"accept": "approve", "decline": "deny"}

_LOG = logging.getLogger("toolplug.mcp")

Execute = Callable[[CallContext], Awaitable[ToolResult]]


async def call_with_approval(
    ctx: ServerRequestContext[Caller, Any], params: types.CallToolRequestParams, context: CallContext, execute: Execute
) -> ToolResult | types.InputRequiredResult:
    """Run the call; if it needs approval and the client can ask its user, ask, and return the result of the decision.

    If the user dismisses the question, the call stays refused and its ticket open.
    """
    if params.request_state is not None:  # the call is repeated with the answer
        response = (params.input_responses or {}).get(_KEY)
        await _decide(ctx.lifespan_context.approvals, params.request_state, response, context)
        return await execute(context._replace(approval=params.request_state))
    result = await execute(context)
    ticket = None if result.status is not ToolStatus.DENIED else await _decidable(ctx, result, context)
    question = None if ticket is None else question_of(ticket)
    if ticket is None or question is None:
        return result
    request = types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=question, requested_schema=_NO_FIELDS)  # accept and decline do
    )
    if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return types.InputRequiredResult(input_requests={_KEY: request}, request_state=ticket.id)
    response = await _answer(ctx, request)
    if not await _decide(ctx.lifespan_context.approvals, ticket.id, response, context):
        return result
    return await execute(context._replace(approval=ticket.id))


def asking(ctx: ServerRequestContext[Caller, Any]) -> Ask:
    """Return what asks the client's user during the call of this request."""

    async def ask(question: str, schema: Mapping[str, object]) -> UserAnswer:
        if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            raise CannotAsk(f"the caller's client speaks {ctx.session.protocol_version}, which has no such requests")
        if not _can_ask(ctx):
            raise CannotAsk("the caller's client does not offer elicitation of forms, or reads no stream of events")
        params = types.ElicitRequestFormParams(message=question, requested_schema=dict(schema))
        answer = await _answer(ctx, types.ElicitRequest(params=params))
        if answer is None:
            raise CannotAsk("the caller's client gave no answer that can be read")
        return UserAnswer(answer.action, answer.content or EMPTY)

    return ask


def question_of(ticket: Ticket) -> str | None:
    """Return the question for the user, with invisible characters escaped; None if it is too long."""
    arguments = json.dumps(ticket.arguments, ensure_ascii=False)
    if cleaned(arguments) != arguments:
        arguments = json.dumps(ticket.arguments)
    question = f'Run the tool "{ticket.tool}" with these arguments?\n\n{arguments}'
    return question if len(question) <= MAX_QUESTION else None


async def _decidable(ctx: ServerRequestContext[Caller, Any], result: ToolResult, context: CallContext) -> Ticket | None:
    """Return the ticket of a refused call, if its caller may decide it and its client can ask."""
    ticket_id = as_object(result.metadata.get("approval")).get("id")
    if not isinstance(ticket_id, str) or not _can_ask(ctx):
        return None
    try:
        return await ctx.lifespan_context.approvals.decidable(ticket_id, context.principal)
    except StoreError as error:
        _LOG.error("approval of a call is not requested, as the store of approvals fails: %s", error)
        return None


def _can_ask(ctx: ServerRequestContext[Caller, Any]) -> bool:
    """Return whether the client supports forms; a bare `elicitation: {}` is older than the URL mode and means forms."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request


async def _answer(ctx: ServerRequestContext[Caller, Any], request: types.ElicitRequest) -> types.ElicitResult | None:
    """Return the user's answer; None if no valid one comes before a ticket would expire."""
    beside = ServerMessageMetadata(related_request_id=ctx.request_id)
    try:
        return await ctx.session.send_request(request, types.ElicitResult, LIFE_S, beside)
    except (MCPError, ValidationError) as error:
        _LOG.info("a client did not answer a question to its user: %s", type(error).__name__)
        return None


async def _decide(approvals: Approvals, ticket_id: str, response: object, context: CallContext) -> bool:
    """Decide the ticket by the user's answer if the caller may; return whether it is decided."""
    decision = _DECISIONS.get(response.action) if isinstance(response, types.ElicitResult) else None
    principal = context.principal
    try:
        if decision is None or await approvals.decidable(ticket_id, principal) is None:
            return False
        await approvals.decide(ticket_id, decision, principal, decided="elicitation", request_id=context.request_id)
    except ApiError:
        return True  # another decision came first, and holds
    except StoreError as error:
        _LOG.error("a decision on a call is lost, as the store of approvals fails: %s", error)
        return False
    return True
