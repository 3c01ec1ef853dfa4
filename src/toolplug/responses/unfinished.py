"""What earlier responses have left to be done before the model is asked again.

A turn with a client's function runs nothing, so its hosted calls stand in the conversation without an answer; and a
call that a person had to approve may have been decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolplug.catalog.catalog import Catalog
from toolplug.errors import ResponseRefused
from toolplug.responses.hosted import ticket_of
from toolplug.responses.input_items import (
    CLIENT_ANSWERS,
    CLIENT_CALLS,
    Item,
    call_key,
    called_name,
    is_cut,
    is_hosted_call,
)
from toolplug.responses.offer import Names
from toolplug.responses.turn import ModelCall

_ANSWERS = CLIENT_ANSWERS | {"mcp_approval_request"}
"""A call that waits for a person is not left to be made."""


class Decided(NamedTuple):
    """A call that a person had to approve, and what was said of it. `request` is the id of the item that asked."""

    call: ModelCall
    request: str
    approve: bool
    reason: str

    @property
    def ticket(self) -> str:
        """The ticket of the approval."""
        return ticket_of(self.request)


class Unfinished(NamedTuple):
    """The calls to be made, each with a key under which it is made once; and those that have been decided."""

    calls: Sequence[tuple[ModelCall, str | None]]
    decided: Sequence[Decided]


def unfinished(history: Sequence[Item], sent: Sequence[Item], own: Names, catalog: Catalog) -> Unfinished:
    """What is left to be done. Raises `ResponseRefused` for an answer that nobody asked for, or one that is missing."""
    items = [*history, *sent]
    calls = {str(item["call_id"]): item for item in items if item.get("type") in CLIENT_CALLS}
    answered = {str(item["call_id"]) for item in items if _answers(item)}
    for index, item in enumerate(sent):
        if item.get("type") in CLIENT_ANSWERS and item["call_id"] not in calls:
            message = f"no call has the call_id {item['call_id']!r}"
            raise ResponseRefused("unknown_call_id", message, param=f"input[{index}].call_id")
    left: list[tuple[ModelCall, str | None]] = []
    for call_id, item in calls.items():
        if call_id in answered or is_cut(item):
            continue
        name = str(item["name"])
        if name in own or item["type"] != "function_call" or catalog.find(name) is None:
            message = f"the call {call_id!r} of {name!r} has no {item['type']}_output; send one"
            raise ResponseRefused("missing_tool_output", message, param="input")
        key = item.get("id")
        left.append((ModelCall(call_id, name, str(item["arguments"])), key if isinstance(key, str) else None))
    return Unfinished(left, _decided(history, sent))


def _decided(history: Sequence[Item], sent: Sequence[Item]) -> list[Decided]:
    items = [*history, *sent]
    requests = {str(item["id"]): item for item in items if item.get("type") == "mcp_approval_request"}
    done = {item.get("approval_request_id") for item in items if is_hosted_call(item.get("type"))}
    decided: list[Decided] = []
    for index, item in enumerate(sent):
        if item.get("type") != "mcp_approval_response" or item["approval_request_id"] in done:
            continue
        wanted = str(item["approval_request_id"])
        request = requests.get(wanted)
        if request is None:
            message = f"no mcp_approval_request has the id {wanted!r}"
            raise ResponseRefused("unknown_call_id", message, param=f"input[{index}].approval_request_id")
        done.add(wanted)
        reason = item.get("reason")
        said = reason if isinstance(reason, str) else ""
        decided.append(Decided(_call_of(request), wanted, item["approve"] is True, said))
    return decided


def _call_of(request: Mapping[str, object]) -> ModelCall:
    return ModelCall(call_key(request), called_name(request), str(request["arguments"]))


def _answers(item: Item) -> bool:
    kind = item.get("type")
    return "call_id" in item and (kind in _ANSWERS or is_hosted_call(kind))
