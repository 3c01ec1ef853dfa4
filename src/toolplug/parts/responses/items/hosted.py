"""Hosted calls as items: their type, their fields before and after the call, and their events."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from toolplug.catalog.call import ToolCall, ToolResult, text_of_result
from toolplug.catalog.definition import HostedItem, ToolDefinition
from toolplug.catalog.exact_json import as_object
from toolplug.parts.responses.builder import Event, ResponseBuilder
from toolplug.parts.responses.request import WIRE_NAME, Item
from toolplug.parts.responses.settings import ItemStyle
from toolplug.signatures.values import as_json, encode_value

MCP = "mcp"

PARTS: Final = "parts"
"""The field of an item for what a result has besides its text."""

WAITING_CALL: Final = "waiting_call"
"""The field of an approval request for the call that waits, where the tool of the item has made it."""

RAN: Final = "ran"
"""The field of an item for the arguments that a person has put in place of the model's, as JSON text like those."""

_MCP_CALL: Final = "mcp_call"
_UNKNOWN = "_unknown"
"""The server of a call of an unknown tool; also its provider in the metrics."""


def shape_of(tool: ToolDefinition | None, style: ItemStyle) -> HostedItem:
    """Return how calls of a tool are shown; None for an unknown tool.

    A type declared by the provider is used if the OpenResponses schema has it; one with a slug is an `extension`.
    """
    declared = None if tool is None or tool.hosted is None else tool.hosted.item
    if declared is not None and declared.type != _MCP_CALL and (style == "extension" or ":" not in declared.type):
        return declared
    if style == "extension" and (tool is None or tool.ref.kind != MCP):
        stubs = () if tool is None or tool.hosted is None else tool.hosted.stubs
        return HostedItem(f"toolplug:{stubs[0] if stubs else 'tool_call'}")
    return HostedItem(_MCP_CALL, fields={"server_label": label_of(tool)})


def label_of(tool: ToolDefinition | None) -> str:
    """Return the label under which a request declares the tool's server: the provider's key, or the server's id."""
    return _UNKNOWN if tool is None else tool.ref.source


def appears_at_end(tool: ToolDefinition | None) -> bool:
    """Return whether a call of a tool may end with a question to a person about a call that the tool has made."""
    item = None if tool is None or tool.hosted is None else tool.hosted.item
    return item is not None and item.at_end


class HostedCall:
    """One call as an item of the response, from beginning to end. `approval`: the id of its approval request."""

    def __init__(
        self,
        draft: ResponseBuilder,
        call: ToolCall,
        tool: ToolDefinition | None,
        style: ItemStyle,
        approval: str | None = None,
    ) -> None:
        self._draft = draft
        self._shape = shape_of(tool, style)
        self._index = len(draft.output)
        prefix = self._shape.type.partition(":")[0].removesuffix("_call")
        self._item: Item = {
            **self._shape.fields,
            "id": draft.new_id(prefix),
            "type": self._shape.type,
            "status": "in_progress",
            **_name_fields(call, tool),
            **draft.fields_of(call.id),
            **({} if self._shape.type == _MCP_CALL else {"output": None}),
            **({} if approval is None else {"approval_request_id": approval}),
        }

    def begin(self) -> Iterator[Event]:
        is_mcp_call = self._shape.type == _MCP_CALL
        yield self._draft.added({**self._item, "arguments": ""} if is_mcp_call else self._item)
        yield self._event("in_progress")
        if is_mcp_call:
            self._draft.output[self._index] = self._item
            yield self._event("arguments.delta", delta=self._item["arguments"])
            yield self._event("arguments.done", arguments=self._item["arguments"])
        for name in self._shape.events:
            yield self._event(name)

    def end(self, result: ToolResult, include: Collection[str]) -> Iterator[Event]:
        shape = self._shape._replace(on_include=(*self._shape.on_include, PARTS)) if result.parts else self._shape
        whole = self._item = _end_item(self._item, shape, result)
        if shape.on_include:
            self._item = hide_fields(whole, shape, include)
            self._draft.hide(whole, shape)
        yield self._event("failed" if result.is_error else "completed")
        yield self._draft.done(self._index, self._item)

    def _event(self, name: str, **fields: object) -> Event:
        full = event_name(self._shape.type, name)
        return self._draft.event(full, item_id=self._item["id"], output_index=self._index, **fields)


def event_name(kind: str, name: str) -> str:
    """Return the type of an event of an item of this type."""
    if ":" in kind:
        return f"{kind}.{name}"
    return f"response.{kind}_{name}" if name.startswith("arguments") else f"response.{kind}.{name}"


def _end_item(item: Item, shape: HostedItem, result: ToolResult) -> Item:
    metadata = result.metadata
    given = {name: as_json(metadata[name]) for name in shape.fields if name in metadata}
    fields = {name: json.value for name, json in given.items() if json is not None}
    output = text_of_result(result)
    if result.parts:
        fields[PARTS] = list(result.parts)
    ran = as_object(metadata.get(RAN))
    if ran and RAN not in fields:
        fields[RAN] = encode_value(ran)
    if shape.type == _MCP_CALL and result.is_error:
        fields["error"] = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": output}]}
    return {**item, **fields, "status": "failed" if result.is_error else "completed", "output": output}


def hide_fields(item: Item, shape: HostedItem, include: Collection[str]) -> Item:
    """Return the item without the fields that only `include` reveals."""
    for path in shape.on_include:
        if f"{shape.type}.{path}" not in include:
            item = _without(item, path.split("."), shape.fields)
    return item


def _without(item: Item, path: list[str], empty: Mapping[str, object]) -> Item:
    """Return the item without the value at the path; a top-level field gets its value from before the call."""
    name, *rest = path
    if name not in item:
        return item
    if rest:
        inner = as_object(item[name])
        return {**item, name: _without(inner, rest, {})} if inner else item
    left = {key: value for key, value in item.items() if key != name}
    return {**left, name: empty[name]} if name in empty else left


def server_list(draft: ResponseBuilder, server: str, tools: Collection[ToolDefinition]) -> Iterator[Event]:
    """Return the tools of an MCP server as an item."""
    item: dict[str, object] = {
        "id": draft.new_id("mcpl"),
        "type": "mcp_list_tools",
        "status": "completed",
        "server_label": server,
        "tools": [
            {"name": tool.ref.name, "description": tool.description, "input_schema": tool.parameters.value}
            for tool in tools
        ],
    }
    index = len(draft.output)
    place = {"item_id": item["id"], "output_index": index}
    yield draft.added({**item, "status": "in_progress", "tools": []})
    yield draft.event("response.mcp_list_tools.in_progress", **place)
    yield draft.event("response.mcp_list_tools.completed", **place)
    yield draft.done(index, item)


def approval_request(
    draft: ResponseBuilder, call: ToolCall, tool: ToolDefinition | None, waiting: Mapping[str, object]
) -> Iterator[Event]:
    """Return a call that needs approval as an item. `waiting` is what its result says of the approval.

    That of a call which the tool itself has made, as a script does, shows this one in addition.
    """
    inner = {name: waiting[name] for name in ("tool", "arguments", "line") if name in waiting}
    item: dict[str, object] = {
        "id": f"{draft.new_id('mcpr')}_{waiting['id']}",
        "type": "mcp_approval_request",
        "status": "completed",
        **_name_fields(call, tool),
        **draft.fields_of(call.id),
        "server_label": label_of(tool),
        **({WAITING_CALL: inner} if "arguments" in inner else {}),
    }
    yield draft.added(item)
    yield draft.done(len(draft.output) - 1, item)


def _name_fields(call: ToolCall, tool: ToolDefinition | None) -> Item:
    """Return the name fields of a call: for a server's tool the server's own name, and the model's name in addition."""
    item: Item = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    return {**item, "name": tool.ref.name, WIRE_NAME: call.name} if tool is not None and tool.ref.kind == MCP else item


def ticket_of(item_id: str) -> str:
    """Return the approval ticket in the id of an approval request."""
    return item_id.rpartition("_")[2]


def asks(result: ToolResult) -> Mapping[str, object] | None:
    """Return what the result says of the approval that the call waits for, `id` is its ticket; None for none."""
    waiting = as_object(result.metadata.get("approval") if result.is_error else None)
    return waiting if isinstance(waiting.get("id"), str) else None
