"""A bounded mapping drops what was used longest ago."""

from __future__ import annotations

from toolplug.runtime.lru import LeastRecentlyUsed


def test_a_value_that_was_read_outlives_one_that_was_not() -> None:
    recent = LeastRecentlyUsed[str, int](2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)

    assert [key for key in "abc" if key in recent] == ["a", "c"]


def test_a_dropped_value_is_gone_and_another_is_no_error() -> None:
    recent = LeastRecentlyUsed[str, int](2)
    recent.put("a", 1)
    recent.drop("a")
    recent.drop("a")

    assert recent.get("a") is None
