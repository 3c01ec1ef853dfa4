"""What the index keeps, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

Order = Literal["asc", "desc"]
Attribute = str | float | bool
Status = Literal["in_progress", "completed", "failed", "cancelled"]
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: what a subject uploads and makes is its own, and the tenant's.

    `own_only`: it sees only its own vector stores and files, and the operator's files.
    """

    tenant: str
    subject: str
    own_only: bool

    @property
    def only(self) -> str | None:
        """The one owner whose things it sees; None: every owner's."""
        return self.subject if self.own_only else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many files are in which state; what was asked for comes to an end as one of the last three."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.in_progress + self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStore:
    """A named set of files. `bytes` is the size of its files together; `expires_at` is a time of the Unix clock."""

    id: str
    name: str
    description: str
    metadata: Mapping[str, str]
    created_at: int
    active_at: int
    expires_days: int | None
    expires_at: int | None
    expired: bool
    counts: Counts
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file as it was uploaded."""

    id: str
    name: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file in a vector store; it is searchable once it is `completed`, and as long as it is there.

    `left_out` says what of the file could not be read, empty for nothing.
    """

    store_id: str
    file_id: str
    attributes: Mapping[str, Attribute]
    created_at: int
    bytes: int
    status: Status
    error_code: str
    error: str
    left_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Files that were put into a vector store by one request."""

    id: str
    store_id: str
    created_at: int
    cancelled: bool
    counts: Counts


class Page(NamedTuple):
    """Which part of a listing: at most `limit` after (or before) the thing with this id."""

    limit: int
    order: Order = "desc"
    after: str | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True)
class Listed(Generic[Record]):
    """One page; `more`: there are further ones in the same direction."""

    records: Sequence[Record]
    more: bool
