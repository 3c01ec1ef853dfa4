"""One server-sent event as bytes."""

from __future__ import annotations


def frame(event: str, data: bytes, event_id: int | None = None) -> bytes:
    """`data` is JSON without line breaks, so nobody can write a second event into it."""
    if event_id is None:
        return b"event: %s\ndata: %s\n\n" % (event.encode(), data)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event_id, event.encode(), data)
