"""Prompts, resources and resource templates that a source offers besides its tools, with its instructions.

An `Offering` is to them what a `Catalog` is to tools: immutable and in order, reshaped by pure functions. Each entry
has a plan, which runs through the same pipeline as a tool call. Prompts get a toolset's prefix; URIs stay as they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from toolplug.catalog.definition import wire_name
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.plan import Plan

OfferedKind = Literal["prompts", "resources", "templates"]
KINDS: tuple[OfferedKind, ...] = ("prompts", "resources", "templates")

Follow = Callable[[str, Callable[[], None]], Awaitable[Callable[[], None]]]
"""Calls the function at each update of the resource of this URI, until the function that it returns is called.

It raises `ToolError` or `ToolUnavailable` if the source cannot notify of updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedEntry:
    """One prompt, resource or resource template.

    * `key`: the name of a prompt in this offering, the URI of a resource, the URI template of a template
    * `fields`: its object in MCP's lists, without the name of a prompt
    * `plan`: runs `prompts/get` or `resources/read`; its result's `structured` is MCP's result
    * `completion`: runs `completion/complete` with `argument`, `value` and `context`; None if nothing is completed
    * `follow`: notifies of updates; None if the source sends none
    """

    key: str
    fields: Mapping[str, object]
    plan: Plan
    completion: Plan | None = None
    follow: Follow | None = None

    @property
    def source(self) -> str:
        """The source, for messages: `mcp server 'time'`, `native 'notes'`."""
        return f"{self.plan.ref.kind} {self.plan.ref.source!r}"


def prompt_object(prompt: OfferedEntry) -> dict[str, object]:
    """Return a prompt as MCP lists it: under its wire name, with the canonical one in `_meta` if it differs."""
    wire = wire_name(prompt.key)
    listed: dict[str, object] = {"name": wire, **prompt.fields}
    if wire != prompt.key:
        listed["_meta"] = {**as_object(prompt.fields.get("_meta")), "toolplug/name": prompt.key}
    return listed


class Instructions(NamedTuple):
    """A server's text on how to use it; `prefix` is that of its toolset, empty without one."""

    prefix: str
    text: str


_NOTHING: Mapping[str, OfferedEntry] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offering:
    """The prompts by name, the resources by URI and the templates by URI template, each in listing order."""

    prompts: Mapping[str, OfferedEntry] = field(default_factory=lambda: _NOTHING)
    resources: Mapping[str, OfferedEntry] = field(default_factory=lambda: _NOTHING)
    templates: Mapping[str, OfferedEntry] = field(default_factory=lambda: _NOTHING)
    instructions: tuple[Instructions, ...] = ()

    def prompt(self, name: str) -> OfferedEntry | None:
        """Return the prompt of a canonical or wire name; an exact canonical name wins."""
        found = self.prompts.get(name)
        if found is not None:
            return found
        return next((prompt for prompt in self.prompts.values() if wire_name(prompt.key) == name), None)

    def prefixed(self, prefix: str) -> Offering:
        """Return the offering with each prompt named `prefix.name`."""
        prompts = {f"{prefix}.{name}": _rename(item, f"{prefix}.{name}") for name, item in self.prompts.items()}
        return Offering(
            prompts=prompts,
            resources=self.resources,
            templates=self.templates,
            instructions=tuple(Instructions(prefix, text) for _, text in self.instructions),
        )

    def list_entries(self, kind: OfferedKind) -> dict[str, dict[str, object]]:
        """Return the object of each entry as MCP lists it, by key."""
        entries: Mapping[str, OfferedEntry] = getattr(self, kind)
        as_object = prompt_object if kind == "prompts" else _fields
        return {key: as_object(item) for key, item in entries.items()}


def _rename(item: OfferedEntry, key: str) -> OfferedEntry:
    return OfferedEntry(key=key, fields=item.fields, plan=item.plan, completion=item.completion, follow=item.follow)


def _fields(item: OfferedEntry) -> dict[str, object]:
    return dict(item.fields)


EMPTY_OFFERING = Offering()


class OfferedTwice(NamedTuple):
    """Two entries of one name, wire name or URI: `winner` is listed, `loser` is not."""

    kind: OfferedKind
    winner: OfferedEntry
    loser: OfferedEntry


def merged_offerings(parts: Sequence[Offering]) -> tuple[Offering, list[OfferedTwice]]:
    """Return the parts one after another, and the conflicts; the first of a name or URI wins."""
    if len(parts) == 1:
        return parts[0], []
    conflicts: list[OfferedTwice] = []
    merged: dict[OfferedKind, Mapping[str, OfferedEntry]] = {}
    for kind in KINDS:
        entries: Iterable[OfferedEntry] = (item for part in parts for item in getattr(part, kind).values())
        merged[kind] = _first_of_each(kind, entries, conflicts)
    instructions = tuple(item for part in parts for item in part.instructions)
    return Offering(**merged, instructions=instructions), conflicts


def _first_of_each(
    kind: OfferedKind, entries: Iterable[OfferedEntry], conflicts: list[OfferedTwice]
) -> Mapping[str, OfferedEntry]:
    kept: dict[str, OfferedEntry] = {}
    taken: dict[str, OfferedEntry] = {}
    for item in entries:
        name = wire_name(item.key) if kind == "prompts" else item.key
        winner = taken.setdefault(name, item)
        if winner is item:
            kept[item.key] = item
        else:
            conflicts.append(OfferedTwice(kind, winner, item))
    return kept
