"""A response in progress: the object that clients read, and the events of its changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Annotated, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from toolplug.catalog.definition import HostedItem
from toolplug.catalog.exact_json import as_object
from toolplug.parts.responses.backend import Usage
from toolplug.parts.responses.limits import MAX_CALL_ID
from toolplug.parts.responses.request import BACKEND_FIELDS, Format, Item, ResponseRequest

Event = dict[str, object]
"""`type`, `sequence_number`, and what the type says."""

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
FINAL = frozenset({"completed", "incomplete", "failed", "cancelled"})

_OF_FUNCTION = ("description", "parameters", "strict")
_DEFAULT_TEXT: Mapping[str, object] = {"type": "text"}

Json = Mapping[str, object]


@with_config(extra="allow")
class ResponseAnswer(TypedDict, extra_items=object):
    """A response object; further fields repeat the request's settings."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Status
    incomplete_details: Json | None
    error: Json | None
    model: str
    previous_response_id: str | None
    output: list[Item]
    tools: Annotated[list[Json], Field(description="as the client sent them")]
    usage: Json | None
    metadata: dict[str, str]


class ResponseBuilder:
    """Builds one response. Items are replaced, never changed in place, so that returned objects stay valid.

    `turn` is the number of the model's answers so far; `approvals` are the calls that wait for a person, by ticket;
    `tool_list` is what is stored of a list of tools that stays.
    """

    def __init__(self, request: ResponseRequest, model: str, created_at: float) -> None:
        self.key: str = token_hex(16)
        self.model = model
        self.status: Status = "queued" if request.background else "in_progress"
        self.output: list[Item] = []
        self.hidden: dict[str, Item] = {}
        self._call_fields: dict[str, Item] = {}
        self.turn: int = 0
        self.usage: Usage | None = None
        self.warnings: Sequence[Mapping[str, object]] = ()
        self.approvals: dict[str, Mapping[str, object]] = {}
        self.tool_list: Mapping[str, object] = {}
        self._request = request
        self._created_at = int(created_at)
        self._completed_at: int | None = None
        self._error: Mapping[str, object] | None = None
        self._reason: str | None = None
        self._next_event = 0

    @property
    def id(self) -> str:
        """The id of the response."""
        return response_id(self.key)

    @property
    def items(self) -> list[Item]:
        """The output items, with hidden fields."""
        return whole_items(self.output, self.hidden)

    def new_id(self, prefix: str) -> str:
        """Return the id of the next item, which contains the keys of the response and the turn."""
        return f"{prefix}_{self.key}{len(self.output):03x}t{self.turn:x}"

    def new_call_id(self, given: str) -> str:
        """Return the id of a call of the client's tool, which is the next item; `given` is the model's id of the call.

        It contains the key of the response, so that a request which answers the call says where it was made.
        """
        made = f"call_{self.key}{len(self.output):03x}"
        return f"{made}_{given}" if given and len(made) + len(given) < MAX_CALL_ID else made

    def event(self, kind: str, **fields: object) -> Event:
        """Return the next event of this type."""
        number, self._next_event = self._next_event, self._next_event + 1
        return {"type": kind, "sequence_number": number, **fields}

    def told(self, kind: str) -> Event:
        """Return the next event of this type, with the current response."""
        return self.event(kind, response=self.object())

    def added(self, item: Item) -> Event:
        """Append an item to the output and return its event."""
        self.output.append(item)
        return self.event("response.output_item.added", output_index=len(self.output) - 1, item=item)

    def done(self, index: int, item: Item) -> Event:
        """Replace an item by its final form and return its event."""
        self.output[index] = item
        return self.event("response.output_item.done", output_index=index, item=item)

    def hide(self, whole: Item, shape: HostedItem) -> None:
        """Remember an item with its hidden fields, and how it is shown without them."""
        self.hidden[str(whole["id"])] = {"item": whole, "fields": dict(shape.fields), "on_include": shape.on_include}

    def keep_call_fields(self, call_id: str, fields: Mapping[str, object]) -> None:
        """Remember the fields that the model's server wants back with a call."""
        if fields:
            self._call_fields[call_id] = {BACKEND_FIELDS: fields}

    def fields_of(self, call_id: str) -> Item:
        """Return those fields as a field of the call's item; nothing if there are none."""
        return self._call_fields.get(call_id, {})

    def use(self, usage: Usage | None) -> None:
        """Add the tokens of a turn."""
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage.plus(usage)

    def complete(self, now: float) -> Event:
        """End the response as `completed` at this time (Unix seconds)."""
        self.status, self._completed_at = "completed", int(now)
        return self.told("response.completed")

    def cut_short(self, reason: str) -> Event:
        """End the response as `incomplete`."""
        self.status, self._reason = "incomplete", reason
        return self.told("response.incomplete")

    def fail(self, code: str, message: str) -> Event:
        """End the response as `failed`."""
        self.status, self._error = "failed", {"code": code, "message": message}
        self._interrupt()
        return self.told("response.failed")

    def cancel(self) -> None:
        """End the response as `cancelled`; items in progress become `incomplete`."""
        self.status = "cancelled"
        self._interrupt()

    def object(self) -> ResponseAnswer:
        """Return the response object, with hidden fields."""
        asked = self._request
        text, reasoning = asked.text, asked.reasoning
        answer: ResponseAnswer = {
            "id": self.id,
            "object": "response",
            "created_at": self._created_at,
            "completed_at": self._completed_at,
            "status": self.status,
            "incomplete_details": None if self._reason is None else {"reason": self._reason},
            "error": self._error,
            "model": self.model,
            "previous_response_id": asked.previous_response_id,
            "instructions": asked.instructions,
            "output": list(self.output),
            "tools": [_echo(tool) for tool in asked.tools or ()],
            "tool_choice": _echo_choice(asked.tool_choice),
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "max_tool_calls": asked.max_tool_calls,
            "max_output_tokens": asked.max_output_tokens,
            "text": {
                "format": _echo_format(text and text.format),
                **({"verbosity": text.verbosity} if text and text.verbosity else {}),
            },
            "reasoning": None if reasoning is None else {"effort": reasoning.effort, "summary": reasoning.summary},
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "presence_penalty": asked.presence_penalty or 0.0,
            "frequency_penalty": asked.frequency_penalty or 0.0,
            "top_logprobs": asked.top_logprobs or 0,
            "truncation": asked.truncation or "disabled",
            "service_tier": asked.service_tier or "default",
            "safety_identifier": asked.safety_identifier,
            "prompt_cache_key": asked.prompt_cache_key,
            "store": asked.is_stored,
            "background": bool(asked.background),
            "metadata": asked.metadata or {},
            "usage": None if self.usage is None else _show_usage(self.usage),
        }
        said = {"warnings": self.warnings, "approvals": self.approvals.values()}
        if any(said.values()):
            answer["toolplug"] = {name: list(each) for name, each in said.items() if each}
        return answer

    def _interrupt(self) -> None:
        """Mark items in progress as `incomplete`."""
        self.output = [
            {**item, "status": "incomplete"} if item.get("status") == "in_progress" else item for item in self.output
        ]


def whole_items(items: Sequence[Item], hidden: Mapping[str, object]) -> list[Item]:
    """Return the items with their hidden fields."""
    return [as_object(as_object(hidden.get(str(item.get("id")))).get("item")) or item for item in items]


def response_id(key: str) -> str:
    return f"resp_{key}"


def _echo(tool: Mapping[str, object]) -> Mapping[str, object]:
    """Return the client's tool as the response repeats it; a function with all keys that clients expect."""
    return {**dict.fromkeys(_OF_FUNCTION), **tool} if tool.get("type") == "function" else tool


def _echo_format(form: Format | None) -> Mapping[str, object]:
    if form is None:
        return _DEFAULT_TEXT
    shown = form.model_dump(by_alias=True, exclude_none=True)
    return {"description": None, "strict": False, **shown} if form.type == "json_schema" else shown


def _echo_choice(choice: object) -> object:
    given = as_object(choice)
    return {"mode": "auto", **given} if given.get("type") == "allowed_tools" else choice or "auto"


def _show_usage(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }
