"""The grants that a process has in memory: of one caller for one tool, and which of them a call can be allowed by."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
from typing import Literal, NamedTuple

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from toolplug.catalog.call import EMPTY, CallContext
from toolplug.catalog.definition import ToolRef
from toolplug.catalog.exact_json import as_object, load_json
from toolplug.catalog.plan import GrantRule, Plan
from toolplug.catalog.schema import Schema
from toolplug.config.units import timestamp
from toolplug.errors import InvalidJson
from toolplug.parts.approvals.limits import MAX_VIEWS
from toolplug.parts.approvals.rules import Defaults, Matcher, defaults_of, matcher_of, matcher_of_equal
from toolplug.signatures.values import canonical
from toolplug.stores.store import Record

NEVER = float("-inf")
"""Of `monotonic`: the store was not asked yet, or must be asked again."""
_FEW = 4
"""So many grants are asked one after the other in the time that finding the right ones takes."""
_LOG = logging.getLogger("toolplug.execution")


class StoredGrant(TypedDict):
    """The record of one grant."""

    tool: str
    digest: str
    subject: str
    agent: str | None
    code: str | None
    scope: Literal["session", "caller"]
    kind: Literal["exact", "rule", "any"]
    given: object  # as the person wrote it: a schema, True, or the arguments
    closed: dict[str, object] | None
    options: str  # a digest: of the options, and of the scope of credentials that the caller has brought
    made_by: str
    made_at: float
    expires_at: float
    calls_left: int | None
    used: int
    tenant: str
    asked: object  # the arguments of the call with which it was made, which uses its ticket


_KEPT = TypeAdapter(StoredGrant)


class Grant(NamedTuple):
    """A grant as people see it. `arguments` is the schema as it was written, True for every call, or exact values."""

    id: str
    tool: str
    digest: str
    caller: str
    agent: str | None
    session: bool
    scope: Literal["session", "caller"]
    arguments: object
    made_by: str
    made_at: str
    expires_at: str
    calls_left: int | None
    used: int
    tenant: str


@dataclass(slots=True, eq=False)
class HeldGrant:
    """A grant in memory, which was seen in the store `FRESH_S` before it is no longer `fresh` (`monotonic`)."""

    id: str
    key: str
    revision: int
    kept: StoredGrant
    rule: Schema | None
    fresh: float = NEVER
    pending: int = 0
    first: bool = True  # the approved call may still come


GiveBack = Callable[[HeldGrant], Awaitable[None]]


class GrantClaim(NamedTuple):
    """The right to make one call that a grant allows. Implements `toolplug.catalog.plan.ApprovalClaim`."""

    give_back: GiveBack
    held: HeldGrant
    metadata: Mapping[str, object]
    arguments: None = None
    ticket: None = None
    goes_on: None = None

    async def release(self, waits: Mapping[str, object] = EMPTY) -> None:
        """Count the call no more, as the provider was not reached. Never raises."""
        await self.give_back(self.held)

    async def end(self) -> None:
        """Do nothing: each call that goes on is allowed by the grant."""


class UsableGrant(NamedTuple):
    """A grant that may allow a call, `until` (`monotonic`); `matches` of its arguments is None for every call."""

    held: HeldGrant
    until: float
    matches: Matcher | None
    claim: GrantClaim


class GrantIndex(NamedTuple):
    """Grants by a text that an argument must be, and the `others`."""

    texts: Mapping[str, Mapping[str, Sequence[UsableGrant]]]
    others: Sequence[UsableGrant]

    def find(self, arguments: Mapping[str, object]) -> Sequence[UsableGrant]:
        """Return those that may match the arguments."""
        found = self.others
        for name, grants in self.texts.items():
            text = arguments.get(name)
            if isinstance(text, str) and text in grants:
                found = (*grants[text], *found)
        return found


_NOTHING = GrantIndex({}, ())


@dataclass(slots=True, eq=False)
class GrantView:
    """What a caller with an agent and a session has of the grants for this definition of a tool, under this rule.

    `at_once` are those that count no calls and hold for calls without options and credentials; they are none once a
    grant was made or revoked. `defaults` are filled in before it is asked what matches; None for nothing to fill in.
    """

    ref: ToolRef
    rule: GrantRule
    usable: GrantIndex
    at_once: GrantIndex
    defaults: Defaults | None


# By identity, since it is found for each call: of the tool's `ref`, which the view keeps.
ViewKey = tuple[int, str, str, str | None, str | None]


@dataclass(slots=True, eq=False)
class GrantGroup:
    """The grants of one caller for one tool, all of which were read (`monotonic`); `changes` counts the known ones."""

    prefix: str
    held: list[HeldGrant] = field(default_factory=list[HeldGrant])
    read: float = NEVER
    changes: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    views: list[GrantView] = field(default_factory=list[GrantView])

    def forget(self) -> None:
        """Have all grants read again."""
        self.read = NEVER
        self.changes += 1
        self.drop_views()

    def drop_views(self) -> None:
        """Have it sorted out again what a call can be allowed by."""
        for view in self.views:
            view.at_once = _NOTHING
        self.views.clear()


def is_within(rule: GrantRule, scope: str, kind: str) -> bool:
    """Return whether the file allows grants of this scope and kind."""
    return (scope == "session" or rule.scope == "caller") and (kind != "any" or rule.any)


def digest_of(value: object) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


NO_OPTIONS = digest_of({})
"""Of calls without options and credentials."""


def read_held(key: str, record: Record) -> HeldGrant | None:
    """Return the grant of a record; None, with an error in the log, if it cannot be read."""
    try:
        kept = _KEPT.validate_python(load_json(record.value), strict=True)
        rule = None if kept["closed"] is None else Schema(kept["closed"])
    except (InvalidJson, ValueError):
        _LOG.error("record %s cannot be read: it counts as no grant, and expires by itself", key)
        return None
    return HeldGrant(key.rpartition("/")[2], key, record.revision, kept, rule)


def view_of(give_back: GiveBack, group: GrantGroup, plan: Plan, context: CallContext, now: float) -> GrantView:
    """Return what this caller has of a group, for the tool as it is and under what the file says; `now` is the store's.

    It is one of the group's, if the group was not changed while it was read.
    """
    rule, defaults, ahead_s = plan.grants, defaults_of(plan.schema.text), monotonic() - now
    usable: list[UsableGrant] = []
    for held in group.held:
        kept = held.kept
        if kept["digest"] != plan.ref.digest or kept["agent"] != context.agent:
            continue
        if kept["scope"] == "session" and (context.session is None or kept["code"] != context.session):
            continue
        # The file may have changed since: it allows what it says now. With more defaults than are filled in, it is not
        # clear what a call is.
        if not is_within(rule, kept["scope"], kept["kind"]) or (defaults is None and kept["kind"] != "any"):
            continue
        until = min(kept["expires_at"], kept["made_at"] + rule.most) + ahead_s
        claim = GrantClaim(give_back, held, MappingProxyType({"granted_by": held.id}))
        usable.append(UsableGrant(held, until, _matcher_of(held, defaults), claim))
    at_once = [
        each for each in usable if each.held.kept["calls_left"] is None and each.held.kept["options"] == NO_OPTIONS
    ]
    view = GrantView(
        plan.ref, rule, _index(usable), _index(at_once), None if defaults is None or defaults.is_empty else defaults
    )
    if group.read != NEVER:
        if len(group.views) >= MAX_VIEWS:
            group.drop_views()
        group.views.append(view)
    return view


def _index(grants: Sequence[UsableGrant]) -> GrantIndex:
    if len(grants) <= _FEW:
        return GrantIndex({}, grants)
    texts: dict[str, dict[str, list[UsableGrant]]] = {}
    others: list[UsableGrant] = []
    for grant in grants:
        kept, found = grant.held.kept, None
        if kept["kind"] == "rule":
            properties = as_object(as_object(kept["closed"]).get("properties"))
            found = next(((name, as_object(item).get("const")) for name, item in properties.items()), None)
        elif kept["kind"] == "exact":
            found = next(iter(as_object(kept["given"]).items()), None)
        if found is not None and isinstance(found[1], str):
            texts.setdefault(found[0], {}).setdefault(found[1], []).append(grant)
        else:
            others.append(grant)
    return GrantIndex(texts, others)


def _matcher_of(held: HeldGrant, defaults: Defaults | None) -> Matcher | None:
    if held.rule is not None:
        return matcher_of(held.rule)
    if held.kept["kind"] == "any" or defaults is None:
        return None
    try:
        return matcher_of_equal(as_object(defaults.fill(held.kept["given"])))
    except LookupError:
        return lambda _: False


def show_grant(held: HeldGrant, pending: int) -> Grant:
    """Return a grant as people see it, with the calls that are not written yet."""
    kept = held.kept
    return Grant(
        held.id,
        kept["tool"],
        kept["digest"],
        kept["subject"],
        kept["agent"],
        kept["code"] is not None and kept["scope"] == "session",
        kept["scope"],
        kept["given"],
        kept["made_by"],
        timestamp(kept["made_at"]),
        timestamp(kept["expires_at"]),
        kept["calls_left"],
        kept["used"] + pending,
        kept["tenant"],
    )
