"""What is asked of one record as data, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from toolplug.errors import StoreMisused

MAX_KEY_BYTES = 512
MAX_VALUE_BYTES = 64 * 1024 * 1024
MAX_EVENT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one `Store.commit` asks for; the arguments are those of the protocol."""

    key: str
    value: bytes | None
    expected: int | None
    ttl_s: float | None
    events: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What one `Store.extend` asks for; the arguments are those of the protocol."""

    key: str
    events: tuple[bytes, ...]
    ttl_s: float | None


Change = Commit | Extension


def checked_commit(
    key: str, value: bytes | None, *, expected: int | None, ttl_s: float | None, events: Sequence[bytes]
) -> Commit:
    """Return the commit, or raise `StoreMisused` naming the limit that it breaks."""
    check_key(key)
    if value is None and events:
        raise StoreMisused(f"deleting {key!r} takes its events along: commit a last value with the events instead")
    if value is not None and len(value) > MAX_VALUE_BYTES:
        raise StoreMisused(f"the value of {key!r} has {len(value)} bytes; a store takes {MAX_VALUE_BYTES}")
    if expected is not None and expected < 0:
        raise StoreMisused(f"expected revision {expected} of {key!r}: revisions count from 1, and 0 means no record")
    _check_ttl(key, ttl_s, without="for ever")
    return Commit(key=key, value=value, expected=expected, ttl_s=ttl_s, events=_checked_events(key, events))


def checked_extension(key: str, *, events: Sequence[bytes], ttl_s: float | None) -> Extension:
    """Return the extension, or raise `StoreMisused` naming the limit that it breaks."""
    check_key(key)
    _check_ttl(key, ttl_s, without="to leave it as it is")
    return Extension(key=key, events=_checked_events(key, events), ttl_s=ttl_s)


def check_key(key: str) -> None:
    """Raise `StoreMisused` unless every store can hold the key and sort it."""
    if not key:
        raise StoreMisused("a key is not empty")
    check_text(key)


def check_text(text: str) -> None:
    """Raise `StoreMisused` unless the text can stand in a key: it may be empty, as a prefix may."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise StoreMisused(f"key {text!r} is not text: {error.reason}") from error
    if size > MAX_KEY_BYTES:
        raise StoreMisused(f"key {text[:40]!r}… has {size} bytes; a store takes {MAX_KEY_BYTES}")
    if "\x00" in text or "\U0010ffff" in text:
        raise StoreMisused(f"key {text!r} holds U+0000 or U+10FFFF")


def check_count(name: str, count: int) -> None:
    """Raise `StoreMisused` unless there is at least one."""
    if count < 1:
        raise StoreMisused(f"{name} is {count!r}; it is at least 1")


def _checked_events(key: str, events: Sequence[bytes]) -> tuple[bytes, ...]:
    for data in events:
        if len(data) > MAX_EVENT_BYTES:
            raise StoreMisused(f"an event of {key!r} has {len(data)} bytes; a store takes {MAX_EVENT_BYTES}")
    return tuple(events)


def _check_ttl(key: str, ttl_s: float | None, *, without: str) -> None:
    if ttl_s is not None and not (ttl_s > 0 and math.isfinite(ttl_s)):
        raise StoreMisused(f"time to live {ttl_s!r} of {key!r}: give seconds above 0, or None {without}")
