"""What is told of a response that is made in the background, for all who listen, from wherever each begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import cast

from toolplug.responses.draft import Event
from toolplug.responses.hosted import event_name
from toolplug.responses.input_items import Item, is_hosted_call


class Tape:
    """The events so far, each at the place of its number. None is dropped: a listener may be as slow as it likes."""

    def __init__(self, events: Iterable[Event] = (), *, is_over: bool = False) -> None:
        self.events: list[Event] = list(events)
        self._is_over = is_over
        self._news = asyncio.Event()

    def add(self, event: Event) -> None:
        """Take the next event."""
        self.events.append(event)
        self._tell()

    def break_off(self, response: Mapping[str, object]) -> None:
        """Tell what became of each item, and of the response, where it was stopped: the loop tells nobody."""
        done = {event["output_index"] for event in self.events if event["type"] == "response.output_item.done"}
        for index, item in enumerate(cast("list[Item]", response["output"])):
            if index not in done:
                kind = str(item["type"])
                if is_hosted_call(kind):
                    self._say(event_name(kind, "failed"), item_id=item["id"], output_index=index)
                self._say("response.output_item.done", output_index=index, item=item)
        self._say("response.incomplete", response=response)

    def end(self) -> None:
        """Nothing more comes."""
        self._is_over = True
        self._tell()

    async def play(self, after: int) -> AsyncGenerator[Event]:
        """Every event after that number: those that are there, then the others as they come."""
        place = after + 1
        while True:
            news = self._news
            while place < len(self.events):
                yield self.events[place]
                place += 1
            if self._is_over:
                return
            await news.wait()

    def _say(self, kind: str, **fields: object) -> None:
        self.add({"type": kind, "sequence_number": len(self.events), **fields})

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
