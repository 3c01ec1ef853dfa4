"""One turn of the model: the deltas of its answer become items and events, and its calls are assembled.

reasoning     a `reasoning` item
text          a `message` item; a refusal is another part of it
calls         of the client's functions: `function_call` items, streamed; of its custom tools
              `custom_tool_call` items, when complete; all others are collected for the loop
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Literal, cast

from toolplug.catalog.call import ToolCall
from toolplug.responses.backend import CallPart, Delta
from toolplug.responses.builder import Event, ResponseBuilder
from toolplug.responses.input_items import Item
from toolplug.responses.request_tools import ClientTool, input_of
from toolplug.signatures.values import as_object

# What hosted calls have found, noted where the model's text names it.
#
# A tool's result says in `metadata.citations` what can be cited: `{url, title}`, `{type: "file_citation", file_id,
# filename}`, or `{type: "container_file_citation", container_id, file_id, filename}`.

Annotation = Mapping[str, object]

MAX_ANNOTATIONS = 100
_SHORTEST_TITLE = 4


class Citations:
    """The sources that the results of one response have named."""

    def __init__(self) -> None:
        self._sources: dict[tuple[object, object], Mapping[str, object]] = {}

    def add(self, metadata: Mapping[str, object]) -> None:
        """Add the sources of a result; the first entry of a source stays."""
        given = metadata.get("citations")
        for entry in cast("list[object]", given) if isinstance(given, list) else ():
            source = as_object(entry)
            self._sources.setdefault((source.get("url"), source.get("file_id")), source)

    def found_in(self, text: str) -> list[Annotation]:
        """Return an annotation for each place where the text names a source, in order."""
        if not self._sources:
            return []
        found = [pair for source in self._sources.values() for pair in _annotations(source, text)]
        return [annotation for _, annotation in sorted(found, key=lambda pair: pair[0])[:MAX_ANNOTATIONS]]


def _annotations(source: Mapping[str, object], text: str) -> Iterator[tuple[int, Annotation]]:
    url, title = source.get("url"), source.get("title")
    if isinstance(url, str) and url:
        named = title if isinstance(title, str) else ""
        long_enough = len(named) >= _SHORTEST_TITLE
        sought = url if url in text or not long_enough else named
        for start in _places(sought, text):
            end = start + len(sought)
            note = {"type": "url_citation", "url": url, "title": named, "start_index": start, "end_index": end}
            yield start, note
        return
    file_id, filename = source.get("file_id"), source.get("filename")
    if isinstance(file_id, str) and isinstance(filename, str) and filename:
        container_id = source.get("container_id")
        named = {"file_id": file_id, "filename": filename}
        for start in _places(filename, text):
            if isinstance(container_id, str):
                place = {"start_index": start, "end_index": start + len(filename)}
                yield start, {"type": "container_file_citation", "container_id": container_id, **named, **place}
            else:
                yield start, {"type": "file_citation", **named, "index": start}


def _places(sought: str, text: str) -> Iterator[int]:
    start = text.find(sought)
    while start >= 0:
        yield start
        start = text.find(sought, start + len(sought))


Kind = Literal["reasoning_text", "output_text", "refusal"]

_EVENTS: Mapping[Kind, str] = {
    "reasoning_text": "response.reasoning",
    "output_text": "response.output_text",
    "refusal": "response.refusal",
}
CUT_SHORT: Mapping[str | None, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a response is incomplete whose model was stopped, by what its server says."""
_MAX_CALL_ID = 64


@dataclass(slots=True, eq=False)
class _Part:
    """A content part in progress."""

    kind: Kind
    place: int
    texts: list[str] = field(default_factory=list[str])
    logprobs: list[object] = field(default_factory=list[object])


@dataclass(slots=True, eq=False)
class _Call:
    """A call in progress."""

    id: str
    given: str
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    item: dict[str, object] | None = None
    index: int = 0

    @property
    def is_custom(self) -> bool:
        return self.item is not None and self.item["type"] == "custom_tool_call"


class Turn:
    """Reads one answer. `finish` is the finish reason."""

    def __init__(
        self,
        draft: ResponseBuilder,
        own: Mapping[str, ClientTool],
        taken: set[str],
        citations: Citations,
    ) -> None:
        self.finish: str | None = None
        self._draft = draft
        self._own = own
        self._taken = taken
        self._citations = citations
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}
        self._item: dict[str, object] = {}
        self._index = 0
        self._done: list[Mapping[str, object]] = []
        self._part: _Part | None = None

    @property
    def calls_client(self) -> bool:
        """True if one of the calls is of the client's tools."""
        return any(call.item is not None for call in self._calls)

    @property
    def hosted(self) -> list[ToolCall]:
        """The hosted calls in the model's order; an invalid id is replaced."""
        return [ToolCall(call.id, call.name, "".join(call.arguments)) for call in self._calls if call.item is None]

    def read(self, delta: Delta) -> Iterator[Event]:
        """Yield the events of one delta."""
        if delta.reasoning:
            yield from self._write("reasoning_text", delta.reasoning)
        if delta.text:
            yield from self._write("output_text", delta.text, delta.logprobs)
        if delta.refusal:
            yield from self._write("refusal", delta.refusal)
        for part in delta.calls:
            yield from self._call(part)
        self.finish = delta.finish or self.finish
        self._draft.use(delta.usage)

    def end(self, *, cut: bool = False) -> Iterator[Event]:
        """Yield the events that close open items; `cut`: the answer is incomplete."""
        cut = cut or self.finish in CUT_SHORT
        yield from self._close_item("incomplete" if cut else "completed")
        for call in self._calls:
            if call.item is not None:
                yield from self._end_call(call, "incomplete" if cut else "completed")

    def _write(self, kind: Kind, text: str, logprobs: Iterable[object] = ()) -> Iterator[Event]:
        part = self._part
        if part is None or part.kind != kind:
            part = yield from self._open(kind)
        part.texts.append(text)
        part.logprobs += logprobs
        fields: dict[str, object] = {"logprobs": list(logprobs)} if kind == "output_text" else {}
        yield self._draft.event(f"{_EVENTS[kind]}.delta", **self._place(part), delta=text, **fields)

    def _open(self, kind: Kind) -> Generator[Event, None, _Part]:
        wanted = "reasoning" if kind == "reasoning_text" else "message"
        if self._item.get("type") != wanted:
            yield from self._close_item("completed")
            self._item = self._new_item(wanted)
            yield self._draft.added(self._item)
            self._index = len(self._draft.output) - 1
        yield from self._close_part()
        part = self._part = _Part(kind, len(self._done))
        yield self._draft.event("response.content_part.added", **self._place(part), part=_shown(part, []))
        return part

    def _new_item(self, kind: str) -> dict[str, object]:
        if kind == "reasoning":
            return {"id": self._draft.new_id("rs"), "type": kind, "status": "in_progress", "summary": [], "content": []}
        new_id = self._draft.new_id("msg")
        return {"id": new_id, "type": kind, "status": "in_progress", "role": "assistant", "content": []}

    def _close_part(self) -> Iterator[Event]:
        part, self._part = self._part, None
        if part is None:
            return
        text = "".join(part.texts)
        notes = self._citations.found_in(text) if part.kind == "output_text" else []
        for number, note in enumerate(notes):
            fields = {**self._place(part), "annotation_index": number, "annotation": note}
            yield self._draft.event("response.output_text.annotation.added", **fields)
        said: dict[str, object] = {"refusal": text} if part.kind == "refusal" else {"text": text}
        if part.kind == "output_text":
            said["logprobs"] = part.logprobs
        shown = _shown(part, notes)
        yield self._draft.event(f"{_EVENTS[part.kind]}.done", **self._place(part), **said)
        yield self._draft.event("response.content_part.done", **self._place(part), part=shown)
        self._done.append(shown)
        self._item = {**self._item, "content": list(self._done)}
        self._draft.output[self._index] = self._item

    def _close_item(self, status: str) -> Iterator[Event]:
        yield from self._close_part()
        if self._item:
            yield self._draft.done(self._index, {**self._item, "status": status})
        self._item, self._done = {}, []

    def _place(self, part: _Part) -> dict[str, object]:
        return {"item_id": self._item["id"], "output_index": self._index, "content_index": part.place}

    def _call(self, part: CallPart) -> Iterator[Event]:
        call = self._at.get(part.place)
        if call is None or (part.id and part.id != call.given):
            yield from self._close_item("completed")
            call = self._begin_call(part)
        call.name += part.name
        call.arguments.append(part.arguments)
        if call.item is not None:
            yield from self._written(call, part.arguments)
        elif call.name in self._own:
            yield from self._tell(call)

    def _begin_call(self, part: CallPart) -> _Call:
        """Start a call, also if a backend uses one index or id for several."""
        usable = 0 < len(part.id) <= _MAX_CALL_ID and part.id not in self._taken
        call = self._at[part.place] = _Call(part.id if usable else f"call_{token_hex(12)}", part.id)
        self._calls.append(call)
        self._taken.add(call.id)
        return call

    def _tell(self, call: _Call) -> Iterator[Event]:
        tool = self._own[call.name]
        custom = tool.kind == "custom"
        call.item = {
            "id": self._draft.new_id("ctc" if custom else "fc"),
            "type": "custom_tool_call" if custom else "function_call",
            "status": "in_progress",
            "call_id": call.id,
            "name": tool.name,
            **({} if tool.namespace is None else {"namespace": tool.namespace}),
            "input" if custom else "arguments": "",
        }
        yield self._draft.added(call.item)
        call.index = len(self._draft.output) - 1
        yield from self._written(call, "".join(call.arguments))

    def _written(self, call: _Call, arguments: str) -> Iterator[Event]:
        if arguments and not call.is_custom:
            yield self._draft.event("response.function_call_arguments.delta", **_place_of(call), delta=arguments)

    def _end_call(self, call: _Call, status: str) -> Iterator[Event]:
        arguments = "".join(call.arguments)
        if call.is_custom:
            said = {"input": input_of(arguments)}
            yield self._draft.event("response.custom_tool_call_input.delta", **_place_of(call), delta=said["input"])
            yield self._draft.event("response.custom_tool_call_input.done", **_place_of(call), **said)
        else:
            said = {"arguments": arguments}
            yield self._draft.event("response.function_call_arguments.done", **_place_of(call), **said)
        yield self._draft.done(call.index, {**(call.item or {}), **said, "status": status})


def _place_of(call: _Call) -> dict[str, object]:
    return {"item_id": (call.item or {})["id"], "output_index": call.index}


def _shown(part: _Part, notes: list[Mapping[str, object]]) -> Item:
    text = "".join(part.texts)
    if part.kind == "refusal":
        return {"type": part.kind, "refusal": text}
    if part.kind == "reasoning_text":
        return {"type": part.kind, "text": text}
    return {"type": part.kind, "text": text, "annotations": notes, "logprobs": list(part.logprobs)}
