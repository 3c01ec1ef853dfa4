"""Clients that have introduced themselves: whose they are, how many there may be, and when they are forgotten."""

from __future__ import annotations

import asyncio

import pytest
from tests.http.jumping_loop import Jump, on_jumping_loop

from toolplug.mcp.mcp_sessions import IDLE_S, Handshake, McpSessions
from toolplug.mcp.server_endpoint import Client

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-mcp")]

CLIENT = Client("2025-11-25", {"name": "test"}, {})


async def test_only_its_owner_finds_it_and_nobody_once_it_has_ended() -> None:
    known = McpSessions()
    mine = known.open("alice", CLIENT)
    assert known.find(mine.id, "alice") is mine
    assert known.find(mine.id, "bob") is None
    assert known.find("nobody", "alice") is None
    known.end(mine)
    assert known.find(mine.id, "alice") is None


async def test_beyond_the_limit_the_one_that_was_used_longest_ago_goes_with_what_runs_for_it() -> None:
    called_off: list[str] = []
    known = McpSessions(most=2)
    first, second = known.open("alice", CLIENT), known.open("alice", CLIENT)
    second.running[1] = lambda: called_off.append("call")
    second.stream = lambda: called_off.append("stream")
    assert known.find(first.id, "alice") is first
    third = known.open("alice", CLIENT)
    assert called_off == ["call", "stream"]
    assert [known.find(each.id, "alice") for each in (first, second, third)] == [first, None, third]


def test_one_that_nobody_uses_is_forgotten_but_not_while_something_runs_for_it() -> None:
    async def scenario(jump: Jump) -> None:
        known = McpSessions()
        idle, open_ = known.open("alice", CLIENT), known.open("alice", CLIENT)
        open_.stream = lambda: None
        jump(IDLE_S)
        assert known.find(idle.id, "alice") is None
        assert known.find(open_.id, "alice") is open_

    on_jumping_loop(scenario)


def test_each_is_over_once_however_it_is_forgotten() -> None:
    async def scenario(jump: Jump) -> None:
        over: list[Handshake] = []
        known = McpSessions(most=3, over=over.append)
        pushed, ended, idle, late = (known.open("alice", CLIENT) for _ in range(4))
        known.end(ended)
        known.end(ended)
        assert over == [pushed, ended]
        jump(IDLE_S / 2)
        assert known.find(late.id, "alice") is late
        for forgotten in ([idle], [idle, late]):
            jump(IDLE_S / 2)
            while over[2:] != forgotten:
                await asyncio.sleep(0)

    on_jumping_loop(scenario)


async def test_nobody_is_looked_after_once_it_has_stopped() -> None:
    known = McpSessions()
    known.open("alice", CLIENT)
    known.stop()
    McpSessions().stop()


async def test_a_request_is_called_off_by_its_id_as_it_was_sent() -> None:
    called_off: list[object] = []
    known = McpSessions().open("alice", CLIENT)
    known.running[7] = lambda: called_off.append(7)
    known.cancel("7")
    known.cancel(None)
    known.cancel([7])
    assert called_off == []
    known.cancel(7)
    assert called_off == [7]
