"""Reading a server's list into tools, and the stored form of a discovery record.

A stored record is one line of JSON about the server, then one line for each tool: a long list is read in slices, and
the lines of an unchanged list are not parsed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

import orjson

from toolplug.catalog.definition import ToolDefinition, ToolHints, ToolRef
from toolplug.catalog.exact_json import dump_json, load_own_json
from toolplug.errors import InvalidDefinition, StoreRefused
from toolplug.foreign.definitions import sanitise_tool
from toolplug.foreign.sanitise import RemovedParts
from toolplug.host.file.tool_servers import SERVER_KIND
from toolplug.parts.mcp.discovery.offers import FoundOffers, RawOffers, read_offers
from toolplug.parts.mcp.discovery.record import (
    DiscoveryRecord,
    FoundTool,
    Listing,
    ServerName,
    ServerState,
    quarantining,
)
from toolplug.runtime.tasks import in_slices

_RECORD_FIELDS = [item.name for item in fields(DiscoveryRecord) if item.name not in ("tools", "offers")]
_OFFERS = [item.name for item in fields(FoundOffers)]
_STATE_FIELDS = [item.name for item in fields(ServerState) if item.name not in ("record", "body", "pins", "held")]


class _ToolLine(TypedDict):
    name: str
    description: str
    digest: str
    parameters: dict[str, object]
    output: dict[str, object] | None
    hints: list[bool | None]
    cut: list[str]
    title: NotRequired[str]  # none of these is in earlier records
    icons: NotRequired[list[dict[str, object]]]
    meta: NotRequired[dict[str, object]]


def record_bytes(name: ServerName, kept: ServerState) -> bytes:
    """Return the stored form of a server's state."""
    header: dict[str, object] = {"id": name.id, "tenant": name.tenant}
    header |= {key: getattr(kept.record, key) for key in _RECORD_FIELDS}
    header["offers"] = {key: getattr(kept.record.offers, key) for key in _OFFERS}
    header["held"] = [orjson.Fragment(_tool_line(tool)) for tool in kept.held.values()]
    header |= {"pins": dict(kept.pins)} | {key: getattr(kept, key) for key in _STATE_FIELDS}
    return orjson.dumps(header) + b"\n" + kept.body


def _tool_line(tool: FoundTool) -> bytes:
    """Return the line of one tool; its quarantine is in the pins."""
    definition = tool.definition
    output = definition.output_schema
    line = {
        "name": definition.name,
        "description": definition.description,
        "digest": definition.ref.digest,
        "parameters": orjson.Fragment(definition.parameters.text),
        "output": None if output is None else orjson.Fragment(output.text),
        "hints": definition.hints[:3],
        "cut": tool.cut,
    }
    shown = {"title": definition.title, "icons": definition.icons, "meta": definition.meta}
    return orjson.dumps(line | {key: value for key, value in shown.items() if value})


async def read_record(value: bytes, last: ServerState) -> tuple[ServerName, ServerState]:
    """Return the server and its state; tools that are equal in `last` are the same objects.

    Raises `StoreRefused` for bytes that this version cannot read.
    """
    head, _, body = value.partition(b"\n")
    try:
        header: dict[str, Any] = {
            "announces_changes": None,
            "offers": {},
            "held": [],
            "began_at": 0.0,
            **orjson.loads(head),
        }  # not in earlier records
        name = ServerName(header["id"], header["tenant"])
        pins = MappingProxyType(header["pins"])
        held = MappingProxyType({tool.name: tool for line in header["held"] for tool in (_tool(name.id, line),)})
        same = body == last.body
        tools = last.record.tools if same else tuple([tool async for tool in in_slices(_tools(name.id, body, last))])
        known: dict[str, Any] = {key: header[key] for key in _RECORD_FIELDS} | {"left_out": tuple(header["left_out"])}
        kept = ServerState(
            record=DiscoveryRecord(
                tools=quarantining(tools, pins, held), offers=_offers(header["offers"], last), **known
            ),
            body=last.body if same else body,
            pins=pins,
            held=held,
            **{key: header[key] for key in _STATE_FIELDS},
        )
    except (KeyError, TypeError, ValueError, AttributeError, InvalidDefinition) as error:
        raise StoreRefused(f"a discovery record cannot be read: {error!r}") from error
    return name, kept


def _offers(stored: Mapping[str, Any], last: ServerState) -> FoundOffers:
    """Return the stored offers; the same object if they are equal in `last`."""
    lists: dict[str, Any] = {key: tuple(stored[key]) for key in _OFFERS if key != "instructions" and key in stored}
    offers = FoundOffers(**lists, instructions=stored.get("instructions", ""))
    return last.record.offers if offers == last.record.offers else offers


def _tools(server: str, body: bytes, last: ServerState) -> Iterator[FoundTool]:
    known = {tool.name: tool for tool in last.record.tools}
    for line in body.split(b"\n") if body else ():
        tool = _tool(server, cast("_ToolLine", load_own_json(line)))
        yield _same_object(tool, known)


def _same_object(tool: FoundTool, known: Mapping[str, FoundTool]) -> FoundTool:
    """Return the known tool of this name if it is equal, so that comparing objects shows no change."""
    found = known.get(tool.name)
    if found is None or found.cut != tool.cut or found.definition.signature != tool.definition.signature:
        return tool
    return found


def _tool(server: str, line: _ToolLine) -> FoundTool:
    read_only, idempotent, destructive = line["hints"]
    definition = ToolDefinition(
        name=line["name"],
        description=line["description"],
        parameters=line["parameters"],
        output_schema=line["output"],
        ref=ToolRef(SERVER_KIND, server, line["name"], line["digest"]),
        hints=ToolHints(read_only, idempotent, destructive),
        title=line.get("title", ""),
        icons=tuple(line.get("icons", ())),
        meta=line.get("meta", {}),
    )
    return FoundTool(definition, tuple(line["cut"]))


MAX_TOOLS = 10_000
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Of all tools of a server together; later ones are left out."""
MAX_LEFT_OUT = 100
"""Lines of the report on tools that were left out."""


class _Read(NamedTuple):
    """A tool that is kept, its line, and the digest of what the server sent."""

    sent: bytes
    tool: FoundTool
    line: bytes


class ListReader:
    """Reads the lists of one server; a tool that it sends again unchanged is not parsed again."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._last: Mapping[bytes, _Read] = {}

    async def read(self, raw: Sequence[object], kept: ServerState, offered: RawOffers | None = None) -> Listing:
        """Return the tools in the server's order, and what else is `offered`, without blocking the loop for long.

        Tools that are equal in `kept` are the same objects; later ones of the same name, those over a limit and those
        without a valid name are left out.
        """
        left_out = RemovedParts(at_most=MAX_LEFT_OUT)
        known = {tool.name: tool for tool in kept.record.tools}
        each = [item async for item in in_slices(self._each(raw, known, left_out))]
        found = [read for read in each if read is not None]
        self._last = {read.sent: read for read in found if read.sent}
        offers = None if offered is None else await read_offers(offered, left_out)
        if offers == kept.record.offers:
            offers = kept.record.offers
        tools, body = tuple(read.tool for read in found), b"\n".join(read.line for read in found)
        return Listing(tools, body, left_out.lines(), offers)

    def _each(
        self, raw: Sequence[object], known: Mapping[str, FoundTool], left_out: RemovedParts
    ) -> Iterator[_Read | None]:
        """Yield each tool in turn, None for one that is left out."""
        seen: set[str] = set()
        size = 0
        for index, sent in enumerate(raw):
            if index == MAX_TOOLS:
                left_out.add((str(index),), f"only {MAX_TOOLS} of {len(raw)} tools are kept")
                return
            try:
                read = self._read(sent, known)
            except InvalidDefinition as error:
                left_out.add((str(index),), str(error))
                yield None
                continue
            if read.tool.name in seen:
                left_out.add((str(index), read.tool.name), "another tool of this name comes before")
            elif size + len(read.line) > MAX_BODY_BYTES:
                left_out.add((str(index), read.tool.name), f"the tools together have over {MAX_BODY_BYTES} bytes")
            else:
                seen.add(read.tool.name)
                size += len(read.line) + 1
                yield read
                continue
            yield None

    def _read(self, sent: object, known: Mapping[str, FoundTool]) -> _Read:
        digest = _digest(sent)
        last = self._last.get(digest)
        if last is not None:
            return last._replace(tool=_same_object(last.tool, known))
        tool = _same_object(read_tool(sent, self._server), known)
        return _Read(digest, tool, _tool_line(tool))


def read_tool(sent: object, server: str) -> FoundTool:
    """Return the tool for one value of a server's list. Raises `InvalidDefinition` if it has no valid name."""
    definition, removed = sanitise_tool(sent, server)
    return FoundTool(definition.owned_by(SERVER_KIND, server), removed)


def _digest(sent: object) -> bytes:
    """Return a digest of JSON as it was sent; empty for values that are no JSON, which are read every time."""
    try:
        return hashlib.blake2b(dump_json(sent), digest_size=20).digest()
    except (TypeError, ValueError):
        return b""
