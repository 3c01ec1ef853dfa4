"""Grants: what a person allows for several calls at once, by a rule about their arguments.

A grant is a record of the store under its tenant, caller and tool. A process has those of the callers and tools that
call it in memory, and asks the store whether they are still valid when it has not done so for `FRESH_S`: so a
revocation acts in every process within a second, and no task has to listen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from secrets import token_hex
from time import monotonic
from typing import Any, Literal, cast

from toolplug.catalog.call import CallContext, Principal, ToolCall
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.catalog.plan import Plan
from toolplug.errors import ApiError, StoreConflict, StoreError
from toolplug.execution.accounting import audit
from toolplug.execution.user_auth import ScopeOf, no_scope
from toolplug.part_protocols.approvals import DecidedBy, GrantTerms, RevokedGrant
from toolplug.parts.approvals.events import TicketEvents, leave_untold
from toolplug.parts.approvals.held import (
    NEVER,
    NO_OPTIONS,
    Grant,
    GrantClaim,
    GrantGroup,
    GrantView,
    HeldGrant,
    StoredGrant,
    UsableGrant,
    ViewKey,
    digest_of,
    read_held,
    show_grant,
    view_of,
)
from toolplug.parts.approvals.limits import (
    FLUSH_S,
    FRESH_S,
    MAX_GRANTS,
    MAX_GRANTS_OF_TENANT,
    MAX_GROUPS,
)
from toolplug.parts.approvals.records import StoredApproval
from toolplug.parts.approvals.rules import closed_rule
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.signatures.values import decode_arguments
from toolplug.stores.store import Store, key_pages, name_digest, tenant_digest

_PREFIX = "grant/"
_ID = 32
_GROUP = 16
_LOG = logging.getLogger("toolplug.execution")


class Grants:
    """The grants of one host."""

    def __init__(self, store: Store, scope_of: ScopeOf = no_scope) -> None:
        self._store = store
        self._scope_of = scope_of
        self._groups: LeastRecentlyUsed[tuple[str, str], GrantGroup] = LeastRecentlyUsed(MAX_GROUPS)
        self._views: dict[ViewKey, GrantView] = {}
        self._tasks = BackgroundTasks()
        self.events: TicketEvents | None = None

    # It runs for each call that a grant allows, in a fifth of the time of `claim`.
    def claim_at_once(
        self, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, listed: str | None = None
    ) -> GrantClaim | None:
        """Return the right of a call that a grant in memory allows, which counts no calls; else None."""
        principal = context.principal
        # As long as the view is there, it keeps this `ref`.
        view = self._views.get((id(plan.ref), principal.subject, principal.tenant, context.agent, context.session))
        if view is None or view.rule is not plan.grants or context.options or context.credentials:
            return None
        # What a converter has made of them is for the tool.
        arguments = inner.arguments if plan.convert is None else decode_arguments(call.arguments)
        filled: Any = arguments
        if view.defaults is not None:
            try:
                filled = view.defaults.fill(arguments)
            except LookupError:
                return None
        index = view.at_once
        for held, until, matches, claim in index.find(filled) if index.texts else index.others:
            if matches is None or matches(filled):
                # One that was approved for itself uses its ticket, if that is left.
                if not held.fresh > monotonic() < until or (held.first and arguments == held.kept["asked"]):
                    return None
                held.pending += 1
                return claim
        return None

    async def claim(self, plan: Plan, call: ToolCall, context: CallContext, *, counted: bool) -> GrantClaim | None:
        """Return the right of a call that a grant allows, else None. Raises `StoreError`.

        Grants that count their calls are asked only if `counted`; then the store is asked too, before this is None.
        """
        principal, ref = context.principal, plan.ref
        if not plan.grants.most:
            return None
        key = principal.tenant, _group_of(principal.subject, ref.kind, ref.source, ref.name)
        group = self._groups.get(key)
        if group is None:
            group = GrantGroup(f"{_PREFIX}{tenant_digest(key[0])}/{key[1]}")
            self._groups.put(key, group)
        begun, arguments, options = monotonic(), decode_arguments(call.arguments), await self._options(context)
        while True:
            if group.read == NEVER:
                await self._read(group)
            usable = _find(self._view(group, plan, context), arguments, options, counted)
            if usable is None:
                if not counted or group.read >= begun:
                    return None
                # A person is not asked before the store was: another process may have made a grant just now.
                group.read = NEVER
                continue
            held = usable.held
            if held.first and not counted:
                held.first = arguments != held.kept["asked"]
                if not held.first:
                    return None  # the call that was approved uses its ticket, if that is left
            if held.kept["calls_left"] is None:
                if held.fresh <= monotonic() and not await self._is_current(group, held):
                    group.read = NEVER
                    continue
                held.pending += 1
                if not len(self._tasks):
                    self._tasks.start(self._flush_later(), "toolplug-approvals-used")
            elif not await self._spend(held, 1):
                group.read = NEVER  # another call was first: what is left must be read again
                continue
            return usable.claim

    async def _options(self, context: CallContext) -> str:
        if not context.options and not context.credentials:
            return NO_OPTIONS
        # Of two people behind one key of an application, neither is allowed by the grant of the other.
        return _digest_of_options(context.options, await self._scope_of(context.credentials))

    def _view(self, group: GrantGroup, plan: Plan, context: CallContext) -> GrantView:
        ref, principal = plan.ref, context.principal
        key = id(ref), principal.subject, principal.tenant, context.agent, context.session
        view = self._views.get(key)
        known = view is not None and view in group.views and view.ref is ref and view.rule is plan.grants
        if view is None or not known:
            view = view_of(self.release, group, plan, context, self._store.now())
            if len(self._views) >= MAX_GROUPS:
                self._views.clear()
            self._views[key] = view
        return view

    async def _is_current(self, group: GrantGroup, held: HeldGrant) -> bool:
        """Return whether a grant is in the store as it is in memory; for `FRESH_S` it is not asked about again."""
        begun, changes = monotonic(), group.changes
        revisions = await self._store.revisions([held.key])
        if revisions.get(held.key) != held.revision or group.changes != changes:
            return False
        held.fresh = begun + FRESH_S
        return True

    async def _read(self, group: GrantGroup) -> None:
        async with group.reading:
            begun, changes = monotonic(), group.changes
            if group.read != NEVER:
                return
            keys = await self._store.keys(f"{group.prefix}", limit=MAX_GRANTS * 2)
            known = {held.key: held for held in group.held}
            revisions = await self._store.revisions(keys) if keys else {}
            found: list[HeldGrant] = []
            for key in keys:
                held, revision = known.get(key), revisions.get(key, 0)
                if held is None or held.revision != revision:
                    record = await self._store.read(key) if revision else None
                    again = None if record is None else read_held(key, record)
                    if again is not None and held is not None:
                        held.kept, held.revision = again.kept, again.revision
                    held = held if again is not None and held is not None else again
                if held is not None:
                    held.fresh = begun + FRESH_S
                    found.append(held)
            if found != group.held:
                group.held = found
                group.drop_views()
            # A grant that was made or revoked meanwhile may not be among them.
            if group.changes == changes:
                group.read = begun

    async def _flush_later(self) -> None:
        """Write how often grants were used, until that is known of all."""
        while any(held.pending for _, group in self._groups.items() for held in group.held):
            await asyncio.sleep(FLUSH_S)
            for _, group in self._groups.items():
                await self._flush(group)
                # A store in memory never waits, and there may be thousands.
                await asyncio.sleep(0)

    async def _flush(self, group: GrantGroup) -> None:
        """Write how often the grants without a count were used; what fails is written the next time."""
        for held in group.held:
            if held.pending:
                pending = held.pending
                with suppress(StoreError):
                    if await self._write(held, {**held.kept, "used": held.kept["used"] + pending}):
                        held.pending -= pending

    async def _spend(self, held: HeldGrant, calls: int) -> bool:
        """Count so many calls; return whether the record was as it is in memory."""
        kept = held.kept
        left = kept["calls_left"]
        changed = {**kept, "used": kept["used"] + calls, "calls_left": None if left is None else left - calls}
        return await self._write(held, changed)

    async def _write(self, held: HeldGrant, kept: Mapping[str, object]) -> bool:
        left_s = max(held.kept["expires_at"] - self._store.now(), 0.001)
        try:
            revision = await self._store.commit(held.key, dump_json(kept), expected=held.revision, ttl_s=left_s)
        except StoreConflict:
            return False
        held.kept, held.revision = cast("StoredGrant", kept), revision
        return True

    async def release(self, held: HeldGrant) -> None:
        """Give back a call whose provider was not reached. If the store fails, it stays counted. Never raises."""
        if held.kept["calls_left"] is None:
            held.pending = max(held.pending - 1, 0)
            return
        try:
            while not await self._spend(held, -1):
                record = await self._store.read(held.key)
                again = None if record is None else read_held(held.key, record)
                if again is None:
                    return
                held.kept, held.revision = again.kept, again.revision
        except StoreError as error:
            _LOG.error("a call stays counted, as the store of grants fails: %s", error)

    async def make(self, kept: StoredApproval, terms: GrantTerms, by: Principal) -> str:
        """Store a grant of a decided call, and return its id. Raises `ApiError` and `StoreError`."""
        tenant, now = kept["tenant"], self._store.now()
        group = _group_of(kept["subject"], *kept.get("ref", ("", "", "")))
        prefix = f"{_PREFIX}{tenant_digest(tenant)}/"
        given, closed = terms.arguments, None
        kind: Literal["exact", "rule", "any"] = "any" if given is True else "exact" if given is None else "rule"
        if given is None:
            given = kept["arguments"] if kept.get("ran") is None else kept.get("ran")
        elif given is not True:
            closed = cast("dict[str, object]", load_json(closed_rule(given, kept.get("names")).text))
        stored: StoredGrant = {
            "tool": kept["tool"],
            "digest": kept["digest"],
            "subject": kept["subject"],
            "agent": kept["agent"],
            "code": kept.get("code"),
            "scope": terms.scope,
            "kind": kind,
            "given": given,
            "closed": closed,
            "options": _digest_of_options(kept.get("options") or {}, kept.get("brought", "")),
            "made_by": by.subject,
            "made_at": now,
            "expires_at": now + terms.for_s,
            "calls_left": terms.calls,
            "used": 0,
            "tenant": tenant,
            "asked": kept["arguments"],
        }
        grant_id = f"{group}{token_hex((_ID - _GROUP) // 2)}"
        await self._store.commit(f"{prefix}{grant_id}", dump_json(stored), expected=0, ttl_s=terms.for_s)
        self._forget(tenant, group)
        return grant_id

    async def check_room(self, kept: StoredApproval) -> None:
        """Raise `ApiError` if the caller of a call, or its tenant, has as many grants as it may."""
        prefix = f"{_PREFIX}{tenant_digest(kept['tenant'])}/"
        group = _group_of(kept["subject"], *kept.get("ref", ("", "", "")))
        if len(await self._store.keys(f"{prefix}{group}", limit=MAX_GRANTS)) >= MAX_GRANTS:
            message = f"the caller has {MAX_GRANTS} grants for this tool, the most there can be; revoke some"
            raise ApiError("too_many_grants", message, "grant")
        found = 0
        async for page in key_pages(self._store, prefix):
            found += len(page)
            if found >= MAX_GRANTS_OF_TENANT:
                message = f"the tenant has {MAX_GRANTS_OF_TENANT} grants, the most there can be; revoke some"
                raise ApiError("too_many_grants", message, "grant")

    async def list_grants(self, tenant: str | None, is_wanted: Callable[[Grant], bool]) -> list[Grant]:
        """Return the wanted grants of a tenant, None for all, that have not expired, the newest first.

        Raises `StoreError`.
        """
        found: list[Grant] = []
        pending = {held.key: held.pending for _, group in self._groups.items() for held in group.held}
        prefix = _PREFIX if tenant is None else f"{_PREFIX}{tenant_digest(tenant)}/"
        async for page in key_pages(self._store, prefix):
            for key in page:
                record = await self._store.read(key)
                held = None if record is None else read_held(key, record)
                if held is not None and is_wanted(grant := show_grant(held, pending.get(key, 0))):
                    found.append(grant)
        return sorted(found, key=lambda grant: grant.made_at, reverse=True)

    async def revoke(self, grant_id: str, by: Principal, *, decided: DecidedBy = "api", request_id: str = "") -> None:
        """Revoke a grant of this principal's tenant, audit it, and tell plugins. Raises `ApiError` and `StoreError`."""
        is_id = len(grant_id) == _ID and grant_id.isalnum() and grant_id.isascii()
        key = f"{_PREFIX}{tenant_digest(by.tenant)}/{grant_id}"
        record = await self._store.read(key) if is_id else None
        if record is None:
            audit("grant.revoke", "grant_not_found", by, "grant", request_id, decided=decided)
            raise ApiError("grant_not_found", "no such grant: it was revoked or has expired", "id")
        await self._store.commit(key, None)
        self._forget(by.tenant, grant_id[:_GROUP])
        audit("grant.revoke", "done", by, f"grant:{grant_id}", request_id, decided=decided)
        held = read_held(key, record)
        if held is None:
            return
        kept = held.kept
        told = RevokedGrant(
            grant_id,
            kept["tool"],
            kept["subject"],
            kept["agent"],
            by.tenant,
            kept["given"],
            kept["made_by"],
            by.subject,
        )
        if self.events is None:
            await leave_untold(self._store, told)
        else:
            self.events.publish("grant_revoked", told)

    def _forget(self, tenant: str, group: str) -> None:
        known = self._groups.get((tenant, group))
        if known is not None:
            known.forget()

    async def aclose(self) -> None:
        """Write how often grants were used."""
        await self._tasks.cancel()
        for _, group in self._groups.items():
            await self._flush(group)


# By values that come back with each call of a caller: hashing takes as long as the rest of a claim.
@lru_cache(maxsize=4_096)
def _group_of(subject: str, kind: str, source: str, name: str) -> str:
    return name_digest(subject, kind, source, name)[:_GROUP]


def _find(view: GrantView, arguments: dict[str, object], options: str, counted: bool) -> UsableGrant | None:
    now = monotonic()
    try:
        filled = arguments if view.defaults is None else view.defaults.fill(arguments)
    except LookupError:
        filled = None
    for usable in view.usable.others if filled is None else view.usable.find(cast("dict[str, object]", filled)):
        kept, left = usable.held.kept, usable.held.kept["calls_left"]
        if usable.until <= now or kept["options"] != options or (left is not None and not (counted and left)):
            continue
        if usable.matches is None or (filled is not None and usable.matches(cast("dict[str, object]", filled))):
            return usable
    return None


def _digest_of_options(options: Mapping[str, object], scope: str) -> str:
    """Return the digest of what a call has besides its arguments: options, and the scope of its credentials."""
    return digest_of([dict(options), scope] if scope else dict(options))
