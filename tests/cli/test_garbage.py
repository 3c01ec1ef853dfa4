"""How often a process that serves for long looks for cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from toolplug.cli.serving.over_http import THRESHOLDS, rarely_collected


class Knot:
    """Refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def frozen_again() -> Iterator[None]:
    """Freezes again what the run had frozen (`tests/conftest.py`)."""
    yield
    gc.freeze()


def test_what_stands_at_the_start_is_left_alone_while_it_serves() -> None:
    standing = gc.get_freeze_count()
    with rarely_collected():
        assert gc.get_freeze_count() > standing
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_freeze_count() == 0


def test_the_process_is_given_back_as_it_was() -> None:
    before = gc.get_threshold()
    with rarely_collected():
        pass
    assert gc.get_threshold() == before


def test_garbage_that_comes_while_it_serves_is_still_found() -> None:
    with rarely_collected():
        knot = ref(Knot())
        gc.collect()
        assert knot() is None
