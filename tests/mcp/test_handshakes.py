"""Clients that have introduced themselves: whose they are, how many there may be, and when they are forgotten."""

from __future__ import annotations

import asyncio

import pytest
from tests.http.jumping_loop import Jump, on_jumping_loop

from toolplug.parts.mcp.serving.mcp_sessions import IDLE_S, Handshake, McpSessions, SessionOwner
from toolplug.parts.mcp.serving.server_endpoint import Client

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-mcp")]

ALICE, BOB = SessionOwner("a", "alice"), SessionOwner("b", "bob")
CLIENT = Client("2025-11-25", {"name": "test"}, {})


async def test_only_its_owner_finds_it_and_nobody_once_it_has_ended() -> None:
    known = McpSessions()
    mine = known.open(ALICE, CLIENT)
    assert known.find(mine.id, ALICE) is mine
    assert known.find(mine.id, BOB) is None
    assert known.find("nobody", ALICE) is None
    known.end(mine)
    assert known.find(mine.id, ALICE) is None


def busy(handshake: Handshake, ended: list[str]) -> None:
    """Let a call and a stream run for the session."""
    handshake.running[1] = lambda: ended.append("call")
    handshake.stream = lambda: ended.append("stream")


async def test_beyond_the_limit_of_its_principal_one_goes_that_nothing_runs_for() -> None:
    ended: list[str] = []
    known = McpSessions(most_of_one=3)
    first, second, third = (known.open(ALICE, CLIENT) for _ in range(3))
    busy(first, ended)
    assert known.find(second.id, ALICE) is second
    fourth = known.open(ALICE._replace(agent="writer"), CLIENT)
    known.open(BOB, CLIENT)
    assert [known.get(each.id) for each in (first, second, third, fourth)] == [first, second, None, fourth]
    assert ended == []


async def test_where_something_runs_for_all_the_least_used_one_goes_with_it() -> None:
    ended: list[str] = []
    known = McpSessions(most_of_one=2)
    first, second = known.open(ALICE, CLIENT), known.open(ALICE, CLIENT)
    busy(first, [])
    busy(second, ended)
    assert known.find(first.id, ALICE) is first
    third = known.open(ALICE, CLIENT)
    assert ended == ["call", "stream"]
    assert [known.get(each.id) for each in (first, second, third)] == [first, None, third]


@pytest.mark.requirement("H-mcp-sessions-apart")
async def test_no_tenant_ends_the_sessions_of_another() -> None:
    known = McpSessions(most=20, most_of_one=6)
    alices = [known.open(ALICE, CLIENT) for _ in range(5)]
    for number in range(200):
        known.open(SessionOwner("b", f"bob {number % 7}"), CLIENT)
    assert [known.get(each.id) for each in alices] == alices
    colleague = known.open(SessionOwner("b", "bea"), CLIENT)
    for _ in range(50):
        known.open(BOB, CLIENT)
    assert known.get(colleague.id) is colleague
    for each in alices:
        known.end(each)
    assert known.open(ALICE, CLIENT).owner == ALICE


def test_one_that_nobody_uses_is_forgotten_but_not_while_something_runs_for_it() -> None:
    async def scenario(jump: Jump) -> None:
        known = McpSessions()
        idle, open_ = known.open(ALICE, CLIENT), known.open(ALICE, CLIENT)
        open_.stream = lambda: None
        jump(IDLE_S)
        assert known.find(idle.id, ALICE) is None
        assert known.find(open_.id, ALICE) is open_

    on_jumping_loop(scenario)


def test_each_is_over_once_however_it_is_forgotten() -> None:
    async def scenario(jump: Jump) -> None:
        over: list[Handshake] = []
        known = McpSessions(most_of_one=3, over=over.append)
        pushed, ended, idle, late = (known.open(ALICE, CLIENT) for _ in range(4))
        known.end(ended)
        known.end(ended)
        assert over == [pushed, ended]
        jump(IDLE_S / 2)
        assert known.find(late.id, ALICE) is late
        for forgotten in ([idle], [idle, late]):
            jump(IDLE_S / 2)
            while over[2:] != forgotten:
                await asyncio.sleep(0)

    on_jumping_loop(scenario)


async def test_nobody_is_looked_after_once_it_has_stopped() -> None:
    known = McpSessions()
    known.open(ALICE, CLIENT)
    known.stop()
    McpSessions().stop()


async def test_a_request_is_called_off_by_its_id_as_it_was_sent() -> None:
    called_off: list[object] = []
    known = McpSessions().open(ALICE, CLIENT)
    known.running[7] = lambda: called_off.append(7)
    known.cancel("7")
    known.cancel(None)
    known.cancel([7])
    assert called_off == []
    known.cancel(7)
    assert called_off == [7]
