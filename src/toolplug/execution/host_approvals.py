"""Approvals as the host sees them: who is asked before a call whose policy is `ask`, and how it is decided.

One part of the host has them, as `RunningPart.approvals`; a host without it refuses such calls (`NO_APPROVALS`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.plan import Approval, ApprovalClaim, Plan
from toolplug.errors import ApiError
from toolplug.execution.results import denied_result

LIFE_S = 300.0
"""Seconds for which a ticket can be decided and used (docs/reference/statuses.md)."""

TicketState = Literal["waiting", "approved", "denied", "used"]
Decision = Literal["approve", "deny"]
DecidedBy = Literal["api", "command", "elicitation", "responses"]
"""The way of a decision: `POST /v1/approvals`, the command line, an elicitation of an MCP client, or an item of a
response. The audit line has it as `decided`."""


class Ticket(NamedTuple):
    """One call as the person who decides sees it. `arguments` are JSON values.

    `expires_at` and `decided_at` are ISO 8601 in UTC; `tenant` is that of the caller.
    """

    id: str
    tool: str
    digest: str
    arguments: object
    subject: str
    agent: str | None
    session: bool
    state: TicketState
    expires_at: str
    decided_by: str | None
    decided_at: str | None
    tenant: str


class HostApprovals(Approval, Protocol):
    """The approvals of one host."""

    async def decidable(self, ticket_id: str, caller: Principal) -> Ticket | None:
        """Return the ticket of this caller's own waiting call if the person at its client may decide it, else None.

        That takes a call that came through a client with a person, an MCP client that can be asked or the Responses
        API, and the scope `approvals:write` or a tool whose policy is `{ask: caller}`. Raises `StoreError`.
        """
        ...

    async def waiting(self, tenant: str) -> list[Ticket]:
        """Return the unexpired tickets of a tenant, decided ones too, the newest last. Raises `StoreError`."""
        ...

    async def everywhere(self) -> list[Ticket]:
        """Return the tickets of all tenants as `waiting` does. Raises `StoreError`."""
        ...

    async def count_waiting(self) -> int:
        """Return how many tickets of all tenants wait for a decision, up to a maximum. Raises `StoreError`."""
        ...

    async def decide(
        self,
        ticket_id: str,
        decision: Decision,
        by: Principal,
        *,
        decided: DecidedBy = "api",
        request_id: str = "",
        own: str | None = "",
    ) -> Ticket:
        """Decide a waiting ticket of this principal's tenant, and audit it. Raises `ApiError` and `StoreError`.

        A credential does not decide its own call (`own_call`), unless its policy is `{ask: caller}`. `own` is the
        reason why the decision counts as that of the caller whatever its credential, and None where the person at the
        caller's client decides (`decidable`).
        """
        ...


class NoApprovals:
    """The approvals of a host that can ask nobody: every call that needs one is refused."""

    async def claim(self, plan: Plan, call: ToolCall, context: CallContext) -> ToolResult:
        """Refuse the call."""
        return denied_result(
            call, "approval", "a person must approve this call, and this host has no part that asks one"
        )

    async def decidable(self, ticket_id: str, caller: Principal) -> Ticket | None:
        """Return None."""
        return None

    async def waiting(self, tenant: str) -> list[Ticket]:
        """Return no ticket."""
        return []

    async def everywhere(self) -> list[Ticket]:
        """Return no ticket."""
        return []

    async def count_waiting(self) -> int:
        """Return 0."""
        return 0

    async def decide(
        self,
        ticket_id: str,
        decision: Decision,
        by: Principal,
        *,
        decided: DecidedBy = "api",
        request_id: str = "",
        own: str | None = "",
    ) -> Ticket:
        """Raise `ApiError`."""
        raise ApiError("approval_not_found", "this host has no approvals", "id")


NO_APPROVALS: HostApprovals = NoApprovals()


class PartApprovals(NamedTuple):
    """Asks the approvals that the host has when a call is made: plans are built before its parts are open."""

    find: Callable[[], HostApprovals]

    async def claim(self, plan: Plan, call: ToolCall, context: CallContext) -> ApprovalClaim | ToolResult:
        """Use up the approval of this call; else the refusal, with the ticket that a person can decide."""
        return await self.find().claim(plan, call, context)
