"""A rolling update: some processes write session records that others cannot read yet."""

from __future__ import annotations

import orjson
import pytest
from tests.sessions.fixtures import added, names, turns
from tests.sessions.timed.processes import Process, Three, new_session
from tests.virtual_time import pass_time

from toolplug.errors import StoreRefused
from toolplug.parts.sessions.record import SCHEMA, record_key
from toolplug.parts.sessions.session import Session

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-6-rolling-update")]


async def write_later(process: Process, session: Session, *, schema: int, tool: str) -> None:
    """Write the session's record with one more tool, as a process of another version does."""
    key = record_key(session.code)
    record = await process.store.read(key)
    assert record is not None
    kept = orjson.loads(record.value)
    more = {**kept["tools"][0], "name": tool}
    kept |= {"schema": schema, "new_in_it": True, "tools": [*kept["tools"], more], "revision": kept["revision"] + 1}
    await process.store.commit(key, orjson.dumps(kept), expected=record.revision, ttl_s=600)


async def test_a_session_of_a_later_schema_is_left_to_others_and_every_other_goes_on(
    three: Three, caplog: pytest.LogCaptureFixture
) -> None:
    here, there, _ = three
    session, other = await new_session(here), await new_session(here)
    for process in (here, there):
        for one in (session, other):
            await process.find(one.code)
    await write_later(here, session, schema=SCHEMA + 1, tool="newer")
    await turns()
    await pass_time(5)
    for process in (here, there):
        with pytest.raises(StoreRefused, match=f"has schema {SCHEMA + 1}, and this version of toolplug reads {SCHEMA}"):
            await process.find(session.code)
    assert caplog.text.count("is served by other processes only") == 2
    assert "are not heard" not in caplog.text
    assert session.code not in caplog.text

    record = await here.store.read(record_key(session.code))
    assert record is not None
    assert orjson.loads(record.value)["new_in_it"] is True

    await (await there.find(other.code)).update(added("b"), "more")
    assert "b" in names(await here.find(other.code))

    await write_later(here, session, schema=SCHEMA, tool="older")
    for process in (here, there):
        assert "older" in names(await process.find(session.code))


async def test_a_session_of_a_later_schema_is_not_loaded(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    await write_later(here, session, schema=SCHEMA + 1, tool="newer")
    with pytest.raises(StoreRefused, match="end the rolling update"):
        await there.find(session.code)
