"""What a commit sends to other processes."""

from __future__ import annotations

import json
from contextlib import aclosing

import pytest

from toolplug.errors import StoreError
from toolplug.stores.store import INLINE_BYTES, Change, Event, Missed
from toolplug_postgres.notifications import notifications
from toolplug_postgres.server import parse_url
from toolplug_postgres.store import PostgresStore

ME, OTHER, THIRD = "0000aaaa", "0000bbbb", "0000cccc"


def sent(*changes: tuple[Change, set[str | None]]) -> dict[str, list[str]]:
    """Channel → payloads."""
    found: dict[str, list[str]] = {}
    for channel, payload in notifications("tools", ME, changes):
        found.setdefault(channel, []).append(payload)
    return found


@pytest.mark.requirement("C-12-postgres-laws")
def test_a_change_goes_to_those_that_need_to_hear_of_it() -> None:
    change = Change("key", 7, b"value", (Event(3, b"event"),))
    text = f'{{"by":"{ME}","changes":[["key",7,"dmFsdWU=",[[3,"ZXZlbnQ="]]]]}}'
    assert sent((change, {None})) == {"tools": [text]}
    assert sent((change, {None, OTHER})) == {"tools": [text]}
    assert sent((change, {OTHER, THIRD})) == {f"tools.{OTHER}": [text], f"tools.{THIRD}": [text]}
    assert sent((change, {ME})) == {}
    assert sent((change, {"x" * 60})) == {}


@pytest.mark.requirement("C-12-postgres-laws")
def test_a_payload_has_many_changes_and_never_more_than_postgresql_takes() -> None:
    small = [(Change(f"key {number}", number, b"v" * 100, ()), {None}) for number in range(200)]
    payloads = sent(*small)["tools"]
    assert 2 < len(payloads) < 10
    heard = [change for payload in payloads for change in json.loads(payload)["changes"]]
    assert [change[0] for change in heard] == [change.key for change, _ in small]
    largest, longest = b"\x00" * INLINE_BYTES, "é" * 256
    events = tuple(Event(2**62 + number, b"e" * 100) for number in range(40))
    for change, kept in (
        (Change(longest, 2**62, largest, ()), [True, True]),
        (Change(longest, 2**62, largest, events), [True, False]),
        (Change("key", 1, None, events), [False, True]),
        (Change("key", 0, None, ()), [False, True]),
    ):
        (payload,) = sent((change, {None}))["tools"]
        assert len(payload.encode()) < 8000
        ((_, _, value, told),) = json.loads(payload)["changes"]
        assert [value is not None, told is not None] == kept


@pytest.mark.anyio
@pytest.mark.judge
@pytest.mark.needs("pg_createcluster")
@pytest.mark.requirement("C-12-postgres-laws")
async def test_a_change_elsewhere_comes_with_its_bytes_and_only_where_it_is_sent(url: str) -> None:
    one, other, third = (PostgresStore(parse_url(url)) for _ in range(3))
    async with one, other, third, aclosing(other.watch("")) as heard, aclosing(third.watch("")) as unheard:
        assert await anext(heard) == await anext(unheard) == Missed()
        first = await one.commit("key", b"value", events=[b"event"], to=other.id)
        change = await anext(heard)
        assert isinstance(change, Change)
        assert change.events is not None
        assert change == Change("key", first, b"value", (Event(change.events[0].id, b"event"),))
        last = await one.commit("key", b"x" * (INLINE_BYTES + 1))
        assert await anext(heard) == await anext(unheard) == Change("key", last, None, ())
        with pytest.raises(StoreError):
            await one.commit("key", b"lost", expected=0)
