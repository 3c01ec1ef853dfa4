"""The calls that visitors follow. While nobody looks and no calls are kept, the hooks around calls are switched off.

A call costs what it takes to note it. What visitors see is made of the notes a few times a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from time import time

import orjson

from toolplug import CallContext, Principal, ToolCall, ToolDefinition, ToolResult, ToolStatus
from toolplug_console.seen_call import HOSTS_OWN, OPERATOR, Note, SeenCall, quick_note, seen_call

FLUSH_S = 0.25
FLUSH_S_EACH = 0.015
"""How long calls are collected, and how much longer for each visitor: fifty of them look once a second."""
MAX_SHOWN = 100
"""Calls of a tenant in one batch; of more, failures come first, and the others are counted."""
MAX_NOTED = 10_000
"""Calls that are noted between two batches; more are counted."""
RECENT = 200
"""Calls that are remembered while somebody looks."""
MAX_BACKLOG = 40
"""Batches that wait for a slow visitor, which then loses them and learns how many calls there were."""
MAX_VIEWERS = 200
MAX_PLACES = 200


class TooManyViewers(Exception):
    """As many visitors follow the calls as may."""


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
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        self._wake.clear()
        lost, self._lost = self._lost, 0
        found = [batch for batch, _ in self._waiting]
        self._waiting.clear()
        return [calls_event((), lost), *found] if lost else found


class CallFeed:
    """Notes calls and passes them on to visitors.

    `switch` switches the hooks around calls; the newest `keep` calls are kept with arguments and results, but for those
    of `sensitive` tools, given by name, and of tools that are marked so.
    """

    def __init__(self, switch: Callable[[bool], None], keep: int, sensitive: frozenset[str]) -> None:
        self._switch = switch
        self._keep = keep
        self._sensitive = sensitive
        self._noted: list[Note] = []
        self._answered: dict[str, int] = {}  # calls since the last batch, by tenant
        self._viewers: set[Viewer] = set()
        self._seen: OrderedDict[int, SeenCall] = OrderedDict()
        self._last_id = int(time() * 1_000_000)  # rises over restarts, so that pages know which calls are new
        self._flushing: asyncio.TimerHandle | None = None
        self._places = CrashPlaces()
        self._look()

    def note(
        self,
        call: ToolCall,
        context: CallContext,
        result: ToolResult,
        tool: ToolDefinition | None,
        duration_s: float,
    ) -> None:
        """Note that a call was answered. One that no batch shows is counted."""
        status = result.status
        tenant = context.principal.tenant
        answered = self._answered[tenant] = self._answered.get(tenant, 0) + 1
        if answered > MAX_SHOWN and status is ToolStatus.SUCCESS and not self._keep:
            return
        if len(self._noted) >= MAX_NOTED:
            return
        texts = (call.arguments, result.output) if self._keep else None
        reason = result.output if status in HOSTS_OWN else ""
        self._noted.append(
            quick_note(
                Note,
                (
                    call.name,
                    call.id,
                    context.principal,
                    context.agent,
                    context.session,
                    context.request_id,
                    context.trace_context,
                    status,
                    reason,
                    tool,
                    time(),
                    duration_s,
                    texts,
                ),
            )
        )
        if self._flushing is None:
            after_s = FLUSH_S + FLUSH_S_EACH * len(self._viewers)
            self._flushing = asyncio.get_running_loop().call_later(after_s, self._flush)

    def close(self) -> None:
        """Forget everything, and let the visitors go."""
        if self._flushing is not None:
            self._flushing.cancel()
        self._places.set(False)
        self.wake()

    def wake(self) -> None:
        """Let every visitor look whether it has to end."""
        for viewer in self._viewers:
            viewer.wake()

    @contextmanager
    def viewer(self, visitor: Principal) -> Generator[Viewer]:
        """Follow the calls that a visitor may see; its first batch are the recent ones. Raises `TooManyViewers`."""
        if len(self._viewers) >= MAX_VIEWERS:
            raise TooManyViewers
        viewer = Viewer(None if visitor.has_scope(OPERATOR) else visitor.tenant)
        recent = _of_tenant(self._seen.values(), viewer.tenant)
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

    def _look(self) -> None:
        """Note calls only while they are kept or somebody looks."""
        on = bool(self._viewers) or self._keep > 0
        if not on:
            self._noted.clear()
            self._answered.clear()
            self._seen.clear()
        self._places.set(on)
        self._switch(on)

    def _flush(self) -> None:
        """Make calls of the notes and pass them on."""
        self._flushing = None
        noted, self._noted = self._noted, []
        answered, self._answered = self._answered, {}
        tenants = {viewer.tenant for viewer in self._viewers}
        chosen = {tenant: _most_telling(_notes_of(noted, tenant)) for tenant in tenants}
        wanted = {id(note) for notes in (*chosen.values(), noted[len(noted) - self._keep :]) for note in notes}
        seen = {id(note): self._see(note) for note in noted if id(note) in wanted}
        while len(self._seen) > (self._keep or RECENT):
            self._seen.popitem(last=False)
        batches: dict[str | None, tuple[bytes, int]] = {}
        for tenant, notes in chosen.items():
            total = sum(answered.values()) if tenant is None else answered.get(tenant, 0)
            skipped = total - len(notes)
            if notes or skipped:
                calls = [seen[id(note)] for note in notes]
                batches[tenant] = (calls_event(calls, skipped), len(calls) + skipped)
        for viewer in self._viewers:
            if viewer.tenant in batches:
                viewer.take(*batches[viewer.tenant])

    def _see(self, note: Note) -> SeenCall:
        self._last_id += 1
        tool = note.tool
        sensitive = note.name in self._sensitive or (
            tool is not None and (tool.hints.sensitive or tool.name in self._sensitive)
        )
        place = self._places.of(note.call_id, note.request_id)
        seen = seen_call(note, self._last_id, place, sensitive=sensitive)
        self._seen[seen.id] = seen
        return seen


class CrashPlaces(logging.Handler):
    """Where the tools of recent calls crashed: the lines that the host logs of them, without texts of exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._logger = logging.getLogger("toolplug.crashes")
        self._lines: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._on = False

    def set(self, on: bool) -> None:
        """Listen, or stop that."""
        if on is self._on:
            return
        self._on = on
        if on:
            self._logger.addHandler(self)
        else:
            self._logger.removeHandler(self)
            self._lines.clear()

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the place of a crash."""
        crash = getattr(record, "crash", None)
        if crash is not None and crash.call_id:
            self._lines[crash.call_id, crash.request_id] = crash.line
            if len(self._lines) > MAX_PLACES:
                self._lines.popitem(last=False)

    def of(self, call_id: str, request_id: str) -> str:
        """Return the place of a call's crash, empty if it did not crash."""
        return self._lines.pop((call_id, request_id), "")


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
    return event("calls", {"calls": [each.listed() for each in calls], "skipped": skipped})


def _of_tenant(calls: Iterable[SeenCall], tenant: str | None) -> list[SeenCall]:
    return [call for call in calls if tenant is None or call.tenant == tenant]


def _notes_of(notes: Sequence[Note], tenant: str | None) -> Sequence[Note]:
    return notes if tenant is None else [note for note in notes if note.principal.tenant == tenant]


def _most_telling(notes: Sequence[Note]) -> Sequence[Note]:
    """Return as many notes as a batch shows, in their order: the newest failures first, then the newest others."""
    if len(notes) <= MAX_SHOWN:
        return notes
    failed = [at for at, note in enumerate(notes) if note.status is not ToolStatus.SUCCESS][-MAX_SHOWN:]
    others = (at for at in range(len(notes) - 1, -1, -1) if notes[at].status is ToolStatus.SUCCESS)
    return [notes[at] for at in sorted([*failed, *islice(others, MAX_SHOWN - len(failed))])]
