"""The messages of a chat with the host's calls that its client cannot send back, in the form of the model's server.

This API has no place for hosted calls, so a client sends back only its own. What the host keeps of the response that
made them is put back where it happened (`items/healing.py`), by the ids of the client's calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, cast

from toolplug.catalog.exact_json import as_list, as_object
from toolplug.parts.responses.answers.fragments import as_tool_call
from toolplug.parts.responses.items.transcript import Message, messages
from toolplug.parts.responses.request import Item, model_call_id
from toolplug.parts.responses.request_tools import CUSTOM, arguments_of

Heal = Callable[[Sequence[Item]], Awaitable[Sequence[Item]]]
"""Returns items with those that their client has left out."""

_PLACE: Final = "message"
"""The index of a message, in the items that stand for it."""
_OF_ITEMS: Final = frozenset({"role", "content", "tool_calls"})
"""The fields of an answer that its items say."""
_MAX_MODEL_ID: Final = 40
"""Characters of a call's id in OpenAI's Chat Completions; the part of ours that is unique has as many."""


async def complete_messages(sent: Sequence[Message], heal: Heal) -> list[Message]:
    """Return the messages for the model's server: with the hosted calls, and with the model's own ids of calls."""
    items = [item for index, message in enumerate(sent) for item in _items_of(message, index)]
    healed = await heal(items)
    return _with_model_ids(sent if healed is items else _put_in(sent, healed))


def _items_of(message: Message, index: int) -> Iterator[Item]:
    """Yield the items that stand for a message; of those that a client writes only the place matters."""
    role, place = message["role"], {_PLACE: index}
    if role == "tool":
        call_id, output = str(message.get("tool_call_id")), message.get("content")
        yield {"type": "function_call_output", "call_id": call_id, "output": _text_of(output), **place}
    elif role != "assistant":
        yield {"type": "message", "role": "user", "content": "", **place}
    else:
        if text := _text_of(message.get("content")):
            yield {"type": "message", "role": "assistant", "content": text, **place}
        for call in _calls_of(message):
            kind = "custom" if call.get("type") == CUSTOM else "function"
            made = as_object(call.get(kind))
            text = {"input": str(made.get("input") or "")} if kind == "custom" else {}
            text = text or {"arguments": str(made.get("arguments") or "")}
            name = {"type": "custom_tool_call" if kind == "custom" else "function_call", "name": str(made.get("name"))}
            yield {**name, "call_id": str(call.get("id")), **text, **place}


def _put_in(sent: Sequence[Message], healed: Sequence[Item]) -> list[Message]:
    """Return the messages, where each answer with its results that has missing items is made of its items."""
    blocks: dict[int, list[Item]] = {}
    missing: list[Item] = []
    place, begins = 0, _begins_of(sent)
    for item in healed:
        if _PLACE not in item:
            missing.append(item)
            continue
        next_place = begins[cast("int", item[_PLACE])]
        if missing:
            answers = sent[next_place]["role"] == "assistant"  # a message of a user is never made again
            blocks.setdefault(next_place if answers else place, []).extend(missing)
            missing = []
        place = next_place
        blocks.setdefault(place, []).append(item)
    blocks.setdefault(place, []).extend(missing)
    whole: list[Message] = []
    for begin, group in groupby(range(len(sent)), begins.__getitem__):
        came = [sent[index] for index in group]
        items = blocks.get(begin, ())  # none of a message that says and calls nothing
        whole += came if all(_PLACE in item for item in items) else _rebuild(came, items)
    return whole


def _begins_of(sent: Sequence[Message]) -> list[int]:
    """Return for each message the index of the answer whose result it is, else its own."""
    begins: list[int] = []
    for index, message in enumerate(sent):
        begins.append(begins[-1] if index and message["role"] == "tool" else index)
    return begins


def _rebuild(came: Sequence[Message], items: Sequence[Item]) -> list[Message]:
    """Return an answer of the model and its results from its items.

    Results of the client's calls are as they came, and other fields of the answer, such as its reasoning, are in its
    last message: servers refuse a history without what they have asked to get back.
    """
    results = {str(message.get("tool_call_id")): message for message in came if message["role"] == "tool"}
    calls = [item for item in items if item["type"] not in {"message", "reasoning", "function_call_output"}]
    rebuilt = messages(None, items)
    told = [message for message in rebuilt if message["role"] == "tool"]
    if len(told) == len(calls):
        for message, call in zip(told, calls, strict=True):
            result = results.get(str(call.get("call_id"))) if _PLACE in call else None
            if result is not None:
                message.update({**result, "tool_call_id": message["tool_call_id"]})
    last = next((message for message in reversed(rebuilt) if message["role"] == "assistant"), None)
    if last is not None:
        last.update({name: value for name, value in came[0].items() if name not in last and name not in _OF_ITEMS})
    return rebuilt


def _with_model_ids(given: Sequence[Message]) -> list[Message]:
    """Return the messages with the model's own ids of calls, and with calls of functions only."""
    seen: set[str] = set()
    ids: dict[str, str] = {}
    told: list[Message] = []
    for message in given:
        if message["role"] == "tool":
            call_id = str(message.get("tool_call_id"))
            told.append({**message, "tool_call_id": ids.get(call_id, model_call_id(call_id))})
            continue
        if "tool_calls" in message:
            ids = {}
            calls = [_as_function_call(call) for call in _calls_of(message)]
            for call in calls:
                call_id = str(call.get("id"))
                own = model_call_id(call_id)
                ids[call_id] = call_id[:_MAX_MODEL_ID] if own in seen and own != call_id else own
                seen.add(ids[call_id])
            renamed = [{**call, "id": ids[str(call.get("id"))]} for call in calls]
            told.append({**message, "tool_calls": renamed})
        else:
            told.append(message)
    return told


def _as_function_call(call: Mapping[str, object]) -> Mapping[str, object]:
    """Return a call of a custom tool as one of the function that the model was offered; other calls as they came."""
    if call.get("type") != CUSTOM:
        return call
    made = as_object(call.get(CUSTOM))
    return as_tool_call(str(call.get("id")), str(made.get("name")), arguments_of(str(made.get("input") or "")), {})


def _calls_of(message: Message) -> list[Mapping[str, object]]:
    calls = message.get("tool_calls")
    return [as_object(call) for call in as_list(calls)]


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = as_list(content)
    return "".join(str(as_object(part).get("text") or "") for part in parts)
