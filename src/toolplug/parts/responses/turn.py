"""One turn of the model: the deltas of its answer become items and events, and its calls are assembled.

reasoning     a `reasoning` item
text          a `message` item; a refusal is another part of it
calls         of the client's functions: `function_call` items, streamed; of its custom tools
              `custom_tool_call` items, when complete; all others are collected for the loop
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Literal

from toolplug.catalog.call import EMPTY, ToolCall
from toolplug.catalog.exact_json import as_list, as_object
from toolplug.parts.responses.answers.fragments import BackendFields, CallAssembler, ModelCall
from toolplug.parts.responses.backend import ENDED, CallPart, Delta
from toolplug.parts.responses.builder import Event, ResponseBuilder
from toolplug.parts.responses.limits import MAX_ANNOTATIONS, MAX_CALL_ID
from toolplug.parts.responses.request import BACKEND_FIELDS, Item
from toolplug.parts.responses.request_tools import ClientTool, input_of

# What hosted calls have found, noted where the model's text names it.
#
# A tool's result says in `metadata.citations` what can be cited: `{url, title}`, `{type: "file_citation", file_id,
# filename}`, or `{type: "container_file_citation", container_id, file_id, filename}`.

Annotation = Mapping[str, object]

_SHORTEST_TITLE = 4


class Citations:
    """The sources that the results of one response have named."""

    def __init__(self) -> None:
        self._sources: dict[tuple[object, object], Mapping[str, object]] = {}

    def add(self, metadata: Mapping[str, object]) -> None:
        """Add the sources of a result; the first entry of a source stays."""
        given = metadata.get("citations")
        for entry in as_list(given):
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
        for start in _find_all(sought, text):
            end = start + len(sought)
            note = {"type": "url_citation", "url": url, "title": named, "start_index": start, "end_index": end}
            yield start, note
        return
    file_id, filename = source.get("file_id"), source.get("filename")
    if isinstance(file_id, str) and isinstance(filename, str) and filename:
        container_id = source.get("container_id")
        named = {"file_id": file_id, "filename": filename}
        for start in _find_all(filename, text):
            if isinstance(container_id, str):
                place = {"start_index": start, "end_index": start + len(filename)}
                yield start, {"type": "container_file_citation", "container_id": container_id, **named, **place}
            else:
                yield start, {"type": "file_citation", **named, "index": start}


def _find_all(sought: str, text: str) -> Iterator[int]:
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
CUT_SHORT: Mapping[str | None, str] = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "content_filter": "content_filter",
    "safety": "content_filter",
}
"""Why a response is incomplete whose model was stopped, by what its server says."""
_REASONING = ("reasoning_content",)


@dataclass(slots=True, eq=False)
class _TurnPart:
    """A content part in progress."""

    kind: Kind
    place: int
    texts: list[str] = field(default_factory=list[str])
    logprobs: list[object] = field(default_factory=list[object])


@dataclass(slots=True, eq=False)
class _Call:
    """A call in progress; `item` is its item if it is left to the client."""

    id: str
    made: ModelCall
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
        is_known: Callable[[str], bool],
    ) -> None:
        self.finish: str | None = None
        self._draft = draft
        self._own = own
        self._taken = taken
        self._citations = citations
        self._assembler = CallAssembler(is_known)
        self._calls: dict[ModelCall, _Call] = {}
        self._fields = BackendFields()
        self._item: dict[str, object] = {}
        self._index = 0
        self._done: list[Mapping[str, object]] = []
        self._part: _TurnPart | None = None

    @property
    def calls_client(self) -> bool:
        return any(call.item is not None for call in self._calls.values())

    @property
    def hosted_calls(self) -> list[ToolCall]:
        """The hosted calls in the model's order; an invalid id is replaced."""
        calls = [call for call in self._calls.values() if call.item is None]
        return [ToolCall(call.id, call.made.name, call.made.arguments) for call in calls]

    def read(self, delta: Delta) -> Iterator[Event]:
        """Yield the events of one delta. Raises `BackendFailed` for calls over the limits."""
        if delta.reasoning:
            yield from self._write("reasoning_text", delta.reasoning)
            if delta.reasoning_fields and delta.reasoning_fields != _REASONING:
                self._item = {**self._item, BACKEND_FIELDS: {"reasoning": list(delta.reasoning_fields)}}
        if delta.text:
            yield from self._write("output_text", delta.text, delta.logprobs)
        if delta.refusal:
            yield from self._write("refusal", delta.refusal)
        for part in delta.calls:
            yield from self._call(part)
        in_parts = self._fields.has("content") and "content" not in delta.extra
        self._fields.add({**delta.extra, "content": delta.text} if delta.text and in_parts else delta.extra)
        self.finish = delta.finish or self.finish
        self._draft.use(delta.usage)

    def check_calls(self) -> None:
        """Drop calls that were sent twice. Raises `BackendFailed` if a call is not complete, or without arguments."""
        if self.finish not in CUT_SHORT:
            self._assembler.end(is_certain=self.finish != ENDED)
            self._calls = {made: self._calls[made] for made in self._assembler.calls}

    def end(self, *, cut: bool = False) -> Iterator[Event]:
        """Yield the events that close open items; `cut`: the answer is incomplete."""
        status = "incomplete" if cut or self.finish in CUT_SHORT else "completed"
        if self._item and not self._calls and self._fields.value:
            own = as_object(self._item.get(BACKEND_FIELDS))
            self._item = {**self._item, BACKEND_FIELDS: {**own, "message": self._fields.value}}
        yield from self._close_item(status)
        for call in self._calls.values():
            if call.item is None and call.made.name in self._own and not cut:
                yield from self._tell(call)
        self._note_fields()
        for call in self._calls.values():
            if call.item is not None:
                yield from self._end_call(call, status)

    def _note_fields(self) -> None:
        """Note what the server wants back: with each call its own fields, with the first one those of the message.

        Calls are done after all else of a turn, so that the fields of the last delta are known by then.
        """
        message = self._fields.value
        for call in self._calls.values():
            fields = {"message": message, "tool_call": call.made.fields.value}
            self._draft.keep_call_fields(call.id, {name: value for name, value in fields.items() if value})
            if call.item is not None:
                call.item = {**call.item, **self._draft.fields_of(call.id)}
            message = EMPTY

    def _write(self, kind: Kind, text: str, logprobs: Iterable[object] = ()) -> Iterator[Event]:
        part = self._part
        if part is None or part.kind != kind:
            part = yield from self._open(kind)
        part.texts.append(text)
        part.logprobs += logprobs
        fields: dict[str, object] = {"logprobs": list(logprobs)} if kind == "output_text" else {}
        yield self._draft.event(f"{_EVENTS[kind]}.delta", **self._place(part), delta=text, **fields)

    def _open(self, kind: Kind) -> Generator[Event, None, _TurnPart]:
        wanted = "reasoning" if kind == "reasoning_text" else "message"
        if self._item.get("type") != wanted:
            yield from self._close_item("completed")
            self._item = self._new_item(wanted)
            yield self._draft.added(self._item)
            self._index = len(self._draft.output) - 1
        yield from self._close_part()
        part = self._part = _TurnPart(kind, len(self._done))
        yield self._draft.event("response.content_part.added", **self._place(part), part=_show(part, []))
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
        shown = _show(part, notes)
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

    def _place(self, part: _TurnPart) -> dict[str, object]:
        return {"item_id": self._item["id"], "output_index": self._index, "content_index": part.place}

    def _call(self, part: CallPart) -> Iterator[Event]:
        made = self._assembler.add(part)
        if made is None:
            return
        call = self._calls.get(made)
        if call is None:
            yield from self._close_item("completed")
            call = self._begin_call(made)
        if call.item is not None:
            yield from self._write_call(call)
        elif made.name in self._own and made.repeats is None:  # else it may have been sent twice
            yield from self._tell(call)

    def _begin_call(self, made: ModelCall) -> _Call:
        """Start a call, also if a backend uses one id for several."""
        usable = 0 < len(made.given) <= MAX_CALL_ID and made.given not in self._taken
        call = self._calls[made] = _Call(made.given if usable else f"call_{token_hex(12)}", made)
        self._taken.add(call.id)
        return call

    def _tell(self, call: _Call) -> Iterator[Event]:
        tool = self._own[call.made.name]
        custom = tool.kind == "custom"
        call.id = self._draft.new_call_id(call.id if call.id == call.made.given else "")
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
        yield from self._write_call(call)

    def _write_call(self, call: _Call) -> Iterator[Event]:
        arguments = "" if call.is_custom else call.made.unsent()
        if arguments:
            yield self._draft.event("response.function_call_arguments.delta", **_place_of(call), delta=arguments)

    def _end_call(self, call: _Call, status: str) -> Iterator[Event]:
        arguments = call.made.arguments
        if not call.is_custom and (rest := call.made.unsent(is_last=True)):
            yield self._draft.event("response.function_call_arguments.delta", **_place_of(call), delta=rest)
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


def _show(part: _TurnPart, notes: list[Mapping[str, object]]) -> Item:
    text = "".join(part.texts)
    if part.kind == "refusal":
        return {"type": part.kind, "refusal": text}
    if part.kind == "reasoning_text":
        return {"type": part.kind, "text": text}
    return {"type": part.kind, "text": text, "annotations": notes, "logprobs": list(part.logprobs)}
