"""Notes of the calls that were answered since visitors were last told, and which of them they are shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice, zip_longest
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from toolplug import CallContext, Principal, ToolDefinition, ToolStatus

MAX_SHOWN = 100
"""Calls of a tenant in one batch; of more, failures come first, and the others are counted."""
Arguments: TypeAlias = Mapping[str, object] | str | bytes


class Origin(NamedTuple):
    """What is noted of the context of a call.

    Not the context itself: it has the caller's credentials, and what answers its request, which would stay until the
    next batch.
    """

    agent: str | None
    session: str | None
    request_id: str
    trace_context: Mapping[str, str]
    conversation: str
    approval: str | None


QuickOrigin: TypeAlias = tuple[str | None, str | None, str, Mapping[str, str], str, str | None]
"""The fields of an `Origin`, taken in one step."""
origin_of: Callable[[CallContext], QuickOrigin] = itemgetter(*map(CallContext._fields.index, Origin._fields))


class Note(NamedTuple):
    """What is noted of a call when it is answered. `tool` is None for an unknown one, `texts` if they are not kept.

    `name` is that of the call; `ticket` is what a person is asked about, empty for nothing.
    """

    principal: Principal
    tool: ToolDefinition | None
    status: ToolStatus
    ticket: str
    name: str
    call_id: str
    reason: str
    ended_at: float
    duration_s: float
    texts: tuple[Arguments, str] | None
    would: str
    origin: QuickOrigin

    @property
    def title(self) -> str:
        """The name of the tool with the prefix of a toolset, as its caller knows it."""
        return self.name if self.tool is None else self.tool.name


QuickNote: TypeAlias = tuple[
    Principal,
    ToolDefinition | None,
    ToolStatus,
    str,
    str,
    str,
    str,
    float,
    float,
    tuple[Arguments, str] | None,
    str,
    QuickOrigin,
]
"""The fields of a `Note`. Every call makes this and no `Note`, which takes 0.5 µs longer, and several times that where
the processor has forgotten this code since the last request."""


class NotesOfTenant:
    """The newest notes of one tenant since the last batch, each with its number; failures have places of their own.

    So a visitor sees the failures of a flood, and a flood of failures leaves the calls that ended well.
    """

    __slots__ = ("answered", "failed", "others")

    def __init__(self, keep: int) -> None:
        self.answered = 0
        self.failed: deque[tuple[int, QuickNote]] = deque(maxlen=max(MAX_SHOWN, keep))
        self.others: deque[tuple[int, QuickNote]] = deque(maxlen=max(MAX_SHOWN, keep))

    def __len__(self) -> int:
        return len(self.failed) + len(self.others)

    def drop(self) -> None:
        """Drop the oldest note of a call that ended well, else of one that failed."""
        (self.others or self.failed).popleft()


def notes_of(noted: Mapping[str, NotesOfTenant], tenant: str | None) -> list[NotesOfTenant]:
    """Return the notes of a tenant, of all for None."""
    return [notes for owner, notes in noted.items() if tenant in (None, owner)]


def most_telling(noted: Sequence[NotesOfTenant], most: int) -> list[tuple[int, QuickNote]]:
    """Return so many notes at most, in their order: the newest failures first, then the newest others.

    The tenants have a place in turn, so that a flood of one hides nothing of the others.
    """
    turns = zip_longest(*(chain(reversed(notes.failed), reversed(notes.others)) for notes in noted))
    found = (note for turn in turns for note in turn if note is not None)
    return sorted(islice(found, most), key=itemgetter(0))
