"""The calls that visitors follow, and the newest ones, which are remembered.

A call costs what it takes to note it. What visitors see is made of the notes a few times a second. While nobody looks,
and calls are neither remembered nor kept, the hooks around calls are switched off.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from heapq import heapify, heapreplace
from itertools import groupby, repeat
from operator import attrgetter, itemgetter
from time import time, time_ns
from typing import TypeAlias

import orjson

from toolplug import CallContext, Principal, ToolCall, ToolDefinition, ToolResult, ToolStatus, hookimpl
from toolplug_console.call_lines import MAX_PLACES, MAX_WATCHED, CallLines, crash_of, watched_rule_of
from toolplug_console.hour import Hour, tick_of
from toolplug_console.notes import (
    MAX_SHOWN,
    Arguments,
    Note,
    NotesOfTenant,
    QuickNote,
    most_telling,
    notes_of,
    origin_of,
)
from toolplug_console.seen_call import (
    HOSTS_OWN,
    NOT_REACHED,
    OPERATOR,
    SeenCall,
    asked_ticket,
    seen_call,
)

FLUSH_S = 0.25
FLUSH_S_EACH = 0.015
"""How long calls are collected, and how much longer for each visitor: fifty of them look once a second."""
MAX_SENT = 1_500
"""Calls that all visitors together are sent in one batch: 100 for each of fifty took 5 to 13 ms of a processor."""
MAX_NOTED = 10_000
"""Calls that are noted between two batches; beyond, the tenants with the most of them lose their oldest."""
RECENT = 200
"""Calls that are remembered; beyond, the tenant with the most of them loses its oldest."""
MAX_BACKLOG = 40
"""Batches that wait for a slow visitor, which then loses them and learns how many calls there were."""
MAX_VIEWERS = 200
MAX_VIEWERS_OF_TENANT = 100
MAX_VIEWERS_OF_SUBJECT = 50
MAX_FRESH = 256
"""Notes that wait to be sorted. Between two requests the processor forgets this code: after 8 MB of other data one note
alone takes 20 µs to sort, each of 64 together 2 µs, each of 256 0.8 µs. Those of as many tools take 1 ms together."""
REMEMBER_S = 1.0
"""How long calls are collected while nobody looks. To make 100 of them takes 1 ms, 0.1 % of a processor; at the
pace of `FLUSH_S` it would be 0.4 %."""

# Members of an enumeration are looked up slowly, and every call asks for them.
_SUCCESS, _DENIED = ToolStatus.SUCCESS, ToolStatus.DENIED

_alike_fields = itemgetter(*map(Note._fields.index, ("principal", "tool", "status", "ticket")))
_end_of = itemgetter(Note._fields.index("ended_at"))
_duration_of = itemgetter(Note._fields.index("duration_s"))


Answered: TypeAlias = tuple[CallContext, ToolResult, ToolDefinition | None, float, float, str, Arguments | None]
"""A call that was answered: its duration, its end, the watched rule, and its arguments if they are kept."""


class TooManyViewers(Exception):
    """As many visitors follow the host as may, in all, of this tenant or of this subject."""


class ViewerPlaces:
    """Places for visitors' streams: `MAX_VIEWERS`, of which no tenant and no subject can have all."""

    def __init__(self) -> None:
        self._taken: Counter[tuple[str, ...]] = Counter()

    @contextmanager
    def place(self, visitor: Principal) -> Generator[None]:
        """Hold a place inside the block. Raises `TooManyViewers`."""
        limits = {
            (): MAX_VIEWERS,
            (visitor.tenant,): MAX_VIEWERS_OF_TENANT,
            (visitor.tenant, visitor.subject): MAX_VIEWERS_OF_SUBJECT,
        }
        if any(self._taken[owner] >= most for owner, most in limits.items()):
            raise TooManyViewers
        self._taken.update(limits.keys())
        try:
            yield
        finally:
            self._taken.subtract(limits.keys())
            self._taken = +self._taken  # without those that have none left


class Viewer:
    """One visitor that follows the calls of its tenant, or, with tenant None, all of them."""

    def __init__(self, tenant: str | None) -> None:
        self.tenant = tenant
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._lost = 0
        self._wake = asyncio.Event()

    def take(self, batch: bytes, calls: int) -> None:
        """Have a batch of calls sent."""
        if len(self._waiting) >= MAX_BACKLOG:
            self._lost += sum(count for _, count in self._waiting)
            self._waiting.clear()
        self._waiting.append((batch, calls))
        self._wake.set()

    def wake(self) -> None:
        """Let it look whether it has to end."""
        self._wake.set()

    async def batches(self, within_s: float) -> list[bytes]:
        """Return the batches that wait; none after so many seconds without one."""
        # Not `asyncio.timeout`, which costs more than all else that is done for a visitor here.
        patience = asyncio.get_running_loop().call_later(within_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            patience.cancel()
        self._wake.clear()
        lost, self._lost = self._lost, 0
        found = [batch for batch, _ in self._waiting]
        self._waiting.clear()
        return [calls_event((), lost), *found] if lost else found


class CallFeed:
    """Notes calls and passes them on to visitors.

    `switch` switches the hooks around calls. With an `hour`, each call is counted in it, and the newest are remembered
    while nobody looks. The newest `keep` calls are kept with arguments and results, but for those of `sensitive` tools,
    given by name, and of tools that are marked so.
    """

    def __init__(
        self,
        switch: Callable[[bool], None],
        keep: int,
        sensitive: frozenset[str],
        hour: Hour | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._switch = switch
        self._keep = keep
        self._sensitive = sensitive
        self._hour = hour
        self._clock = clock
        self.remembered: int = max(keep, RECENT)
        """Calls that are remembered at most."""
        self._answered: list[Answered] = []  # in this turn of the loop
        self._fresh: list[QuickNote] = []  # still to be sorted
        self._noted: dict[str, NotesOfTenant] = {}  # since the last batch, by tenant
        self._noted_in_all = 0
        self._viewers: set[Viewer] = set()
        self._places_of_viewers = ViewerPlaces()
        self._seen: dict[int, SeenCall] = {}
        self._seen_of: dict[str, deque[int]] = {}  # their numbers by tenant, the oldest first
        self._with_texts: deque[int] = deque()
        self._unshared: deque[SeenCall] = deque(maxlen=RECENT)
        self._last_id = time_ns() // 1_000  # rises over restarts, so that pages know which calls are new
        self._flushing: asyncio.TimerHandle | None = None
        self._places = CallLines("toolplug.crashes", crash_of, MAX_PLACES)
        self._watched = CallLines("toolplug.audit", watched_rule_of, MAX_WATCHED)

    def open(self) -> None:
        """Have calls noted from now on, if anything is made of them."""
        self._look()

    @hookimpl
    def note(self, context: CallContext, result: ToolResult, tool: ToolDefinition | None, duration_s: float) -> None:
        """Note that a call was answered; one that no batch shows is counted. It is the console's hook `after_call`.

        What is noted of it is taken when all calls of this turn of the loop are answered: code that the processor has
        forgotten since the last request is slow, and each function here costs a call 0.5 % of its time.
        """
        waiting = self._answered
        # At once, as ids of calls are not unique.
        would = self._watched.of(result.call_id, context.request_id) if self._watched.lines else ""
        waiting.append((context, result, tool, duration_s, self._clock(), would, None))
        if len(waiting) == 1:
            asyncio.get_running_loop().call_soon(self._note_answered)
        elif len(waiting) == MAX_FRESH:
            self._note_answered()

    @hookimpl
    def note_with_arguments(
        self,
        call: ToolCall,
        context: CallContext,
        result: ToolResult,
        tool: ToolDefinition | None,
        duration_s: float,
    ) -> None:
        """Note that a call was answered, with its arguments."""
        would = self._watched.of(call.id, context.request_id)
        self._answered.append((context, result, tool, duration_s, self._clock(), would, call.arguments))
        self._note_answered()

    def _note_answered(self) -> None:
        """Take what is noted of the calls that were answered."""
        answered, self._answered = self._answered, []
        if not answered:
            return
        # Of the result only what is noted, as its text may have megabytes.
        self._fresh += [
            (
                context.principal,
                tool,
                result.status,
                asked_ticket(result.metadata) if result.metadata else "",
                result.name,
                result.call_id,
                "" if result.status is _SUCCESS or result.status not in HOSTS_OWN else result.output,
                ended_at,
                duration_s,
                None if arguments is None else (arguments, result.output),
                would,
                origin_of(context),
            )
            for context, result, tool, duration_s, ended_at, would, arguments in answered
        ]
        if len(self._fresh) >= MAX_FRESH:
            self._sort_fresh()
        if self._flushing is None:
            after_s = FLUSH_S + FLUSH_S_EACH * len(self._viewers) if self._viewers else REMEMBER_S
            self._flushing = asyncio.get_running_loop().call_later(after_s, self._flush)

    def sort_notes(self) -> None:
        """Count the calls that were answered in the hour, and put the newest of each tenant in its queue."""
        self._note_answered()
        self._sort_fresh()

    def _sort_fresh(self) -> None:
        fresh, self._fresh = self._fresh, []
        # Those in a row that are alike together: so the interpreter takes a few steps for all of them, and not 150 for
        # each.
        for _, alike in groupby(fresh, _alike_fields):
            self._sort_alike(list(alike))

    def _sort_alike(self, fresh: list[QuickNote]) -> None:
        """Count and queue notes of one caller's calls of one tool, which ended alike."""
        principal, tool, status, ticket, *_ = fresh[0]
        tenant = principal.tenant
        noted = self._noted.get(tenant)
        if noted is None:
            noted = self._noted[tenant] = NotesOfTenant(self._keep)
        noted.answered += len(fresh)
        if self._hour is not None:
            called = (tenant, "", "", "") if tool is None else (tenant, tool.ref.kind, tool.ref.source, tool.name)
            # A question is no failure.
            failed = status is not _SUCCESS and not (ticket and status is _DENIED)
            ran = not ticket and not (failed and status in NOT_REACHED)
            same_tick = tick_of(_end_of(fresh[0])) == tick_of(_end_of(fresh[-1]))
            for together in (fresh,) if same_tick else zip(fresh):
                took_s = map(_duration_of, together) if ran else repeat(0.0, len(together))
                self._hour.count(called, took_s, failed=failed, at=_end_of(together[0]))
        queue = noted.others if status is _SUCCESS else noted.failed
        before = len(queue)
        self._last_id += len(fresh)
        queue.extend(enumerate(fresh, self._last_id - len(fresh) + 1))
        self._noted_in_all += len(queue) - before
        if self._noted_in_all > MAX_NOTED:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the oldest notes of the tenants with the most of them, until a tenth of the places is free."""
        # So many at once, as a step for each tenant is needed to find who has the most.
        longest = [(-len(notes), tenant) for tenant, notes in self._noted.items()]
        heapify(longest)
        while self._noted_in_all > MAX_NOTED * 9 // 10:
            size, tenant = longest[0]
            self._noted[tenant].drop()
            heapreplace(longest, (size + 1, tenant))
            self._noted_in_all -= 1

    def close(self) -> None:
        """Forget everything, and let the visitors go."""
        if self._flushing is not None:
            self._flushing.cancel()
        self._answered.clear()
        self._places.set(False)
        self._watched.set(False)
        self.wake()

    def wake(self) -> None:
        """Let every visitor look whether it has to end."""
        for viewer in self._viewers:
            viewer.wake()

    @contextmanager
    def viewer(self, visitor: Principal) -> Generator[Viewer]:
        """Follow the calls that a visitor may see; its first batch are the remembered ones. Raises `TooManyViewers`."""
        with self._places_of_viewers.place(visitor):
            yield from self._follow(visitor)

    def _follow(self, visitor: Principal) -> Generator[Viewer]:
        self._flush_now()
        viewer = Viewer(None if visitor.has_scope(OPERATOR) else visitor.tenant)
        recent = sorted(_of_tenant(self._seen.values(), viewer.tenant), key=attrgetter("ts"))
        viewer.take(calls_event(recent, 0), len(recent))
        self._viewers.add(viewer)
        self._look()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            self._look()

    def detail(self, call: int, visitor: Principal) -> dict[str, object] | None:
        """Return a call that this visitor may see; None for any other."""
        seen = self._seen.get(call)
        if seen is None or not (visitor.has_scope(OPERATOR) or visitor.tenant == seen.tenant):
            return None
        return seen.detail(visitor)

    def take_shared(self) -> list[SeenCall]:
        """Return the calls that other processes have not been told of, the oldest first, and count them as told."""
        self._flush_now()
        calls = list(self._unshared)
        self._unshared.clear()
        return calls

    def share_later(self, calls: Iterable[SeenCall]) -> None:
        """Return calls that could not be told yet."""
        self._unshared.extendleft(reversed(list(calls)))

    def add(self, calls: Sequence[SeenCall]) -> None:
        """Remember calls of another process or of an earlier one, and pass them on to visitors."""
        fresh = [call for call in calls if call.id not in self._seen]
        for call in fresh:
            self._remember(call)
        for viewer in self._viewers:
            found = _of_tenant(fresh, viewer.tenant)
            if found:
                viewer.take(calls_event(found, 0), len(found))

    def _look(self) -> None:
        """Note calls only while they are remembered or kept, or somebody looks."""
        on = bool(self._viewers) or self._keep > 0 or self._hour is not None
        if not on:
            self._answered.clear()
            self._fresh.clear()
            self._noted.clear()
            self._noted_in_all = 0
            self._seen.clear()
            self._seen_of.clear()
        self._places.set(on)
        self._watched.set(on)
        self._switch(on)

    def _flush_now(self) -> None:
        self._note_answered()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flush()

    def _flush(self) -> None:
        """Make calls of the notes and pass them on."""
        self.sort_notes()
        self._flushing = None
        noted, self._noted, self._noted_in_all = self._noted, {}, 0
        most = min(MAX_SHOWN, MAX_SENT // max(len(self._viewers), 1))
        chosen = {
            tenant: most_telling(notes_of(noted, tenant), most) for tenant in {each.tenant for each in self._viewers}
        }
        remembered = [] if self._hour is None else most_telling(notes_of(noted, None), MAX_SHOWN)
        wanted = {number: note for notes in (*chosen.values(), remembered) for number, note in notes}
        if self._keep:
            wanted.update(note for notes in noted.values() for queue in (notes.failed, notes.others) for note in queue)
        seen = {number: self._see(number, Note._make(wanted[number])) for number in sorted(wanted)}
        batches: dict[str | None, tuple[bytes, int]] = {}
        for tenant, notes in chosen.items():
            answered = sum(each.answered for each in notes_of(noted, tenant))
            if answered:
                calls = [seen[number] for number, _ in notes]
                batches[tenant] = (calls_event(calls, answered - len(calls)), answered)
        for viewer in self._viewers:
            if viewer.tenant in batches:
                viewer.take(*batches[viewer.tenant])

    def _see(self, number: int, note: Note) -> SeenCall:
        tool = note.tool
        sensitive = note.title in self._sensitive or (
            tool is not None and (tool.hints.sensitive or tool.ref.name in self._sensitive)
        )
        seen = seen_call(note, number, self._places.of, sensitive=sensitive)
        self._remember(seen)
        if self._hour is not None:
            self._unshared.append(seen)
        return seen

    def _remember(self, call: SeenCall) -> None:
        self._seen[call.id] = call
        self._seen_of.setdefault(call.tenant, deque()).append(call.id)
        if call.arguments is not None:
            self._with_texts.append(call.id)
            if len(self._with_texts) > self._keep:
                self._forget_texts(self._with_texts.popleft())
        if len(self._seen) > self.remembered:
            tenant, most = max(self._seen_of.items(), key=lambda item: len(item[1]))
            del self._seen[most.popleft()]
            if not most:
                del self._seen_of[tenant]

    def _forget_texts(self, number: int) -> None:
        call = self._seen.get(number)
        if call is not None:
            self._seen[number] = replace(call, arguments=None, output=None)


_LINE_ENDS = {b"\xc2\x85": b"\\u0085", b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029"}
"""Characters that some readers of event streams take for the end of a line."""


def event(name: str, data: object) -> bytes:
    """Return an event of a stream."""
    text = orjson.dumps(data)
    for character, escaped in _LINE_ENDS.items():
        text = text.replace(character, escaped)
    return b"event: %s\ndata: %s\n\n" % (name.encode(), text)


def calls_event(calls: Sequence[SeenCall], skipped: int) -> bytes:
    """Return an event of calls, the oldest first; `skipped` more were made and are not shown."""
    return event("calls", {"calls": [each.as_listed() for each in calls], "skipped": skipped})


def _of_tenant(calls: Iterable[SeenCall], tenant: str | None) -> list[SeenCall]:
    return [call for call in calls if tenant is None or call.tenant == tenant]
