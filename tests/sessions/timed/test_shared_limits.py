"""Limits of sessions that hold for all processes together."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest
from tests.faulty_store import evenly
from tests.sessions.fixtures import LIMITS, T1, T2, added
from tests.sessions.timed.processes import new_session, refusal, three_processes
from tests.virtual_time import pass_time

from toolplug.errors import ApiError, QuotaExceeded, StoreUnavailable
from toolplug.host.quotas.settings import QuotaLimits, Quotas
from toolplug.parts.sessions.service import SessionCreated
from toolplug.parts.sessions.tools.negotiation import ToolChanges

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-2-limits")]


async def test_updates_are_counted_at_all_processes() -> None:
    async with three_processes(replace(LIMITS, max_updates_per_minute=6)) as three:
        session = await new_session(three[0])
        sessions = [session, *[await process.find(session.code) for process in three[1:]]]
        together = [sessions[number % 3].update(added(f"t{number}"), "new") for number in range(12)]
        done = await asyncio.gather(*together, return_exceptions=True)
        refused = [error for error in done if isinstance(error, ApiError)]
        assert [error.code for error in refused] == ["too_many_updates"] * 6
        assert sessions[0].revision == 7
        assert refused[0].retry_after_s == pytest.approx(60, abs=1)
        await pass_time(61)
        for one in sessions[:2]:
            await one.update(ToolChanges(removed=("a",)) if one is session else added("last"), "again")


async def test_sessions_of_all_processes_count_for_the_maximum() -> None:
    async with three_processes(replace(LIMITS, max_sessions=4)) as three:
        first = await new_session(three[0])
        for process in (three[0], three[1], three[2]):
            await new_session(process)
        await pass_time(11)
        for process in three:
            with pytest.raises(ApiError) as error:
                await process.sessions.create(T1)
            assert refusal(error) == "too_many_sessions"
        await three[1].sessions.end(await three[1].find(first.code), T1)
        await pass_time(11)
        await new_session(three[2])


async def test_sessions_of_all_processes_count_for_quotas() -> None:
    quotas = Quotas(tenant=QuotaLimits(sessions=3))
    async with three_processes(replace(LIMITS, quotas=quotas)) as three:
        for process in three:
            await process.sessions.create(T1)
        await pass_time(11)
        for process in three:
            with pytest.raises(QuotaExceeded):
                await process.sessions.create(T1)
            await process.sessions.create(T2)


@pytest.mark.requirement("I17-2-session-quota")
@pytest.mark.parametrize("quotas", [Quotas(tenant=QuotaLimits(sessions=6)), Quotas(key=QuotaLimits(sessions=6))])
@pytest.mark.parametrize("pace", [{}, evenly(3, 0), evenly(0, 3)], ids=["at once", "late", "answered late"])
async def test_sessions_created_at_once_at_all_processes_do_not_pass_the_quota_together(
    quotas: Quotas, pace: dict[str, tuple[int, int]]
) -> None:
    async with three_processes(replace(LIMITS, quotas=quotas)) as three:
        for process in three:
            process.store.pace = pace
        for _ in range(2):  # the second time no process looks: it has just counted
            many = [three[number % 3].sessions.create(T1) for number in range(30)]
            outcomes = await asyncio.gather(*many, return_exceptions=True)
            created = [outcome for outcome in outcomes if not isinstance(outcome, QuotaExceeded)]
            assert [outcome for outcome in created if isinstance(outcome, BaseException)] == []
            assert len(created) == 6
            for number, (session, _) in enumerate(cast("list[SessionCreated]", created)):
                process = three[number % 3]
                await process.sessions.end(await process.find(session.code), T1)
            await pass_time(1)


@pytest.mark.requirement("I17-2-session-quota")
async def test_a_session_that_could_not_be_stored_leaves_its_place_after_half_a_minute() -> None:
    quotas = Quotas(tenant=QuotaLimits(sessions=1))
    async with three_processes(replace(LIMITS, quotas=quotas)) as (here, there, _):
        commits = 0

        def fails(operation: str) -> bool:
            nonlocal commits
            commits += operation == "commit"
            return operation == "commit" and commits == 2  # the record of the session, after the place

        here.store.fails = fails
        with pytest.raises(StoreUnavailable):
            await here.sessions.create(T1)
        for process in (here, there):
            with pytest.raises(QuotaExceeded):
                await process.sessions.create(T1)
        await pass_time(31)
        await there.sessions.create(T1)


@pytest.mark.requirement("I17-2-session-quota")
async def test_short_sessions_that_have_expired_leave_their_places() -> None:
    quotas = Quotas(tenant=QuotaLimits(sessions=1))
    async with three_processes(replace(LIMITS, quotas=quotas)) as three:
        for process in three:
            await process.sessions.create(T1, ttl_s=1)
            await pass_time(3)
