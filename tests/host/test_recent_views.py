"""The views that callers ask for with every request."""

from __future__ import annotations

import gc
from weakref import ref

from toolplug.execution.accounting import CallAccounting
from toolplug.execution.live import LiveCatalog
from toolplug.execution.run import UnknownCalls
from toolplug.host.views import RecentViews


def view() -> LiveCatalog:
    return LiveCatalog(UnknownCalls(CallAccounting().counters("_unknown", "_unknown")))


def test_one_key_is_one_view_and_another_key_another() -> None:
    recent = RecentViews()
    first = recent.view("a", view)
    assert recent.view("a", view) is first
    assert recent.view("b", view) is not first


def test_a_view_that_somebody_holds_is_not_made_again_however_many_come_after_it() -> None:
    recent = RecentViews()
    held = recent.view("held", view)
    for number in range(2_000):
        recent.view(number, view)
    assert recent.view("held", view) is held


def test_a_view_that_nobody_holds_goes_once_enough_newer_ones_came() -> None:
    recent = RecentViews()
    forgotten = ref(recent.view("forgotten", view))
    for number in range(2_000):
        recent.view(number, view)
    gc.collect()
    assert forgotten() is None


def test_the_views_of_a_session_go_when_it_ends_and_those_of_others_stay() -> None:
    recent = RecentViews()
    ended, stays = ref(recent.view("ended", view, session="A")), ref(recent.view("stays", view, session="B"))
    recent.view("ended", view, session="A")
    recent.end("A")
    gc.collect()
    assert (ended() is None, stays() is None) == (True, False)
