"""Approvals as the host sees them: who is asked before a call whose policy is `ask`, and how it is decided.

One part of the host has them, as `RunningPart.approvals`; a host without it refuses such calls (`NO_APPROVALS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.plan import Approval, ApprovalClaim, Plan
from toolplug.errors import ApiError
from toolplug.execution.results import denied_result

LIFE_S = 300.0
"""Seconds for which a ticket can be decided and used where the file does not say (docs/reference/statuses.md)."""
MAX_REASON = 2_000
"""Characters of what a person says about a decision; a longer text is refused."""

TicketState = Literal["waiting", "approved", "denied", "used"]
Decision = Literal["approve", "deny"]
DecidedBy = Literal["api", "command", "elicitation", "responses"]
"""The way of a decision: `POST /v1/approvals`, the command line, an elicitation of an MCP client, or an item of a
response. The audit line has it as `decided`."""


class Ticket(NamedTuple):
    """One call as the person who decides sees it. `arguments` are JSON values.

    `asked_at`, `expires_at` and `decided_at` are ISO 8601 in UTC; `tenant` is that of the caller. `reason` is what the
    person said who has decided, `asked_because` what a plugin said that wanted the approval. `asked_arguments` are
    those of the caller, where a person has put `arguments` in their place; `grant` is the id of the grant that was
    made.

    ```python
    import asyncio

    from toolplug import FunctionProvider, NeedsApproval, Principal, Ticket, open_host, tool

    class Orders(FunctionProvider):
        @tool
        async def cancel(self, order: int) -> str:
            "Cancel an order."
            return "cancelled"

        def before_call(self, call, context):
            return NeedsApproval("it cannot be undone")

        def approval_waiting(self, ticket: Ticket) -> None:
            print(f"{ticket.subject} waits for {ticket.tool} {ticket.arguments}")

    async def main():
        async with open_host({"store": "memory://"}, environ={}, providers=[Orders()]) as host:
            tools = host.executor_for(Principal("ada", scopes=frozenset({"tools:call"})))
            assert (await tools.call("cancel", order=7)).status == "denied"

    asyncio.run(main())
    ```
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
    reason: str | None = None
    asked_because: str | None = None
    asked_arguments: object = None
    grant: str | None = None
    asked_at: str | None = None


class RevokedGrant(NamedTuple):
    """A grant that a person has taken back: calls that it allowed are asked about again.

    `arguments` is its JSON Schema as it was written, True for every call, or exact values.

    ```python
    from toolplug import RevokedGrant, hookimpl

    @hookimpl
    def grant_revoked(grant: RevokedGrant) -> None:
        print(f"{grant.revoked_by} has taken back what {grant.made_by} had allowed {grant.subject}: {grant.tool}")
    ```
    """

    id: str
    tool: str
    subject: str
    agent: str | None
    tenant: str
    arguments: object
    made_by: str
    revoked_by: str


class GrantTerms(NamedTuple):
    """What a person allows beside the call that waits.

    `arguments` is a JSON Schema, True for every call, None for exactly the arguments of this one. `calls` counts those
    after it, None for any number; `for_s` are seconds.
    """

    for_s: float
    scope: Literal["session", "caller"] = "session"
    arguments: Mapping[str, object] | Literal[True] | None = None
    calls: int | None = None


class DecisionTerms(NamedTuple):
    """What comes with a decision: a text, arguments that run in place of the caller's, and a grant."""

    reason: str | None = None
    arguments: Mapping[str, object] | None = None
    grant: GrantTerms | None = None


NO_TERMS = DecisionTerms()


class ClaimAtOnce(Protocol):
    """Returns the right to make a call where nothing must be awaited for it: `Approval.claim_at_once`."""

    def __call__(
        self, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, listed: str | None = None
    ) -> ApprovalClaim | None: ...


class HostApprovals(Approval, Protocol):
    """The approvals of one host.

    What is written here is how a host answers that can ask nobody: every call that needs an approval is refused.

    ```python
    from toolplug import HostApprovals

    async def count_tickets(approvals: HostApprovals, tenant: str) -> int:
        return len(await approvals.waiting(tenant))
    ```
    """

    async def claim(
        self,
        plan: Plan,
        call: ToolCall,
        context: CallContext,
        why: str | None = None,
        listed: str | None = None,
    ) -> ApprovalClaim | ToolResult:
        """Return the right to make an approved call, else a refusal with the way to approve it; `why`: a plugin's."""
        return denied_result(
            call, "approval", "a person must approve this call, and this host has no part that asks one"
        )

    def claim_at_once(
        self, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, listed: str | None = None
    ) -> ApprovalClaim | None:
        """Return the right to make a call where nothing is awaited for it, None to `claim` it; `inner` is decoded."""
        return None

    async def decidable(self, ticket_id: str, caller: Principal) -> Ticket | None:
        """Return the ticket of this caller's own waiting call if the person at its client may decide it, else None.

        That takes a call that came through a client with a person, an MCP client that can be asked or the Responses
        API, and the scope `approvals:write` or a tool whose policy is `{ask: caller}`. Raises `StoreError`.
        """
        return None

    async def session_grant(self, ticket_id: str, caller: Principal) -> GrantTerms | None:
        """Return the grant for its session that this caller may make with a ticket; None if there can be none.

        It is for as long as the file allows, and for every call if it allows that, else for equal calls. Raises
        `StoreError`.
        """
        return None

    async def waiting(self, tenant: str) -> list[Ticket]:
        """Return the unexpired tickets of a tenant, decided ones too, the newest last. Raises `StoreError`."""
        return []

    async def everywhere(self) -> list[Ticket]:
        """Return the tickets of all tenants as `waiting` does. Raises `StoreError`."""
        return []

    async def count_waiting(self) -> int:
        """Return how many tickets of all tenants wait for a decision, up to a maximum. Raises `StoreError`."""
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
        terms: DecisionTerms = NO_TERMS,
    ) -> Ticket:
        """Decide a waiting ticket of this principal's tenant, and audit it. Raises `ApiError` and `StoreError`.

        A credential does not decide its own call (`own_call`), unless its policy is `{ask: caller}`. `own` is the
        reason why the decision counts as that of the caller whatever its credential, and None where the person at the
        caller's client decides (`decidable`).
        """
        raise ApiError("approval_not_found", "this host has no approvals", "id")


class NoApprovals(HostApprovals):
    """The approvals of a host that can ask nobody."""


NO_APPROVALS: HostApprovals = NoApprovals()


class PartApprovals:
    """Asks the approvals that the host has when a call is made: plans are built before its parts are open.

    ```python
    from toolplug import NO_APPROVALS, HostApprovals, PartApprovals, PartServices

    def find_approvals(services: PartServices) -> HostApprovals:
        asked = services.calls.approvals
        return asked.current if isinstance(asked, PartApprovals) else NO_APPROVALS
    ```
    """

    def __init__(self) -> None:
        self.use(NO_APPROVALS)

    def use(self, approvals: HostApprovals) -> None:
        """Ask these from now on."""
        self.current: HostApprovals = approvals
        self.claim_at_once: ClaimAtOnce = approvals.claim_at_once

    async def claim(
        self,
        plan: Plan,
        call: ToolCall,
        context: CallContext,
        why: str | None = None,
        listed: str | None = None,
    ) -> ApprovalClaim | ToolResult:
        """Use up the approval of this call; else the refusal, with the ticket that a person can decide."""
        return await self.current.claim(plan, call, context, why, listed)
