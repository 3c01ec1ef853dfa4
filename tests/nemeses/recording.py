"""How clients record what they see of a session, whichever way they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.nemeses.history import Entry, History, Read, Update

Clock = Callable[[], float]
UPDATE = "tool-availability-update"
SPARE = 20
"""Tools of each writer: it takes the next one when it does not know what became of an update of the last."""


def writers(most: int) -> list[str]:
    """The names of the tools to register for so many writers."""
    return [f"w{writer}_{spare}" for writer in range(most) for spare in range(SPARE)]


def numbers(tools: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """What the tools of a session say."""
    return {tool["name"]: int(tool["description"] or 0) for tool in tools if tool["name"].startswith("w")}


class Writer:
    """One client that updates a session, one update after the other."""

    def __init__(self, history: History, index: int, now: Clock) -> None:
        self._history = history
        self._now = now
        self._spares = (f"w{index}_{spare}" for spare in range(SPARE))
        self._tool = next(self._spares)
        self._number = 0
        self._began = 0.0

    def next(self) -> tuple[str, int]:
        """Begin an update: the tool and the number to write into it."""
        self._number += 1
        self._began = self._now()
        return self._tool, self._number

    def acknowledged(self, revision: int) -> None:
        """Record its end."""
        self._record(Update(**self._asked, ended=self._now(), revision=revision))

    def refused(self) -> None:
        """Record that it was refused, so that it must not be seen."""
        self._record(Update(**self._asked, ended=self._now(), refused=True))

    def unknown(self) -> bool:
        """Record that there is no answer; return False if that was the last tool of this writer.

        The update may be applied later, so that its tool is not used again.
        """
        self._record(Update(**self._asked))
        self._tool, self._number = next(self._spares, ""), 0
        return bool(self._tool)

    @property
    def _asked(self) -> dict[str, Any]:
        return {"writer": self._tool, "number": self._number, "began": self._began}

    def _record(self, update: Update) -> None:
        self._history.updates.append(update)


class StreamReader:
    """One client that follows the session's events, over any number of streams that resume each other."""

    def __init__(self, history: History, name: str, now: Clock) -> None:
        self.last_id = ""
        self._history = history
        self._name = name
        self._now = now
        self._began = 0.0
        self._revision: int | None = None

    def opens(self) -> None:
        """Note that a stream is asked for."""
        self._began = self._now()

    def take(self, event_id: str, event: str, data: Mapping[str, Any]) -> None:
        """Record an event."""
        self.last_id = event_id or self.last_id
        if event == "resync":
            self._revision = None
        elif event == "connected" and not data["resumed"]:
            self._revision = revision = data["revision"]
            seen = numbers(data["tools"])
            self._history.reads.append(
                Read(process=self._name, began=self._began, ended=self._now(), revision=revision, numbers=seen)
            )
        elif event == UPDATE:
            self._history.entries.append(entry(self._name, event_id, self._revision, data))
            self._revision = data["revision"]


def entry(reader: str, event_id: str, after: int | None, data: Mapping[str, Any]) -> Entry:
    """An event of an update, as an entry of the log."""
    changed = numbers(data["updates"]["modified"])
    return Entry(
        reader=reader, position=int(event_id), after=after, revision=data["revision"], change=tuple(changed.items())
    )
