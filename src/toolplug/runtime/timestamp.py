"""The one way in which times are written for people and programs: in logs, audit lines, answers and tables."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as ISO 8601 in UTC, with milliseconds: `2026-11-24T14:30:00.250Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
