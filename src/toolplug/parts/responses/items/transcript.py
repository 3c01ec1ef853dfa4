"""The Chat Completions request of a turn: the items so far as messages, and the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, cast

import orjson

from toolplug.catalog.call import data_url, is_image
from toolplug.catalog.exact_json import as_list, as_object
from toolplug.parts.responses.answers.fragments import as_tool_call
from toolplug.parts.responses.backend import Question
from toolplug.parts.responses.builder import ResponseBuilder
from toolplug.parts.responses.offer import Offer
from toolplug.parts.responses.request import (
    BACKEND_FIELDS,
    CLIENT_ANSWERS,
    CLIENT_CALLS,
    WIRE_NAME,
    Item,
    ResponseRequest,
    Text,
    call_key,
    called_name,
    called_with,
    is_cut,
    is_hosted_call,
    model_call_id,
    parts_of,
    text_of,
    turn_of,
)

LOGPROBS = "message.output_text.logprobs"

_AS_THEY_ARE = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "user",
)

Message = dict[str, object]

_LENGTHS = ("max_completion_tokens", "max_tokens")


class ForwardedChat(NamedTuple):
    """A client's own Chat Completions request, which each turn sends on.

    `messages` begin those of each turn; `fields` are those of its other fields that go to the server as they came, and
    `tools` the client's functions as they came, by name.
    """

    messages: Sequence[Message]
    fields: Mapping[str, object]
    tools: Mapping[str, object]

    @property
    def call_ids(self) -> set[str]:
        made = [call for message in self.messages for call in as_list(message.get("tool_calls"))]
        return {str(as_object(call).get("id")) for call in made}

    def fields_after(self, spent: int) -> Mapping[str, object]:
        """Return the fields for a turn after so many tokens, which count for the length of the whole answer."""
        lengths = {name: most for name in _LENGTHS if isinstance(most := self.fields.get(name), int) and most > 0}
        return {**self.fields, **{name: max(most - spent, 1) for name, most in lengths.items()}}


def question(
    request: ResponseRequest,
    draft: ResponseBuilder,
    messages: Sequence[object],
    offer: Offer,
    choice: object,
    forwarded: ForwardedChat | None = None,
) -> Question:
    """Return one turn's Chat Completions request."""
    asked: dict[str, object] = {"model": draft.model, "messages": messages}
    spent = 0 if draft.usage is None else draft.usage.output
    if offer.tools:
        asked["tools"] = offer.tools if forwarded is None else _put_back(offer, forwarded)
        if choice is not None:
            asked["tool_choice"] = choice
        if request.parallel_tool_calls is False:
            asked["parallel_tool_calls"] = False
    if forwarded is not None:
        return {**asked, **forwarded.fields_after(spent)}
    asked.update({name: value for name in _AS_THEY_ARE if (value := getattr(request, name)) is not None})
    if request.max_output_tokens is not None:
        asked["max_completion_tokens"] = max(request.max_output_tokens - spent, 1)
    if request.reasoning is not None and request.reasoning.effort is not None:
        asked["reasoning_effort"] = request.reasoning.effort
    if request.text is not None:
        asked.update(_of_text(request.text))
    if LOGPROBS in (request.include or ()):
        asked["logprobs"] = True
        if request.top_logprobs is not None:
            asked["top_logprobs"] = request.top_logprobs
    return asked


def _put_back(offer: Offer, forwarded: ForwardedChat) -> list[object]:
    """Return the tools with the client's functions as they came: the server may know more of their fields."""
    names = [as_object(as_object(tool).get("function")).get("name") for tool in offer.tools]
    return [forwarded.tools.get(str(name), tool) for name, tool in zip(names, offer.tools, strict=True)]


def _of_text(text: Text) -> dict[str, object]:
    asked: dict[str, object] = {} if text.verbosity is None else {"verbosity": text.verbosity}
    form = text.format
    if form is not None and form.type == "json_schema":
        schema = form.model_dump(by_alias=True, exclude_none=True, exclude={"type"})
        asked["response_format"] = {"type": form.type, "json_schema": schema}
    elif form is not None and form.type == "json_object":
        asked["response_format"] = {"type": form.type}
    return asked


_SHOWN_APART = frozenset({"id", "type", "status", "call_id", "name", WIRE_NAME, BACKEND_FIELDS, "arguments"})
_OWN_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id"})
"""Fields of a message that follow from the items."""
_CUT = "this call was broken off before it had ended"
_WAITS = "this call waits for a person's approval and has not been made"

_REASONING = ("reasoning_content",)

EMPTY_NOTICES: Mapping[str, str] = MappingProxyType({})

_MAX_MODEL_ID = 40
"""Characters of a call's id in OpenAI's Chat Completions; the part of ours that is unique has as many."""

_LastItem = Literal["text", "client call", "hosted call"]


def messages(
    instructions: str | None, items: Sequence[Item], notices: Mapping[str, str] = EMPTY_NOTICES
) -> list[Message]:
    """Return the conversation as messages. Each call is followed by its output, wherever that is in the input.

    `notices` are texts of the host for the model, by the id of the user's message or the answer that they are added to.
    """
    transcript = Transcript(items, notices)
    if instructions:
        transcript.messages.append({"role": "system", "content": instructions})
    for item in items:
        transcript.add(item)
    transcript.end_turn()
    return transcript.messages


@dataclass(slots=True, eq=False)
class _OpenTurn:
    """The last assistant turn, which further items may belong to.

    `id`: its response and turn, if the items have them; `last`: the last item; `calls_client`: it contains a call of
    the client's tool; `answered`: the client's output follows its calls; `parts`: its content as the server sent it, if
    that was no text.
    """

    message: Message
    id: str | None
    last: _LastItem
    calls_client: bool = False
    answered: bool = False
    parts: Sequence[object] = ()

    def add_fields(self, item: Item) -> None:
        """Add what the server wants back with the item: the text of a thought, and fields that only it understands."""
        given = as_object(item.get(BACKEND_FIELDS))
        thought = _read_reasoning(item) if item.get("type") == "reasoning" else ""
        for name in _names(given.get("reasoning")) or _REASONING:
            if thought and name not in _OWN_FIELDS:
                self.message[name] = f"{self.message.get(name) or ''}{thought}"
        fields = as_object(given.get("message"))
        self.message.update({name: value for name, value in fields.items() if name not in _OWN_FIELDS})
        self.parts = as_list(fields.get("content")) or self.parts


class Transcript:
    """Builds the messages. `items` are those that outputs are searched in.

    The items of one model turn are one assistant message. The ids of our own items contain their turn. Items without
    such ids are one turn unless their order contradicts it: a call after a text, a client's call or a text after a
    client's call without output, a hosted call after a client's call. A client's call after a hosted one was made with
    that one's output known.
    """

    def __init__(self, items: Iterable[Item] = (), notices: Mapping[str, str] = EMPTY_NOTICES) -> None:
        self.messages: list[Message] = []
        self._notices = notices
        self._thoughts: list[Item] = []
        self._answers: dict[str, object] = {}
        self._seen: list[Message] = []
        self._called: set[str] = set()
        self._model_ids: set[str] = set()
        self._turn: _OpenTurn | None = None
        for item in items:
            kind = item.get("type")
            if kind == "mcp_approval_request":
                self._answers.setdefault(call_key(item), _WAITS)
            elif kind in CLIENT_ANSWERS or is_hosted_call(kind):
                self._answers[call_key(item)] = _add_text(_answer(item), notices.get(str(item.get("id"))))

    def add(self, item: Item) -> None:
        """Add an item; outputs are added with their calls."""
        kind = item.get("type")
        if kind == "message":
            self._say(item)
        elif kind == "reasoning":
            made_in = turn_of(item)
            if self._turn is not None and made_in is not None and made_in == self._turn.id:
                self._turn.add_fields(item)
            else:
                self._thoughts.append(item)
        elif kind in CLIENT_ANSWERS:
            if self._turn is not None:
                self._turn.answered = True
        elif kind in CLIENT_CALLS:
            if not is_cut(item) or call_key(item) in self._answers:
                self._call(item, "client call")
        elif kind == "mcp_approval_request" or is_hosted_call(kind):
            self._call(item, "hosted call")

    def _say(self, item: Item) -> None:
        role = item["role"]
        content = item["content"]
        if role == "assistant":
            message = self._message_of(item, "text")
            for part in parts_of(content):
                name = "refusal" if part.get("type") == "refusal" else "content"
                message[name] = f"{message.get(name) or ''}{text_of(part) or ''}"
        else:
            self.end_turn()
            told = _add_text(_content(content), self._notices.get(str(item.get("id"))))
            self.messages.append({"role": "user" if role == "user" else "system", "content": told})

    def _call(self, item: Item, kind: _LastItem) -> None:
        call_id = call_key(item)
        if call_id in self._called:
            return
        self._called.add(call_id)
        message = self._message_of(item, kind)
        made = cast("list[object]", message.setdefault("tool_calls", []))
        fields = as_object(as_object(item.get(BACKEND_FIELDS)).get("tool_call"))
        model_id = self._model_id(call_id)
        made.append(as_tool_call(model_id, called_name(item), called_with(item), fields))
        answer = self._answers.get(call_id, "")
        parts = cast("list[Message]", answer) if isinstance(answer, list) else []
        texts = [part for part in parts if part["type"] == "text"]
        self.messages.append({"role": "tool", "tool_call_id": model_id, "content": texts if parts else answer})
        self._seen += [part for part in parts if part["type"] != "text"]

    def _model_id(self, call_id: str) -> str:
        """Return the id of a call for the model: its own, unless another call of the conversation has it."""
        own = model_call_id(call_id)
        model_id = call_id[:_MAX_MODEL_ID] if own in self._model_ids and own != call_id else own
        self._model_ids.add(model_id)
        return model_id

    def end_turn(self) -> None:
        """End the open turn. Its images follow as a user message, as backends accept none in outputs."""
        if self._turn is not None and self._turn.parts:
            self._turn.message["content"] = _as_sent(self._turn.parts, self._turn.message["content"])
        if self._seen:
            self.messages.append({"role": "user", "content": self._seen})
        self._turn, self._seen = None, []

    def _message_of(self, item: Item, kind: _LastItem) -> Message:
        """Return the assistant message of an item: that of the open turn, or of a new one."""
        turn = self._turn
        if turn is None or not self._belongs(item, kind, turn):
            self.end_turn()
            turn = self._turn = _OpenTurn({"role": "assistant", "content": None}, turn_of(item), kind)
            self.messages.append(turn.message)
        turn.last = kind
        turn.calls_client = turn.calls_client or kind == "client call"
        for thought in self._thoughts:
            turn.add_fields(thought)
        self._thoughts.clear()
        turn.add_fields(item)
        return turn.message

    def _belongs(self, item: Item, kind: _LastItem, turn: _OpenTurn) -> bool:
        made_in = turn_of(item)
        if made_in is not None and turn.id is not None:
            return made_in == turn.id
        if turn.answered or self._thoughts:
            return False
        if kind == "hosted call":
            return turn.last == "text" or turn.calls_client
        if kind == "client call":
            return turn.last != "hosted call"
        return turn.last == "client call"


def _content(content: object) -> object:
    parts = parts_of(content)
    texts = [text_of(part) for part in parts]
    return texts[0] if len(texts) == 1 and texts[0] is not None else [_part(part) for part in parts]


def _part(part: Mapping[str, object]) -> Message:
    text = text_of(part)
    if text is not None:
        return {"type": "text", "text": text}
    if part["type"] == "input_image":
        given = {"url": part["image_url"], "detail": part.get("detail")}
        return {"type": "image_url", "image_url": {name: value for name, value in given.items() if value}}
    return {
        "type": "file",
        "file": {name: part[name] for name in ("file_id", "file_data", "filename") if part.get(name)},
    }


def _add_text(content: object, text: str | None) -> object:
    """Return the content of a message with a text after it."""
    if text is None:
        return content
    if isinstance(content, str):
        return f"{content}\n\n{text}" if content else text
    return [*as_list(content), {"type": "text", "text": text}]


def _answer(item: Item) -> object:
    """Return the output of a call for the model; for one made elsewhere, the fields of its item."""
    output = item.get("output")
    if isinstance(output, str):
        images = [
            {"type": "image_url", "image_url": {"url": data_url(part)}}
            for part in map(as_object, as_list(item.get("parts")))
            if is_image(part)
        ]
        return [{"type": "text", "text": output}, *images] if images else output
    if isinstance(output, list):
        return _content(cast("list[object]", output))
    if is_cut(item):
        return _CUT
    shown = {name: value for name, value in item.items() if name not in _SHOWN_APART and value is not None}
    return orjson.dumps(shown).decode()


def _names(value: object) -> list[str]:
    return [name for name in as_list(value) if isinstance(name, str)]


def _as_sent(parts: Sequence[object], text: object) -> object:
    """Return the content as the server sent it, unless the client has changed its text."""
    texts = [each if isinstance(each, str) else as_object(each).get("text") for each in parts]
    same = "".join(each for each in texts if isinstance(each, str)) == (text or "")
    return list(parts) if same else text


def _read_reasoning(item: Item) -> str:
    """Return the reasoning as the backend gave it, without summaries."""
    return "".join(text_of(as_object(part)) or "" for part in parts_of(item.get("content")))
