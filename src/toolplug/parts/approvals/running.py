"""Approvals: a ticket lets a person decide on exactly one call of one caller; it is decided once and used once."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import aclosing, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from secrets import token_hex
from typing import NamedTuple

from toolplug.catalog.call import DECIDE_SCOPE, EMPTY, CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.catalog.plan import Plan, Refusal
from toolplug.errors import ApiError, InvalidJson, StoreConflict, StoreError
from toolplug.execution.accounting import audit
from toolplug.execution.results import denied_result, limited_result, unavailable
from toolplug.execution.user_auth import ScopeOf, no_scope
from toolplug.part_protocols.approvals import (
    LIFE_S,
    NO_TERMS,
    ClaimAtOnce,
    DecidedBy,
    Decision,
    DecisionTerms,
    GrantTerms,
    HostApprovals,
    Ticket,
    TicketState,
)
from toolplug.part_protocols.host_part import HostTools, PartServices, RunningPart
from toolplug.parts.approvals.events import TicketEvents, leave_untold
from toolplug.parts.approvals.grants import Grants
from toolplug.parts.approvals.held import GrantClaim
from toolplug.parts.approvals.limits import (
    MAX_APPROVED,
    MAX_COUNTED,
    MAX_WAITING,
    MAX_WAITING_OF_CALLER,
    USED_LIFE_S,
)
from toolplug.parts.approvals.records import (
    KEPT,
    TICKETS,
    WAITING,
    StoredApproval,
    approved_key,
    changes_of,
    digest_call,
    equal_key,
    question_of,
    show_ticket,
    ticket_key,
    ticket_of,
    waiting_key,
)
from toolplug.parts.approvals.settings import ApprovalSettings
from toolplug.parts.approvals.terms import NO_TOOLS, check_owner, check_terms, reason_of
from toolplug.runtime.keyed_locks import KeyedLocks
from toolplug.stores.store import Record, Store, key_pages

_GATE = "approval"
_LOG = logging.getLogger("toolplug.execution")

_DECIDED: dict[Decision, TicketState] = {"approve": "approved", "deny": "denied"}


class Claim(NamedTuple):
    """The right to make one approved call. Implements `toolplug.catalog.plan.ApprovalClaim`.

    `ticket` is the ticket that this call used; None where an earlier call with the same idempotency key used it, or
    another one `goes_on`.
    """

    approvals: Approvals
    tenant: str
    ticket: str | None
    goes_on: str | None = None
    arguments: Mapping[str, object] | None = None
    metadata: Mapping[str, object] = EMPTY

    async def release(self, waits: Mapping[str, object] = EMPTY) -> None:
        """Return the ticket to `approved`, as the provider was not reached, or waits. Never raises."""
        if self.ticket is not None:
            await self.approvals.release(self.tenant, self.ticket, waits)

    async def end(self) -> None:
        """Let no other call go on with what this one has ended. Never raises."""
        if self.ticket is not None and self.goes_on is not None:
            await self.approvals.end(self.tenant, self.ticket)


class Approvals:
    """The tickets of one host. Implements `toolplug.part_protocols.approvals.HostApprovals`.

    `life_s` is how long a call waits; `tools` finds the tool of a call for what comes with a decision.
    """

    def __init__(
        self, store: Store, *, life_s: float = LIFE_S, tools: HostTools = NO_TOOLS, scope_of: ScopeOf = no_scope
    ) -> None:
        self._store = store
        self._scope_of = scope_of
        self._digest = partial(digest_call, scope_of=scope_of)
        self._tools = tools
        self.life_s: float = life_s
        self.grants: Grants = Grants(store, scope_of)
        # Without a step in between: of a call that a grant allows, nothing else is asked.
        self.claim_at_once: ClaimAtOnce = self.grants.claim_at_once
        self._asking: KeyedLocks[tuple[str, str]] = KeyedLocks()
        self._granting: KeyedLocks[str] = KeyedLocks()
        self.events: TicketEvents | None = None

    async def claim(
        self,
        plan: Plan,
        call: ToolCall,
        context: CallContext,
        why: str | None = None,
        listed: str | None = None,
    ) -> Claim | GrantClaim | ToolResult:
        """Use up the approval of this call; else the refusal, with the ticket that a person can decide.

        Without a ticket in the context, the call is allowed by a grant, or an approved ticket of the same call of the
        same caller is used; so it is if the ticket is one of another call, which the tool itself has made, as a script
        does. `why` is the reason of a plugin that wants the approval.
        """
        try:
            named = None if context.approval is None else await self._use(context.approval, plan, call, context)
            return (
                named
                or await self.grants.claim(plan, call, context, counted=False)
                # Before a grant that counts: the call that was approved is not one of those after it.
                or await self._use_approved(plan, call, context)
                or await self.grants.claim(plan, call, context, counted=True)
                or (
                    await self._new(plan, call, listed, context, why) if context.approval is None else _other_call(call)
                )
            )
        except StoreError as error:
            _LOG.error("the store of approvals fails: %s", error)
            return unavailable(call, "its store cannot answer", code="store_unavailable")

    async def release(self, tenant: str, ticket_id: str, waits: Mapping[str, object] = EMPTY) -> None:
        """Return a used ticket to `approved`, until the end of the question that its tool waits for, if that is later.

        If the store fails, it stays used, with an error in the log.
        """
        with _log_failures("an approval stays used"):
            found = await self._find(ticket_key(tenant, ticket_id))
            if found is None:
                return
            kept, revision = found
            kept["state"], kept["key"] = "approved", None
            inner, until = waits.get("id"), waits.get("expires_at")
            if isinstance(inner, str) and isinstance(until, str):
                kept["goes_on"] = inner
                with suppress(ValueError):  # it may be of a linked host, or whatever a tool says
                    latest = self._store.now() + self.life_s
                    kept["expires_at"] = max(kept["expires_at"], min(datetime.fromisoformat(until).timestamp(), latest))
            await self._write(ticket_key(tenant, ticket_id), kept, revision)
            await self._offer(tenant, ticket_id, kept)

    async def end(self, tenant: str, ticket_id: str) -> None:
        """Let no call go on under a used ticket whose tool has waited. If the store fails, it ends with the ticket."""
        with _log_failures("a used approval still tells how its call ended"):
            found = await self._find(ticket_key(tenant, ticket_id))
            if found is not None and found[0]["state"] == "used":
                kept, revision = found
                kept.pop("goes_on", None)
                await self._write(ticket_key(tenant, ticket_id), kept, revision)
                await self._store.commit(approved_key(tenant, kept["body"], ticket_id), None)

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
        return ticket_of(ticket_id, kept) if own and (kept["by_caller"] or caller.has_scope(DECIDE_SCOPE)) else None

    async def session_grant(self, ticket_id: str, caller: Principal) -> GrantTerms | None:
        """Return the grant for its session that this caller may make with a ticket; None if there can be none.

        It is for as long as the file allows, and for every call if it allows that, else for equal calls. Raises
        `StoreError`.
        """
        found = await self._record(caller.tenant, ticket_id)
        rule = None if found is None else found[0].get("grants")
        if found is None or rule is None or not rule["most"] or found[0].get("code") is None:
            return None
        # Under `{ask: caller}` the program at the client may be what answers.
        if found[0]["by_caller"] or not caller.has_scope(DECIDE_SCOPE):
            return None
        return GrantTerms(rule["most"], "session", True if rule["any"] else None)

    async def waiting(self, tenant: str) -> list[Ticket]:
        """Return the unexpired tickets of a tenant, decided ones too, the newest last. Raises `StoreError`.

        A record that cannot be read is left out, with an error in the log.
        """
        return await self._list(ticket_key(tenant, ""))

    async def everywhere(self) -> list[Ticket]:
        """Return the tickets of all tenants as `waiting` does, at most `MAX_WAITING`. Raises `StoreError`."""
        return await self._list(TICKETS)

    async def _list(self, prefix: str) -> list[Ticket]:
        tickets: list[Ticket] = []
        for key in await self._store.keys(prefix, limit=MAX_WAITING):
            found = await self._find(key)
            if found is not None:
                tickets.append(ticket_of(key.rpartition("/")[2], found[0]))
        return sorted(tickets, key=lambda ticket: ticket.expires_at)

    async def count_waiting(self) -> int:
        """Return how many tickets of all tenants wait for a decision, at most `MAX_COUNTED`. Raises `StoreError`.

        It reads the keys of an index only: arguments may be large.
        """
        found = 0
        async with aclosing(key_pages(self._store, WAITING)) as pages:
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
        terms: DecisionTerms = NO_TERMS,
    ) -> Ticket:
        """Decide a waiting ticket of this principal's tenant, and audit it. Raises `ApiError` and `StoreError`.

        A credential does not decide its own call (`own_call`), unless its policy is `{ask: caller}`, and never makes a
        grant for itself. `own` is the reason why the decision counts as that of the caller whatever its credential,
        and None where the person at the caller's client decides (`decidable`).
        """
        event = f"approval.{decision}"
        # One after the other: grants that are made at once would count none of each other.
        making = nullcontext() if terms.grant is None else self._granting.of(by.tenant)
        try:
            async with making:
                ticket, made = await self._decide(ticket_id, decision, by, own, terms)
        except ApiError as error:
            audit(event, error.code, by, "approval", request_id, decided=decided)
            raise
        more = {**changes_of(ticket), **({"grant": made} if made else {})}
        audit(event, "done", by, f"approval:{ticket.id}", request_id, None, decided=decided, **more)
        if self.events is None:
            await leave_untold(self._store, ticket)
        else:
            self.events.publish("approval_decided", ticket)
        return ticket

    async def find(self, place: str) -> Ticket | None:
        """Return the ticket of `TENANT_DIGEST/ID`, None if there is none. Raises `StoreError`."""
        found = await self._find(f"{TICKETS}{place}")
        return None if found is None else ticket_of(place.rpartition("/")[2], found[0])

    async def _decide(
        self, ticket_id: str, decision: Decision, by: Principal, own: str | None, terms: DecisionTerms
    ) -> tuple[Ticket, str]:
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
            check_owner(kept, by, own, terms)
            checked = await check_terms(terms, decision, kept, self._tools)
            if terms.grant is not None:
                await self.grants.check_room(kept)
            kept["state"], kept["decided_by"] = _DECIDED[decision], by.subject
            kept["decided_at"], kept["reason"] = self._store.now(), reason_of(terms)
            if checked is not None:
                kept["ran"] = checked
            try:
                written = await self._write(ticket_key(by.tenant, ticket_id), kept, revision)
            except StoreConflict:
                continue
            # After the decision, which is what counts: if the process ends in between, the index expires with the
            # ticket.
            await self._store.commit(waiting_key(by.tenant, kept["subject"], ticket_id), None)
            made = await self._grant(ticket_id, kept, written, terms.grant, by)
            if decision == "approve":
                await self._offer(by.tenant, ticket_id, kept)
            return ticket_of(ticket_id, kept), made

    async def _grant(
        self, ticket_id: str, kept: StoredApproval, revision: int, terms: GrantTerms | None, by: Principal
    ) -> str:
        """Make the grant of a decision, if there is one, and return its id, else an empty text."""
        if terms is None:
            return ""
        made = await self.grants.make(kept, terms, by)
        kept["grant"] = made
        await self._write(ticket_key(kept["tenant"], ticket_id), kept, revision)
        return made

    async def _new(
        self, plan: Plan, call: ToolCall, listed: str | None, context: CallContext, why: str | None
    ) -> ToolResult:
        body = await self._digest(plan, call, context)
        kept = question_of(plan, call, listed, context, why, self._store.now(), self.life_s, body)
        if context.credentials:
            kept["brought"] = await self._scope_of(context.credentials)
        index = await self._store.read(equal_key(kept))
        if index is not None and (asked := await self._still_waiting(kept, index.value)) is not None:
            return _refuse(call, *asked)
        # One after the other: calls that come at once would count none of each other, and take the tenant's places.
        async with self._asking.of((kept["tenant"], kept["subject"])):
            refusal = await self._full(kept)
            if refusal is None:
                return await self._ask(call, kept, index)
        plan.counters.limited_by("approvals")
        return limited_result(call, refusal)

    async def _ask(self, call: ToolCall, kept: StoredApproval, index: Record | None) -> ToolResult:
        """Make the ticket of a call; `index` is what the key of equal calls had."""
        same = equal_key(kept)
        tenant, subject, life_s = kept["tenant"], kept["subject"], self.life_s
        ticket_id = token_hex(12)
        await self._store.commit(ticket_key(tenant, ticket_id), dump_json(kept), expected=0, ttl_s=life_s)
        # A key without arguments, so that a scrape can count the waiting without reading what they are about.
        await self._store.commit(waiting_key(tenant, subject, ticket_id), b"", ttl_s=life_s)
        try:
            expected = 0 if index is None else index.revision
            await self._store.commit(same, ticket_id.encode(), expected=expected, ttl_s=life_s)
        except StoreConflict:
            # An equal call was faster: its ticket is the one that people see.
            index = await self._store.read(same)
            asked = None if index is None else await self._still_waiting(kept, index.value)
            if asked is not None:
                await self._store.commit(ticket_key(tenant, ticket_id), None)
                await self._store.commit(waiting_key(tenant, subject, ticket_id), None)
                return _refuse(call, *asked)
        if self.events is not None:
            self.events.publish("approval_waiting", ticket_of(ticket_id, kept))
        return _refuse(call, ticket_id, kept)

    async def _still_waiting(self, kept: StoredApproval, index: bytes) -> tuple[str, StoredApproval] | None:
        """Return the ticket that an index names, if it is that of the same call and waits."""
        ticket_id = index.decode("ascii", "replace")
        found = await self._record(kept["tenant"], ticket_id)
        if found is None or found[0]["body"] != kept["body"] or found[0]["state"] != "waiting":
            return None
        return ticket_id, found[0]

    async def _full(self, kept: StoredApproval) -> Refusal | None:
        # Other callers and processes may pass here at once and exceed the limit by as many: it need not be exact.
        tenant, subject = kept["tenant"], kept["subject"]
        if len(await self._store.keys(waiting_key(tenant, subject), limit=MAX_WAITING_OF_CALLER)) >= (
            MAX_WAITING_OF_CALLER
        ):
            return Refusal(f"{MAX_WAITING_OF_CALLER} calls of this caller wait for approval", LIFE_S)
        if len(await self._store.keys(waiting_key(tenant), limit=MAX_WAITING)) >= MAX_WAITING:
            return Refusal(f"{MAX_WAITING} calls wait for approval", LIFE_S)
        return None

    async def _use(self, ticket_id: str, plan: Plan, call: ToolCall, context: CallContext) -> Claim | ToolResult | None:
        """Use up a ticket, or return the refusal; None if it is one of another call."""
        tenant = context.principal.tenant
        while True:
            found = await self._record(tenant, ticket_id)
            if found is None:
                return denied_result(
                    call, _GATE, "there is no such approval, or it has expired; call again without one"
                )
            kept, revision = found
            goes_on = kept.get("goes_on")
            if kept["body"] != await self._digest(plan, call, context):
                return None
            match kept["state"]:
                case "waiting":
                    return denied_result(
                        call, _GATE, "no decision yet; try again later", approval=show_ticket(ticket_id, kept)
                    )
                case "denied":
                    reason = kept.get("reason")
                    text = f"it was denied by {kept['decided_by']}{f': {reason}' if reason else ''}"
                    return denied_result(call, _GATE, text)
                # The same key is the same call repeated, whose answer was lost on the way: it gets its first result,
                # not a refusal.
                case "used" if context.idempotency_key is not None and context.idempotency_key == kept["key"]:
                    return _claim(self, None, kept)
                case "used" if goes_on is not None:
                    return _claim(
                        self, None, kept, goes_on if context.approval in (None, ticket_id) else context.approval
                    )
                case "used":
                    return denied_result(call, _GATE, "it was used already; call again without one")
                case "approved":
                    kept["state"], kept["key"] = "used", context.idempotency_key
            try:
                await self._write(ticket_key(tenant, ticket_id), kept, revision)
            except StoreConflict:
                continue
            # A repetition under the key finds the ticket, and its first result; one of a call that goes on, its answer.
            if context.idempotency_key is None and goes_on is None:
                await self._store.commit(approved_key(tenant, kept["body"], ticket_id), None)
            return _claim(self, ticket_id, kept, goes_on)

    async def _use_approved(self, plan: Plan, call: ToolCall, context: CallContext) -> Claim | None:
        """Claim an approved ticket of the same call; None if there is none."""
        prefix = approved_key(context.principal.tenant, await self._digest(plan, call, context), "")
        for key in await self._store.keys(prefix, limit=MAX_APPROVED):
            claim = await self._use(key.removeprefix(prefix), plan, call, context)
            if isinstance(claim, Claim):
                return claim
        return None

    async def _offer(self, tenant: str, ticket_id: str, kept: StoredApproval) -> None:
        """Index the approved ticket under the content of its call, where the next equal call finds it."""
        left_s = max(kept["expires_at"] - self._store.now(), 0.001)
        await self._store.commit(approved_key(tenant, kept["body"], ticket_id), b"", ttl_s=left_s)

    async def _record(self, tenant: str, ticket_id: str) -> tuple[StoredApproval, int] | None:
        """Return a ticket as `_find` does; None also if the text cannot be a ticket's id."""
        # A slash in a caller's text would name a key of another tenant.
        is_id = ticket_id.isalnum() and ticket_id.isascii()
        return await self._find(ticket_key(tenant, ticket_id)) if is_id else None

    async def _find(self, key: str) -> tuple[StoredApproval, int] | None:
        """Return the ticket at a key and its revision; None if there is none, or, with an error, none can be read."""
        record = await self._store.read(key)
        if record is None:
            return None
        try:
            return KEPT.validate_python(load_json(record.value), strict=True), record.revision
        except (InvalidJson, ValueError):
            _LOG.error("record %s cannot be read: it counts as no approval, and expires by itself", key)
            return None

    async def _write(self, key: str, kept: StoredApproval, revision: int) -> int:
        # Stores refuse a time to live of zero; a ticket that expires in this moment lives for another millisecond.
        left_s = max(kept["expires_at"] - self._store.now(), 0.001)
        # With a long life, the used tickets of callers that decide themselves would pile up.
        left_s = min(left_s, USED_LIFE_S) if kept["state"] == "used" and "goes_on" not in kept else left_s
        return await self._store.commit(key, dump_json(kept), expected=revision, ttl_s=left_s)


def _other_call(call: ToolCall) -> ToolResult:
    return denied_result(
        call, _GATE, "it was given for another call, or before the tool has changed; call again without one"
    )


def _claim(approvals: Approvals, ticket: str | None, kept: StoredApproval, goes_on: str | None = None) -> Claim:
    ran = kept.get("ran")
    if not isinstance(ran, dict):
        return Claim(approvals, kept["tenant"], ticket, goes_on)
    return Claim(approvals, kept["tenant"], ticket, goes_on, ran, {"ran": ran})


@contextmanager
def _log_failures(what: str) -> Generator[None]:
    """Log that the store fails, as nobody could be told of it any more."""
    try:
        yield
    except StoreError as error:
        _LOG.error("%s, as the store of approvals fails: %s", what, error)


def _refuse(call: ToolCall, ticket_id: str, kept: StoredApproval) -> ToolResult:
    because = kept.get("asked_because")
    reason = f"a person must approve this call first{f' ({because})' if because else ''}"
    text = f"{reason}; then repeat it with approval {ticket_id!r}"
    return denied_result(call, _GATE, text, approval=show_ticket(ticket_id, kept))


class RunningApprovals(RunningPart[ApprovalSettings]):
    """Gives a host its approvals. Every ticket is a record of the store."""

    def __init__(self, services: PartServices, settings: ApprovalSettings) -> None:
        self.own: Approvals = Approvals(
            services.store,
            life_s=settings.life,
            tools=services.tools,
            scope_of=services.calls.scope_of,
        )
        self.approvals: HostApprovals | None = self.own
        self._events = self.own.events = self.own.grants.events = TicketEvents(
            services.store, services.plugins, self.own.find
        )
        self._serving = services.serving

    def begin(self) -> None:
        """Hear of decisions of the command line."""
        if self._serving:
            self._events.begin()

    def configure(self, settings: ApprovalSettings | None) -> None:
        """Let the calls that are asked about from now on wait for so long."""
        self.own.life_s = LIFE_S if settings is None else settings.life

    async def aclose(self) -> None:
        """Tell plugins of what they do not know yet, and write how often grants were used."""
        await self._events.aclose()
        await self.own.grants.aclose()
