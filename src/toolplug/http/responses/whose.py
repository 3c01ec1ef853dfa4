"""For whom a response is made: agent and session by headers or metadata, and who decides approvals."""

from __future__ import annotations

from contextlib import suppress

from toolplug.catalog.call import CallContext
from toolplug.errors import ApprovalRefused
from toolplug.host.host import Host
from toolplug.host.parts import listed
from toolplug.http.exchange import Exchange
from toolplug.http.problem import invalid_request
from toolplug.http.scopes import APPROVALS
from toolplug.responses.asker import Asker
from toolplug.responses.request import ResponseRequest
from toolplug.toolsets.first_use import FirstUse


class Whose:
    """The caller of one request, as its agent and in its session."""

    def __init__(self, host: Host, exchange: Exchange, agent: str | None, session: str | None, strict: bool) -> None:
        self._host = host
        self._exchange = exchange
        self._agent = agent
        self._session = session
        self._strict = strict

    async def asker(self, conversation: str) -> Asker:
        """The caller's tools in a conversation. Raises `AccessError`, and for a session `StoreError`."""
        host, principal = self._host, self._exchange.principal
        if self._session is not None:
            await host.sessions.find(self._session, principal.tenant)
        tools = host.executor_for(principal, agent=self._agent, session=self._session, within=conversation)
        if isinstance(tools, FirstUse):
            host.responses.conversations.use(conversation)
        return Asker(
            executor=tools,
            context=CallContext(
                principal=principal, session=self._session, agent=self._agent, trace=self._exchange.request_id
            ),
            listing=lambda: listed(tools),
            on_request=host.is_on_request,
            decide=self._decide,
            strict=self._strict,
        )

    async def _decide(self, ticket: str, approve: bool) -> None:
        """Decide where the caller may; what was decided before stays."""
        principal = self._exchange.principal
        if principal.has_scope(APPROVALS):
            with suppress(ApprovalRefused):
                decision = "approve" if approve else "deny"
                await self._host.approvals.decide(ticket, decision, principal, request_id=self._exchange.request_id)


def whose(host: Host, exchange: Exchange, request: ResponseRequest) -> Whose:
    """Who asks. Raises `HttpProblem` where header and metadata do not agree."""
    strict = _said(exchange, request, "strict") or "false"
    if strict not in {"true", "false"}:
        raise invalid_request("toolplug_strict should be true or false", "metadata.toolplug_strict")
    return Whose(
        host, exchange, _said(exchange, request, "agent"), _said(exchange, request, "session"), strict == "true"
    )


def _said(exchange: Exchange, request: ResponseRequest, name: str) -> str | None:
    by_header = exchange.header(f"x-toolplug-{name}".encode())
    by_metadata = (request.metadata or {}).get(f"toolplug_{name}")
    if by_header and by_metadata and by_header != by_metadata:
        message = f"metadata.toolplug_{name} and the header X-Toolplug-{name.title()} do not agree; send one of them"
        raise invalid_request(message, f"metadata.toolplug_{name}")
    return by_header or by_metadata or None
