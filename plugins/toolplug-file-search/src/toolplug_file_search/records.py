"""What the index keeps, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

Order = Literal["asc", "desc"]
Attribute = str | float | bool
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: what a subject uploads and makes is its own, and the tenant's.

    `own_only`: it sees its own vector stores and files alone, besides the operator's files.
    """

    tenant: str
    subject: str
    own_only: bool

    @property
    def only(self) -> str | None:
        """The one owner whose things it sees; None: every owner's."""
        return self.subject if self.own_only else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStore:
    """A named set of files. `bytes` is the size of its files together."""

    id: str
    name: str
    metadata: Mapping[str, str]
    created_at: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file as it was uploaded."""

    id: str
    name: str
    purpose: str
    bytes: int
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file in a vector store; it is searchable as long as it is there."""

    store_id: str
    file_id: str
    attributes: Mapping[str, Attribute]
    created_at: int
    bytes: int


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
