"""Server-sent events: the frames of every event stream of a host (https://html.spec.whatwg.org, section 9.2.6)."""

from __future__ import annotations


def frame(event: str, data: bytes, event_id: int | None = None) -> bytes:
    """Return one frame of the event stream, of an event without a type where `event` is empty.

    `data` is compact JSON, so it cannot contain another event.

    U+0085, U+2028 and U+2029 are escaped: they end no line of an event stream, but `iter_lines` of httpx splits there.
    """
    # Only inside JSON texts can these bytes stand, where the escapes mean the same.
    data = data.replace(b"\xc2\x85", b"\\u0085").replace(b"\xe2\x80\xa8", b"\\u2028")
    data = data.replace(b"\xe2\x80\xa9", b"\\u2029")
    if not event:
        return b"data: %s\n\n" % data
    if event_id is None:
        return b"event: %s\ndata: %s\n\n" % (event.encode(), data)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event_id, event.encode(), data)
