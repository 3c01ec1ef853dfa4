"""Histories without the hosted calls, completed from what the host keeps of the responses that made them.

Many clients send back only their own calls. The id of such a call contains the key of its response, of which the host
keeps the hosted items and what the client's calls were. A call is that of the response if its id, its name and its
arguments are the same. Where that is ambiguous, the history stays as it was sent.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Final, NamedTuple, cast

import orjson

from toolplug.catalog.exact_json import as_object, dump_json, load_json
from toolplug.errors import InvalidJson
from toolplug.parts.responses.limits import MAX_HEALED_BYTES, MAX_HEALED_ITEMS, MAX_HEALED_TEXT
from toolplug.parts.responses.request import (
    BACKEND_FIELDS,
    CLIENT_ANSWERS,
    CLIENT_CALLS,
    WIRE_NAME,
    Item,
    called_name,
    called_with,
    is_hosted_call,
    parts_of,
    response_key_of,
    response_key_of_call,
    text_of,
)

_ASKED: Final = "mcp_approval_request"
_TEXTS: Final = frozenset({"message", "reasoning"})
_OF_LARGE: Final = ("id", "type", "status", "call_id", "name", WIRE_NAME, "server_label", "arguments", "output")
"""The fields that are kept of a hosted item that is too large to keep whole."""
_ROUNDED_CHARS: Final = 64 * 1024
"""Longer arguments are compared as they are written: to look at each number takes up to 1 ms for 8 KiB."""
_STRETCH: Final = 4
"""How many times as long the same arguments can become, written by another library."""

_CANDIDATES: Final = 16
"""Items that say the same, of which each is looked at."""

Record = Sequence[Mapping[str, object]]
"""What is kept of a response, in its order: hosted items as `{"hosted": item}`, and a mark of each of the others."""


class _ClientItem(NamedTuple):
    """An item that the client has itself. `says` is a digest of its text or arguments, `size` their length."""

    id: str
    type: str
    says: str
    size: int
    call_id: str = ""
    name: str = ""
    fields: Mapping[str, object] = {}


def make_record(output: Sequence[Item]) -> Record | None:
    """Return what to keep of a response; None if it has no client's call, no hosted one, or too many items.

    Hosted items that have more than `MAX_HEALED_BYTES` together are kept with the beginnings of their outputs.
    """
    kept = [item for item in output if item.get("type") in _TEXTS | CLIENT_CALLS or _is_hosted(item)]
    is_mixed = any(_is_hosted(item) for item in kept) and any(item["type"] in CLIENT_CALLS for item in kept)
    if not is_mixed or len(kept) > MAX_HEALED_ITEMS:
        return None
    left = MAX_HEALED_BYTES
    record: list[Mapping[str, object]] = []
    for item in kept:
        if not _is_hosted(item):
            record.append(_describe(item)._asdict())
            continue
        size = len(dump_json(item))
        record.append({"hosted": item if size <= left else _shorten(item)})
        left -= size if size <= left else 0
    return record


def answered_responses(items: Sequence[Item]) -> list[str]:
    """Return the keys of the responses whose client's calls these items answer, in the order of the calls."""
    answered = {item["call_id"] for item in items if item.get("type") in CLIENT_ANSWERS}
    calls = (item for item in items if item.get("type") in CLIENT_CALLS and item["call_id"] in answered)
    return list(dict.fromkeys(key for item in calls for key in _keys_of(item)))


def responses_in(items: Sequence[Item]) -> frozenset[str]:
    """Return the keys of the responses that the ids of these items contain."""
    return frozenset(key for item in items for key in _keys_of(item))


_Window = defaultdict[tuple[object, object], deque[int]]
"""The indexes of items by their types and what they say."""


class History:
    """The items of a request. `heal` adds what one response has made; `items` are those with all that was added."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._sent = items
        self._calls: defaultdict[str, list[int]] = defaultdict(list)
        self._by_id: dict[str, int] = {}
        self._by_call: dict[str, int] = {}
        self._says: dict[int, str] = {}
        self._found: set[int] = set()
        self._added: dict[str, Item] = {}
        self._missing: defaultdict[int, list[Item]] = defaultdict(list)
        self._completed: dict[int, Item] = {}
        for index, item in enumerate(items):
            if item.get("type") in CLIENT_CALLS:
                for key in _keys_of(item):
                    self._calls[key].append(index)
            elif _is_hosted(item) and item.get("call_id") is not None:
                self._by_call[str(item["call_id"])] = index
            if item.get("id") is not None:
                self._by_id[str(item["id"])] = index

    @property
    def items(self) -> list[Item]:
        """The items as sent, with those that were missing, and with the fields that the client has dropped."""
        healed: list[Item] = []
        for index, item in enumerate(self._sent):
            healed += [*self._missing.get(index, ()), self._completed.get(index, item)]
        return [*healed, *self._missing.get(len(self._sent), ())]

    def heal(self, key: str, record: Record) -> None:
        """Add the hosted items of the response with this key that are missing; none if it is ambiguous which."""
        marks = [None if "hosted" in each else _ClientItem(**each) for each in record]  # type: ignore[arg-type]
        calls = self._find_calls(key, [mark for mark in marks if mark is not None and mark.type in CLIENT_CALLS])
        if not calls:
            return
        around = self._window(min(calls.values()), max(calls.values()))
        wholes = [as_object(each.get("hosted")) for each in record]
        places: list[int | None] = []
        for mark, whole in zip(marks, wholes, strict=True):
            if mark is None:
                places.append(self._find_hosted(whole, around))
            else:
                places.append(calls[mark.id] if mark.id in calls else self._find_text(mark, around))
        at = min(place for place in places if place is not None)
        for mark, whole, place in zip(marks, wholes, places, strict=True):
            if place is not None:
                fields = whole if mark is None else {"id": mark.id, **mark.fields}
                given = {name: value for name, value in self._sent[place].items() if value is not None}
                self._completed[place] = {**self._sent[place], **fields, **given}
                at = place + 1
            elif mark is None:
                self._missing[at].append(self._with_own_id(whole))

    def _find_calls(self, key: str, marks: Sequence[_ClientItem]) -> dict[str, int]:
        """Return the indexes of the client's calls by their ids in the response; none where one is ambiguous."""
        by_id: Mapping[object, _ClientItem] = {each: mark for mark in marks for each in (mark.id, mark.call_id)}
        found: dict[str, int] = {}
        for index in self._calls.get(key, ()):
            item = self._sent[index]
            meant = {by_id[each].id: by_id[each] for each in (item.get("id"), item["call_id"]) if each in by_id}
            mark = next(iter(meant.values()), None)
            if mark is None or len(meant) > 1 or mark.id in found or len(_keys_of(item)) > 1:
                return {}
            if not self._is_call(index, mark):
                return {}
            found[mark.id] = index
        return found

    def _is_call(self, index: int, mark: _ClientItem) -> bool:
        item = self._sent[index]
        same_name = item["name"] == mark.name and item.get("namespace") in (None, mark.fields.get("namespace"))
        same_size = len(called_with(item)) <= _STRETCH * (mark.size + _STRETCH)
        return item["type"] == mark.type and same_name and same_size and self._digest(index) == mark.says

    def _window(self, first: int, last: int) -> _Window:
        """Return the items that a response with calls at these indexes may have made, by what they say.

        It begins after the last item before them that only a client makes, and ends at the next text or call of a
        client. Texts are among them if they have no id of ours, and hosted items if they have none at all.
        """
        sent, window = self._sent, _Window(deque)
        begin = next((index + 1 for index in range(first - 1, -1, -1) if _is_of_client(sent[index])), 0)
        for index in range(begin, len(sent)):
            kind = sent[index]["type"]
            if index > last and kind in {"message", *CLIENT_CALLS}:
                break
            if kind in _TEXTS and response_key_of(str(sent[index].get("id"))) is None:
                window[kind, self._digest(index)].append(index)
            elif _is_bare(sent[index]):
                window[kind, sent[index].get("output")].append(index)
        return window

    def _find_text(self, mark: _ClientItem, window: _Window) -> int | None:
        """Return the index of a message or of reasoning: by its id, or by what it says."""
        return self._by_id[mark.id] if mark.id in self._by_id else self._take(window[mark.type, mark.says], None)

    def _find_hosted(self, hosted: Item, window: _Window) -> int | None:
        """Return the index of a hosted item: by its id, by that of its call, or by the call where it has neither."""
        item_id, call_id, kind = str(hosted["id"]), str(hosted.get("call_id")), str(hosted["type"])
        if item_id in self._by_id:
            return self._by_id[item_id]
        if call_id in self._by_call:
            index = self._by_call[call_id]
            item = self._sent[index]
            if item["type"] == kind and (item.get("id") is None or response_key_of(str(item["id"])) is None):
                return index
        output = hosted.get("output")
        return self._take(window[kind, output], hosted) if isinstance(output, str | None) else None

    def _take(self, candidates: deque[int], hosted: Item | None) -> int | None:
        """Return the first of these items that no other was found to be."""
        for index in [*islice(candidates, _CANDIDATES)]:
            if index not in self._found and (hosted is None or _is_alike(self._sent[index], hosted)):
                self._found.add(index)
                candidates.remove(index)
                return index
        return None

    def _with_own_id(self, hosted: Item) -> Item:
        """Return a missing item; its call gets another id if a call of another response has the same."""
        call_id = str(hosted.get("call_id"))
        index = self._by_call.get(call_id)
        other = self._added.get(call_id) if index is None else self._sent[index]
        approved = other is not None and other.get("approval_request_id") is not None
        if other is not None and not approved and _ASKED not in (other["type"], hosted["type"]):
            call_id = f"call_{sha256(str(hosted['id']).encode()).hexdigest()[:24]}"
            hosted = {**hosted, "call_id": call_id}
        self._added[call_id] = hosted
        return hosted

    def _digest(self, index: int) -> str:
        if index not in self._says:
            self._says[index] = _digest_of(self._sent[index])
        return self._says[index]


def _is_of_client(item: Item) -> bool:
    """Return whether no response makes such an item."""
    return item["type"] in CLIENT_ANSWERS or (item["type"] == "message" and item.get("role") != "assistant")


def _is_hosted(item: Item) -> bool:
    return item.get("type") == _ASKED or is_hosted_call(item.get("type"))


def _is_bare(item: Item) -> bool:
    """Return whether this is a hosted item without the ids of item and call."""
    return _is_hosted(item) and item.get("id") is None and item.get("call_id") is None


def _is_alike(item: Item, hosted: Item) -> bool:
    """Return whether an item without ids shows this hosted call, as far as it says something of it."""
    same_name = item.get("name") in (None, hosted.get("name")) or called_name(item) == called_name(hosted)
    return same_name and (item.get("arguments") is None or _arguments_of(item) == _arguments_of(hosted))


def _keys_of(item: Item) -> frozenset[str]:
    """Return the keys in the ids of an item; some clients send the id of the item in the place of the call's."""
    call_id = str(item.get("call_id"))
    keys = (response_key_of(str(item.get("id"))), response_key_of_call(call_id), response_key_of(call_id))
    return frozenset(key for key in keys if key is not None)


def _describe(item: Item) -> _ClientItem:
    item_id, kind = str(item["id"]), str(item["type"])
    if kind in _TEXTS:
        return _ClientItem(item_id, kind, _digest_of(item), 0)
    fields = {name: item[name] for name in ("namespace", BACKEND_FIELDS) if name in item}
    size = len(called_with(item))
    return _ClientItem(item_id, kind, _digest_of(item), size, str(item["call_id"]), str(item["name"]), fields)


def _digest_of(item: Item) -> str:
    """Return a digest of a text, or of the arguments of a call."""
    if item["type"] in _TEXTS:
        said = "".join(text_of(part) or "" for part in parts_of(item.get("content"))).encode("utf-8", "surrogatepass")
    else:
        said = _arguments_of(item)
    return sha256(said).hexdigest()


def _arguments_of(item: Item) -> bytes:
    """Return the arguments of a call, the same however they are written: clients read them and write them again."""
    text = called_with(item).encode("utf-8", "surrogatepass")
    try:
        value = load_json(text)
        if len(text) <= _ROUNDED_CHARS and b".0" in text:
            value = _with_integers(value)
        return _dump_sorted(value)
    except (InvalidJson, ValueError, RecursionError):
        return text.strip()


def _with_integers(value: object) -> object:
    """Return a value of JSON with integers for whole numbers, as JavaScript writes them."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_integers(each) for each in cast("list[object]", value)]
    if isinstance(value, Mapping):
        return {name: _with_integers(each) for name, each in as_object(cast("object", value)).items()}
    return value


def _dump_sorted(value: object) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # an integer of more than 64 bits
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _shorten(item: Item) -> Item:
    """Return the fields of a large item that the model is told, with the beginning of its output."""
    short = {name: item[name] for name in _OF_LARGE if name in item}
    output, arguments = short.get("output"), short.get("arguments")
    if isinstance(output, str) and len(output) > MAX_HEALED_TEXT:
        short["output"] = f"{output[:MAX_HEALED_TEXT]}\n[{len(output) - MAX_HEALED_TEXT:,} more characters left out]"
    if isinstance(arguments, str) and len(arguments) > MAX_HEALED_TEXT:
        short["arguments"] = dump_json({"left_out": f"{len(arguments):,} characters"}).decode()
    return short
