"""Approvals: a ticket lets a person decide on exactly one call of one caller; it is decided once and used once."""

from __future__ import annotations

import hashlib
import logging
from contextlib import aclosing
from secrets import token_hex
from typing import NamedTuple, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from toolplug.catalog.call import DECIDE_SCOPE, CallContext, NobodyToAsk, Principal, ToolCall, ToolResult
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.catalog.plan import Plan, Refusal
from toolplug.errors import ApiError, InvalidJson, StoreConflict, StoreError
from toolplug.execution.accounting import audit
from toolplug.execution.host_approvals import LIFE_S, DecidedBy, Decision, HostApprovals, Ticket, TicketState
from toolplug.execution.results import denied_result, limited_result, unavailable
from toolplug.providers.host_part import PartServices, RunningPart
from toolplug.runtime.timestamp import timestamp
from toolplug.signatures.values import canonical, decode_arguments
from toolplug.stores.store import Store, key_pages, tenant_digest

MAX_WAITING = 1_000
"""Tickets of one tenant at a time: a model that calls without end does not fill the store."""

# Counting reads one page of keys after another; a scrape must not walk through a store without end.
MAX_COUNTED = 10_000
"""Waiting tickets of all tenants that a scrape counts."""

_SAME_CREDENTIAL = (
    "the credential that made this call cannot decide it; decide with another one that has approvals:write, with"
    " `toolplug approvals`, or set the policy {ask: caller}"
)

_MOST_APPROVED = 16
"""The most approved tickets of the same call that a call without a ticket tries."""

_GATE = "approval"
_LOG = logging.getLogger("toolplug.execution")

_DECIDED: dict[Decision, TicketState] = {"approve": "approved", "deny": "denied"}


class _StoredApproval(TypedDict):
    tool: str
    digest: str
    body: str
    arguments: object
    subject: str
    agent: str | None
    session: bool
    state: TicketState
    expires_at: float
    decided_by: str | None
    decided_at: NotRequired[float]  # absent until it is decided, and in records of 0.1
    key: str | None
    by_caller: bool
    credential: NotRequired[str]  # absent in records of 0.1
    asked: NotRequired[bool]  # can the person at the caller's client be asked; absent in records of 0.1
    tenant: str


_KEPT = TypeAdapter(_StoredApproval)


class Claim(NamedTuple):
    """The right to make one approved call. Implements `toolplug.catalog.plan.ApprovalClaim`.

    `ticket` is the ticket that this call used; None where an earlier call with the same idempotency key used it.
    """

    approvals: Approvals
    tenant: str
    ticket: str | None

    async def release(self) -> None:
        """Return the ticket to `approved`, as the provider was not reached. Never raises."""
        if self.ticket is not None:
            await self.approvals.release(self.tenant, self.ticket)


class Approvals:
    """The tickets of one host. Implements `toolplug.execution.host_approvals.HostApprovals`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def claim(self, plan: Plan, call: ToolCall, context: CallContext) -> Claim | ToolResult:
        """Use up the approval of this call; else the refusal, with the ticket that a person can decide.

        Without a ticket in the context, an approved one of the same call of the same caller is used.
        """
        try:
            if context.approval is not None:
                return await self._use(context.approval, plan, call, context)
            return await self._use_approved(plan, call, context) or await self._new(plan, call, context)
        except StoreError as error:
            _LOG.error("the store of approvals fails: %s", error)
            return unavailable(call, "its store cannot answer", code="store_unavailable")

    async def release(self, tenant: str, ticket_id: str) -> None:
        """Return a used ticket to `approved`. If the store fails, it stays used, with an error in the log."""
        try:
            found = await self._find(_key(tenant, ticket_id))
            if found is not None:
                kept, revision = found
                kept["state"], kept["key"] = "approved", None
                await self._write(_key(tenant, ticket_id), kept, revision)
                await self._offer(tenant, ticket_id, kept)
        except StoreError as error:
            _LOG.error("an approval stays used, as the store of approvals fails: %s", error)

    # The ticket alone is no secret: the model has seen it. So the subject must be the same, and a person must be there.
    async def decidable(self, ticket_id: str, caller: Principal) -> Ticket | None:
        """Return the ticket of this caller's own waiting call if the person at its client may decide it, else None.

        That takes a call that came through a client with a person, an MCP client that can be asked or the Responses
        API, and the scope `approvals:write` or a tool whose policy is `{ask: caller}`. Raises `StoreError`.
        """
        found = await self._record(caller.tenant, ticket_id)
        if found is None:
            return None
        kept, _ = found
        own = kept["state"] == "waiting" and kept["subject"] == caller.subject and kept.get("asked", False)
        return _ticket(ticket_id, kept) if own and (kept["by_caller"] or caller.has_scope(DECIDE_SCOPE)) else None

    async def waiting(self, tenant: str) -> list[Ticket]:
        """Return the unexpired tickets of a tenant, decided ones too, the newest last. Raises `StoreError`.

        A record that cannot be read is left out, with an error in the log.
        """
        return await self._list(_key(tenant, ""))

    async def everywhere(self) -> list[Ticket]:
        """Return the tickets of all tenants as `waiting` does, at most `MAX_WAITING`. Raises `StoreError`."""
        return await self._list(_TICKETS)

    async def _list(self, prefix: str) -> list[Ticket]:
        tickets: list[Ticket] = []
        for key in await self._store.keys(prefix, limit=MAX_WAITING):
            found = await self._find(key)
            if found is not None:
                tickets.append(_ticket(key.rpartition("/")[2], found[0]))
        return sorted(tickets, key=lambda ticket: ticket.expires_at)

    async def count_waiting(self) -> int:
        """Return how many tickets of all tenants wait for a decision, at most `MAX_COUNTED`. Raises `StoreError`.

        It reads the keys of an index only: arguments may be large.
        """
        found = 0
        async with aclosing(key_pages(self._store, _WAITING)) as pages:
            async for page in pages:
                found += len(page)
                if found >= MAX_COUNTED:
                    return MAX_COUNTED
        return found

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
        event = f"approval.{decision}"
        try:
            ticket = await self._decide(ticket_id, decision, by, own)
        except ApiError as error:
            audit(event, error.code, by, "approval", request_id, decided=decided)
            raise
        audit(event, "done", by, f"approval:{ticket.id}", request_id, decided=decided)
        return ticket

    async def _decide(self, ticket_id: str, decision: Decision, by: Principal, own: str | None) -> Ticket:
        # Two people may decide at once: whoever loses the race reads what the other one has decided, and is refused
        # with it.
        while True:
            found = await self._record(by.tenant, ticket_id)
            if found is None:
                raise ApiError("approval_not_found", "no such approval, or it has expired", "id")
            kept, revision = found
            if kept["state"] != "waiting":
                message = f"this approval is {kept['state']} already; a ticket is decided once"
                raise ApiError("approval_decided", message, "id")
            if own is not None and not kept["by_caller"]:
                same = by.credential != "" and kept.get("credential") == by.credential
                if own or same:
                    raise ApiError("own_call", own or _SAME_CREDENTIAL, "id")
            kept["state"], kept["decided_by"] = _DECIDED[decision], by.subject
            kept["decided_at"] = self._store.now()
            try:
                await self._write(_key(by.tenant, ticket_id), kept, revision)
            except StoreConflict:
                continue
            # After the decision, which is what counts: if the process ends in between, the index expires with the
            # ticket.
            await self._store.commit(_waiting_key(by.tenant, ticket_id), None)
            if decision == "approve":
                await self._offer(by.tenant, ticket_id, kept)
            return _ticket(ticket_id, kept)

    async def _new(self, plan: Plan, call: ToolCall, context: CallContext) -> ToolResult:
        tenant = context.principal.tenant
        # Several calls may pass here at once and exceed the limit by as many: it bounds the store, it need not be
        # exact.
        if len(await self._store.keys(_key(tenant, ""), limit=MAX_WAITING)) >= MAX_WAITING:
            plan.counters.limited_by("approvals")
            return limited_result(call, Refusal(f"{MAX_WAITING} calls wait for approval", LIFE_S))
        arguments = decode_arguments(call.arguments)
        kept: _StoredApproval = {
            "tool": call.name,
            "digest": plan.ref.digest,
            "body": _body(plan, arguments, context),
            "arguments": arguments,
            "subject": context.principal.subject,
            "agent": context.agent,
            "session": context.session is not None,
            "state": "waiting",
            "expires_at": self._store.now() + LIFE_S,
            "decided_by": None,
            "key": None,
            "by_caller": plan.caller_approves,
            "credential": context.principal.credential,
            "asked": context.conversation != "" or not isinstance(context.ask, NobodyToAsk),
            "tenant": tenant,
        }
        ticket_id = token_hex(12)
        await self._store.commit(_key(tenant, ticket_id), dump_json(kept), expected=0, ttl_s=LIFE_S)
        # A key without arguments, so that a scrape can count the waiting without reading what they are about.
        await self._store.commit(_waiting_key(tenant, ticket_id), b"", ttl_s=LIFE_S)
        reason = f"a person must approve this call first; then repeat it with approval {ticket_id!r}"
        return denied_result(call, _GATE, reason, approval=_show(ticket_id, kept))

    async def _use(self, ticket_id: str, plan: Plan, call: ToolCall, context: CallContext) -> Claim | ToolResult:
        tenant = context.principal.tenant
        while True:
            found = await self._record(tenant, ticket_id)
            if found is None:
                return denied_result(
                    call, _GATE, "there is no such approval, or it has expired; call again without one"
                )
            kept, revision = found
            if kept["body"] != _body(plan, decode_arguments(call.arguments), context):
                return denied_result(call, _GATE, "it was given for another call; call again without one")
            match kept["state"]:
                case "waiting":
                    shown = _show(ticket_id, kept)
                    return denied_result(call, _GATE, "no decision yet; try again later", approval=shown)
                case "denied":
                    return denied_result(call, _GATE, f"it was denied by {kept['decided_by']}")
                # The same key is the same call repeated, whose answer was lost on the way: it gets its first result,
                # not a refusal.
                case "used" if context.idempotency_key is None or context.idempotency_key != kept["key"]:
                    return denied_result(call, _GATE, "it was used already; call again without one")
                case "used":
                    return Claim(self, tenant, None)
                case "approved":
                    kept["state"], kept["key"] = "used", context.idempotency_key
            try:
                await self._write(_key(tenant, ticket_id), kept, revision)
            except StoreConflict:
                continue
            if context.idempotency_key is None:  # a repetition under the key finds the ticket, and its first result
                await self._store.commit(_approved_key(tenant, kept["body"], ticket_id), None)
            return Claim(self, tenant, ticket_id)

    async def _use_approved(self, plan: Plan, call: ToolCall, context: CallContext) -> Claim | None:
        """Claim an approved ticket of the same call; None if there is none."""
        prefix = _approved_key(context.principal.tenant, _body(plan, decode_arguments(call.arguments), context), "")
        for key in await self._store.keys(prefix, limit=_MOST_APPROVED):
            claim = await self._use(key.removeprefix(prefix), plan, call, context)
            if isinstance(claim, Claim):
                return claim
        return None

    async def _offer(self, tenant: str, ticket_id: str, kept: _StoredApproval) -> None:
        """Index the approved ticket under the content of its call, where the next equal call finds it."""
        left_s = max(kept["expires_at"] - self._store.now(), 0.001)
        await self._store.commit(_approved_key(tenant, kept["body"], ticket_id), b"", ttl_s=left_s)

    async def _record(self, tenant: str, ticket_id: str) -> tuple[_StoredApproval, int] | None:
        """Return a ticket as `_find` does; None also if the text cannot be a ticket's id."""
        # A slash in a caller's text would name a key of another tenant.
        is_id = ticket_id.isalnum() and ticket_id.isascii()
        return await self._find(_key(tenant, ticket_id)) if is_id else None

    async def _find(self, key: str) -> tuple[_StoredApproval, int] | None:
        """Return the ticket at a key and its revision; None if there is none, or, with an error, none can be read."""
        record = await self._store.read(key)
        if record is None:
            return None
        try:
            return _KEPT.validate_python(load_json(record.value), strict=True), record.revision
        except (InvalidJson, ValueError):
            _LOG.error("record %s cannot be read: it counts as no approval, and expires by itself", key)
            return None

    async def _write(self, key: str, kept: _StoredApproval, revision: int) -> None:
        # Stores refuse a time to live of zero; a ticket that expires in this moment lives for another millisecond.
        left_s = max(kept["expires_at"] - self._store.now(), 0.001)
        await self._store.commit(key, dump_json(kept), expected=revision, ttl_s=left_s)


class RunningApprovals(RunningPart[None]):
    """Gives a host its approvals. They hold nothing open: every ticket is a record of the store."""

    def __init__(self, services: PartServices) -> None:
        self.approvals: HostApprovals | None = Approvals(services.store)

    def configure(self, settings: None) -> None:
        """Nothing of it is configured."""

    async def aclose(self) -> None:
        """Nothing is open."""


def _body(plan: Plan, arguments: object, context: CallContext) -> str:
    """Return the digest of all that a repetition must have in common: tool, definition, arguments, caller, session."""
    ref, principal = plan.ref, context.principal
    # The definition's digest is in `ref`: an approval of one definition does not hold for the next.
    said = [*ref, arguments, dict(context.options), principal.subject, context.agent, context.session]
    return hashlib.sha256(canonical(said)).hexdigest()


def _key(tenant: str, ticket_id: str) -> str:
    return f"{_TICKETS}{tenant_digest(tenant)}/{ticket_id}"


_TICKETS = "approval/"
_WAITING = "approval-waiting/"


def _waiting_key(tenant: str, ticket_id: str) -> str:
    return f"{_WAITING}{tenant_digest(tenant)}/{ticket_id}"


def _approved_key(tenant: str, body: str, ticket_id: str) -> str:
    return f"approved/{tenant_digest(tenant)}/{body}/{ticket_id}"


def _ticket(ticket_id: str, kept: _StoredApproval) -> Ticket:
    decided_at = kept.get("decided_at")
    return Ticket(
        ticket_id,
        kept["tool"],
        kept["digest"],
        kept["arguments"],
        kept["subject"],
        kept["agent"],
        kept["session"],
        kept["state"],
        timestamp(kept["expires_at"]),
        kept["decided_by"],
        None if decided_at is None else timestamp(decided_at),
        kept["tenant"],
    )


def _show(ticket_id: str, kept: _StoredApproval) -> dict[str, object]:
    expires_at = timestamp(kept["expires_at"])
    return {"id": ticket_id, "expires_at": expires_at, "tool": kept["tool"], "digest": kept["digest"]}
