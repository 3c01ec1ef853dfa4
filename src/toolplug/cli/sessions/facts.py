"""How facts about a session are written."""

from __future__ import annotations

from toolplug.sessions.record import SessionState


def capability_fields(state: SessionState) -> list[dict[str, object]]:
    """What its application says that it can do, as HTTP answers it."""
    return [{**item._asdict(), "resources": list(item.resources)} for item in state.capabilities]


def time_left(seconds: float) -> str:
    """`59 min`, in the largest unit of which there is one."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"
