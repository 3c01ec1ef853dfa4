"""What must hold between the events of one stream, whatever the response is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.responses.judges.published import SPECIFIED_ITEMS, Unpublished, check_event

TERMINAL = {"response.completed", "response.failed", "response.incomplete"}
_DELTAS = {
    "response.output_text.delta": ("response.output_text.done", "text"),
    "response.refusal.delta": ("response.refusal.done", "refusal"),
    "response.reasoning.delta": ("response.reasoning.done", "text"),
    "response.reasoning_text.delta": ("response.reasoning_text.done", "text"),
    "response.function_call_arguments.delta": ("response.function_call_arguments.done", "arguments"),
    "response.mcp_call_arguments.delta": ("response.mcp_call_arguments.done", "arguments"),
    "response.custom_tool_call_input.delta": ("response.custom_tool_call_input.done", "input"),
}
_DONE = {done: (delta, member) for delta, (done, member) in _DELTAS.items()}

Event = Mapping[str, Any]


class StreamLaws:
    """Takes the events of one stream in order and raises `Unpublished` at the first that breaks a law.

    The numbers rise by one from zero (`first` for a stream that goes on). `created` or `queued` is first, the terminal
    event last. Items are added in order, each is done once, fragments add up to what is done, a hosted call ends by
    `completed` or `failed`, and the terminal response has the items that were done.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.is_over = False
        self._added: list[Mapping[str, Any]] = []
        self._done: dict[int, Mapping[str, Any]] = {}
        self._fragments: dict[tuple[str, int, int], str] = {}
        self._life: dict[int, list[str]] = {}

    def take(self, event: Event) -> None:
        """Judge the next event."""
        check_event(event)
        kind = event["type"]
        self._holds(event["sequence_number"] == len(self.events), f"the number is not {len(self.events)}", event)
        self._holds(not self.is_over, "the terminal event is not the last", event)
        if not self.events:
            self._holds(kind in ("response.created", "response.queued", "error"), "the first is another", event)
        self.events.append(event)
        if kind == "response.output_item.added":
            self._holds(event["output_index"] == len(self._added), "items are added in order", event)
            self._added.append(event["item"])
        elif kind == "response.output_item.done":
            self._item_done(event)
        elif kind in TERMINAL:
            self._terminal(event)
        elif kind in _DELTAS:
            place = (kind, event["output_index"], event.get("content_index", 0))
            self._fragments[place] = self._fragments.get(place, "") + event["delta"]
        elif kind in _DONE:
            delta, member = _DONE[kind]
            told = self._fragments.get((delta, event["output_index"], event.get("content_index", 0)), "")
            self._holds(told == event[member], f"the fragments are {told!r}", event)
        if "output_index" in event:
            self._alive(event)

    def end(self) -> None:
        """Judge that nothing is missing at `[DONE]`."""
        last = self.events[-1] if self.events else {}
        self._holds(self.is_over or last.get("type") == "error", "it ends without a terminal event", last)

    def _alive(self, event: Event) -> None:
        index, kind = event["output_index"], event["type"]
        self._holds(index < len(self._added), "its item was not added", event)
        self._life.setdefault(index, []).append(kind)
        own = f"response.{self._added[index]['type']}."
        if kind.startswith((own, f"{self._added[index]['type']}.")) and own != "response.reasoning.":
            last = [each for each in self._life[index][:-1] if each.endswith((".completed", ".failed"))]
            self._holds(not last or kind.startswith("response.output_item"), "the call has ended", event)

    def _item_done(self, event: Event) -> None:
        index, item = event["output_index"], event["item"]
        self._holds(index not in self._done and index < len(self._added), "an item is done once, when added", event)
        added = self._added[index]
        self._holds((added["type"], added["id"]) == (item["type"], item["id"]), f"{added} was added", event)
        self._holds(item.get("status") != "in_progress", "an item that is done is in progress", event)
        own = [kind for kind in self._life.get(index, ()) if kind.startswith(f"response.{item['type']}.")]
        if own and item["type"] not in SPECIFIED_ITEMS:
            self._holds(own[0].endswith(".in_progress"), f"the life of the call is {own}", event)
            self._holds(own[-1].endswith((".completed", ".failed")), f"the life of the call is {own}", event)
        self._done[index] = item

    def _terminal(self, event: Event) -> None:
        self.is_over = True
        response = event["response"]
        self._holds(len(self._done) == len(self._added), "an item was added and is not done", event)
        self._holds(response["output"] == [self._done[index] for index in sorted(self._done)], "other items", event)
        self._holds(event["type"] == f"response.{response['status']}" or response["status"] == "cancelled", "", event)

    def _holds(self, condition: bool, law: str, event: Event) -> None:
        if not condition:
            raise Unpublished(f"{law}: {event}\nafter {[each['type'] for each in self.events]}")
