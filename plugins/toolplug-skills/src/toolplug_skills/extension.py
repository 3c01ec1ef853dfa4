"""The extension `io.modelcontextprotocol/skills` (SEP-2640): `skills/list` and `skills/get`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from toolplug import McpExtension
from toolplug.mcp_extensions import ExtensionMethod, ExtensionRefused, ExtensionRequest, Fields
from toolplug_skills.manifest import MAX_FILES, MAX_SKILL_BYTES, SkillEntry

NAME = "io.modelcontextprotocol/skills"
PAGE_SKILLS = 50
PAGE_BYTES = MAX_SKILL_BYTES
"""Of files that are read for a page, before its last skill: hashing twice as much takes 30 ms of a thread."""
TTL_MS = 60_000
"""Skills change by the hand of a person; a client that reads a changed file sees it by its digest."""
INVALID_PARAMS = -32602
"""Of JSON-RPC: also for a file that is not served, by the specification."""


class Shelf(Protocol):
    """The skills of one entry of the configuration. `template` is the URI template of all their files."""

    @property
    def template(self) -> str:
        """The resource by which a caller reads their files: who does not have it has none of the skills."""
        ...

    @property
    def key(self) -> str:
        """The key of the entry."""
        ...

    @property
    def uris(self) -> Mapping[str, str]:
        """The name of each skill by the URI of its `SKILL.md`, in listing order."""
        ...

    async def describe(self, name: str) -> SkillEntry | None:
        """Return the entry of a skill as its files are now; None if it cannot be served, or is too large for hosts."""
        ...


class SkillsExtension(McpExtension):
    """The skills of all entries that have some, for each caller those of the entries that it may read."""

    name = NAME
    # A client may ask as soon as the server has declared it, by the specification.
    for_all_clients = True

    def __init__(self, shelves: Sequence[Shelf]) -> None:
        self._shelves = shelves
        self.methods: Mapping[str, ExtensionMethod] = {"skills/list": self._list, "skills/get": self._get}

    def join(self, others: Sequence[McpExtension]) -> McpExtension:
        """Return one extension with the skills of all."""
        alike = [other for other in others if isinstance(other, SkillsExtension)]
        return SkillsExtension([*self._shelves, *(shelf for other in alike for shelf in other._shelves)])

    async def _list(self, request: ExtensionRequest) -> Fields:
        known = {uri: (shelf, name) for shelf in self._visible_to(request) for uri, name in shelf.uris.items()}
        uris, cursor = list(known), request.params.get("cursor")
        if cursor is not None and cursor not in known:
            raise ExtensionRefused(INVALID_PARAMS, "Invalid cursor; list again from the beginning")
        start = 0 if cursor is None else uris.index(str(cursor)) + 1
        skills: list[Fields] = []
        size = 0
        for at in range(start, len(uris)):
            if at - start == PAGE_SKILLS or size >= PAGE_BYTES:
                return _with_cache_fields({"skills": skills, "nextCursor": uris[at - 1]})
            shelf, name = known[uris[at]]
            entry = await shelf.describe(name)
            if entry is not None:
                skills.append(entry.fields)
                size += entry.size
        return _with_cache_fields({"skills": skills})

    async def _get(self, request: ExtensionRequest) -> Fields:
        uri = request.params.get("uri")
        for shelf in self._visible_to(request) if isinstance(uri, str) else ():
            name = shelf.uris.get(str(uri))
            entry = None if name is None else await shelf.describe(name)
            if entry is not None:
                return _with_cache_fields({"skill": entry.fields})
        said = f"no skill of at most {MAX_FILES} files and {MAX_SKILL_BYTES >> 20} MiB is served at {str(uri)[:200]!r}"
        raise ExtensionRefused(INVALID_PARAMS, said)

    def _visible_to(self, request: ExtensionRequest) -> Iterator[Shelf]:
        templates = request.offering().templates
        for shelf in self._shelves:
            found = templates.get(shelf.template)
            if found is not None and found.plan.ref.source == shelf.key:
                yield shelf


def _with_cache_fields(result: Fields) -> Fields:
    return {**result, "ttlMs": TTL_MS, "cacheScope": "private"}
