"""Servers on pipes that misbehave: one result for each request, the next one works, and nothing of them stays."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from pathlib import Path

import pytest
from tests.mcp.client.conftest import Opened
from tests.mcp.client.hostile import FRAME

from toolplug.catalog.text import pluralize
from toolplug.parts.mcp.client.child_process import descendants, kill
from toolplug.parts.mcp.client.connection import MAX_TOOLS, BadAnswer, ConnectionFailed, McpAnswer, ServerRefused

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

SOON_S = 20.0
"""For a machine under load; what is shown is that a thing happens at all."""


def said(text: str) -> McpAnswer:
    return McpAnswer([{"type": "text", "text": text}], None, False)


def names(tools: object) -> list[str]:
    assert isinstance(tools, list)
    return [tool["name"] for tool in tools if isinstance(tool, dict) and "name" in tool]


def runs(process: int) -> bool:
    """Whether a process lives; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until_gone(process: int) -> None:
    async with asyncio.timeout(SOON_S):
        while runs(process):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("dies at start", "it ended with exit code 3"),
        ("dies at initialize", "it ended with exit code 5"),
        ("says why", "it ended with exit code 1; it said: the token s3cret-value[31m is wrong"),
    ],
)
@pytest.mark.requirement("H-mcp-dies")
async def test_a_server_that_dies_while_it_is_opened_says_so(hostile_server: Opened, mode: str, reason: str) -> None:
    with pytest.raises(ConnectionFailed) as failed:
        async with hostile_server(mode):
            pass
    assert str(failed.value) == reason


async def test_a_server_that_ends_on_an_unknown_first_request_is_started_again_without(hostile_server: Opened) -> None:
    async with hostile_server("dies at discover") as connection:
        assert connection.version == "2025-11-25"
        assert await connection.call("echo", {"a": 1}, None) == said('{"a": 1}')


@pytest.mark.parametrize("mode", ["dies at call", "dies within an answer"])
@pytest.mark.requirement("H-mcp-dies")
async def test_calls_of_a_server_that_dies_end_and_so_does_the_connection(hostile_server: Opened, mode: str) -> None:
    async with hostile_server(mode) as connection:
        calls = [asyncio.create_task(connection.call("echo", {}, None)) for _ in range(3)]
        async with asyncio.timeout(SOON_S):
            ends = await asyncio.gather(*calls, return_exceptions=True)
            await connection.wait_closed()
        assert [type(end) for end in ends] == [ConnectionFailed] * 3
        assert not connection.open
        with pytest.raises(ConnectionFailed, match="it ended with exit code"):
            await connection.call("echo", {}, None)


@pytest.mark.requirement("H-mcp-dies")
async def test_a_listing_of_a_server_that_dies_ends(hostile_server: Opened) -> None:
    async with hostile_server("dies at list") as connection:
        with pytest.raises(ConnectionFailed):
            await connection.tools()


@pytest.mark.requirement("H-mcp-stubborn")
async def test_a_server_that_dies_while_a_child_of_it_keeps_the_pipes_is_gone_too(
    hostile_server: Opened, tmp_path: Path
) -> None:
    report = tmp_path / "grandchild"
    async with hostile_server("forks and dies", str(report)) as connection:
        with pytest.raises(ConnectionFailed):
            async with asyncio.timeout(SOON_S):
                await connection.call("echo", {}, None)
    await until_gone(int(report.read_text()))


@pytest.mark.requirement("H-mcp-stubborn")
@pytest.mark.parametrize("mode", ["forks", "forks apart"])
async def test_what_a_server_forked_goes_with_it(hostile_server: Opened, tmp_path: Path, mode: str) -> None:
    report = tmp_path / "grandchild"
    async with hostile_server(mode, str(report)) as connection:
        assert await connection.call("echo", {}, None) == said("{}")
        assert runs(int(report.read_text()))
    await until_gone(int(report.read_text()))


@pytest.mark.requirement("H-mcp-stubborn")
async def test_a_server_that_ignores_sigterm_is_killed(hostile_server: Opened) -> None:
    async with hostile_server("stubborn") as connection:
        assert await connection.call("echo", {}, None) == said("{}")


@pytest.mark.requirement("H-mcp-stubborn")
async def test_an_opening_that_is_cancelled_leaves_no_process(hostile_server: Opened) -> None:
    async def opened() -> None:
        async with hostile_server("mute"):
            pass

    opening = asyncio.create_task(opened())
    for _ in range(50):
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("an endless line", "it sent a line of more than 6,291,456 bytes"),
        ("endless garbage", "it sent more than 1,000 lines in a row that are no messages"),
    ],
)
@pytest.mark.requirement("H-mcp-floods")
async def test_a_flood_ends_the_connection_and_says_what_it_was(hostile_server: Opened, mode: str, reason: str) -> None:
    async with hostile_server(mode) as connection:
        with pytest.raises(ConnectionFailed) as failed:
            async with asyncio.timeout(SOON_S):
                await connection.call("echo", {}, None)
        assert str(failed.value) == reason
        await connection.wait_closed()


@pytest.mark.parametrize(
    "mode", ["endless lines", "endless pings", "endless odd news", "an endless line", "endless garbage"]
)
@pytest.mark.requirement("H-mcp-floods")
async def test_while_one_server_floods_another_one_answers(hostile_server: Opened, mode: str) -> None:
    async with hostile_server(mode) as flooding, hostile_server("sane") as sane:
        flood = asyncio.create_task(flooding.call("echo", {}, None))
        for turn in range(20):
            assert await sane.call("echo", {"turn": turn}, None) == said(f'{{"turn": {turn}}}')
        flood.cancel()
        await asyncio.wait({flood})


@pytest.mark.parametrize(
    "mode", ["some garbage", "odd news", "not UTF-8", "other ids", "answers twice", "asks back", "prints"]
)
@pytest.mark.requirement("H-mcp-garbage")
async def test_noise_between_answers_disturbs_no_call(hostile_server: Opened, mode: str) -> None:
    async with hostile_server(mode) as connection:
        for number in range(3):
            assert await connection.call("echo", {"n": number}, None) == said(f'{{"n": {number}}}')
        assert names(await connection.tools()) == ["echo", "other"]


@pytest.mark.parametrize("mode", ["unreadable UTF-8", "a lone surrogate", "5,000 levels", "half an answer"])
@pytest.mark.requirement("H-mcp-garbage")
async def test_an_unreadable_answer_ends_the_call_that_it_names(hostile_server: Opened, mode: str) -> None:
    async with asyncio.timeout(SOON_S), hostile_server(mode) as connection:
        unread, read = await asyncio.gather(
            connection.call("echo", {}, None), connection.call("other", {}, None), return_exceptions=True
        )
        assert (type(unread), str(unread), read) == (BadAnswer, "its answer cannot be read", said("{}"))
        assert await connection.call("other", {"n": 1}, None) == said('{"n": 1}')


@pytest.mark.parametrize("mode", ["no text", "no id"])
@pytest.mark.requirement("H-mcp-garbage")
async def test_an_unreadable_answer_that_names_no_call_ends_all_that_wait(hostile_server: Opened, mode: str) -> None:
    async with asyncio.timeout(SOON_S), hostile_server(mode) as connection:
        calls = [connection.call(name, {}, None) for name in ("other", "other", "echo")]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in ended] == [BadAnswer] * 3
        assert names(await connection.tools()) == ["echo", "other"]


@pytest.mark.requirement("H-mcp-garbage")
async def test_garbage_is_logged_a_few_times_and_never_shown(
    hostile_server: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with hostile_server("some garbage") as connection:
            for _ in range(3):
                await connection.call("echo", {}, None)
    told = [record.getMessage() for record in caplog.records if record.name == "toolplug.mcp.child_process"]
    assert [line.rpartition(" sent ")[2] for line in told] == [
        f"a line that is no message: {pluralize(size, 'byte')}" for size in (1, 4, 2, 2, 1, 4, 2, 2, 1, 4)
    ]
    assert all("hostile.py some garbage' sent" in line for line in told), "several servers may run the same program"


@pytest.mark.requirement("H-mcp-garbage")
async def test_notifications_that_cannot_be_read_are_logged_like_garbage(
    hostile_server: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with hostile_server("odd news") as connection:
            assert await connection.call("echo", {}, None) == said("{}")
    told = [record for record in caplog.records if record.levelno >= logging.INFO and record.name != "asyncio"]
    assert [record.name for record in told] == ["toolplug.mcp.child_process"] * 10
    assert not any(record.exc_info for record in told)


@pytest.mark.requirement("H-mcp-floods")
async def test_a_flood_on_stderr_costs_ten_lines(hostile_server: Opened, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="toolplug.mcp.child_process"):
        async with hostile_server("floods stderr") as connection:
            assert await connection.call("echo", {}, None) == said("{}")
    said_of = [record.getMessage().partition(" floods stderr': ")[2] for record in caplog.records]
    assert [len(text) for text in said_of] == [500, *[1] * 9]


@pytest.mark.parametrize("mode", ["a byte order mark", "no line end"])
async def test_an_answer_in_a_line_that_begins_or_ends_oddly_is_read(hostile_server: Opened, mode: str) -> None:
    async with hostile_server(mode) as connection:
        assert await connection.call("echo", {"a": 1}, None) == said('{"a": 1}')


@pytest.mark.requirement("H-mcp-garbage")
async def test_an_answer_that_does_not_follow_the_protocol_is_a_bad_answer_of_that_request(
    hostile_server: Opened,
) -> None:
    async with hostile_server("sloppy answers") as connection:
        with pytest.raises(BadAnswer, match="its answer cannot be read"):
            await connection.call("echo", {}, None)
        assert connection.open
        assert names(await connection.tools()) == ["echo", "other"]


async def test_an_error_of_the_protocol_is_a_refusal_with_a_clean_text(hostile_server: Opened) -> None:
    async with hostile_server("refuses") as connection:
        with pytest.raises(ServerRefused) as refused:
            await connection.call("echo", {}, None)
        assert (refused.value.code, str(refused.value)) == (-32602, "no[1m way")


async def test_a_sloppy_tool_loses_no_other(hostile_server: Opened) -> None:
    async with hostile_server("sloppy tools") as connection:
        tools = await connection.tools()
    assert list(tools)[2:] == [
        {"name": 7},
        "tool",
        None,
        {"inputSchema": []},
        {"name": "odd", "inputSchema": {"type": 3}},
    ]


async def test_a_tool_whose_header_is_none_is_left_out(hostile_server: Opened) -> None:
    async with hostile_server("headers that are none") as connection:
        assert connection.version == "2026-07-28"
        assert names(await connection.tools()) == ["echo", "other", "in Place"]


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("pages for ever", "its list of tools has more than 100 pages"),
        ("pages in a circle", "its list of tools comes back to a page that it began with"),
        ("no list", "its list of tools is no list"),
    ],
)
@pytest.mark.requirement("H-mcp-pages")
async def test_a_list_without_end_is_a_bad_answer(hostile_server: Opened, mode: str, reason: str) -> None:
    async with hostile_server(mode) as connection:
        with pytest.raises(BadAnswer) as bad:
            await connection.tools()
        assert str(bad.value) == reason
        assert await connection.call("echo", {}, None) == said("{}")


@pytest.mark.requirement("H-mcp-garbage")
async def test_what_is_nested_deeper_than_json_is_read_costs_no_other_tool_and_no_waiting(
    hostile_server: Opened,
) -> None:
    async with hostile_server("deep") as connection:
        assert names(await connection.tools()) == ["echo", "other", "deep"]
        with pytest.raises(BadAnswer, match="its answer is nested too deeply"):
            await connection.call("echo", {}, None)
        assert connection.open


@pytest.mark.requirement("H-mcp-pages")
async def test_pages_are_read_until_there_are_more_tools_than_are_kept(hostile_server: Opened) -> None:
    async with hostile_server("too many tools") as connection:
        assert len(await connection.tools()) == MAX_TOOLS + 2


@pytest.mark.requirement("H-limit-frame")
async def test_an_answer_of_one_frame_passes_and_a_byte_more_does_not(hostile_server: Opened) -> None:
    async with hostile_server("a full frame") as connection:
        answer = await connection.call("echo", {}, None)
        assert FRAME - 200 < len(str(answer.content[0]["text"])) < FRAME
    async with hostile_server("more than a frame") as connection:
        with pytest.raises(ConnectionFailed, match="it sent a line of more than"):
            await connection.call("echo", {}, None)


async def test_progress_is_reported_in_order(hostile_server: Opened) -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    async with hostile_server("progress") as connection:
        await connection.call("echo", {}, lambda *progress: heard.append(progress))
    assert heard == [(1.0, 2.0, None), (2.0, 2.0, None)]


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(hostile_server: Opened) -> None:
    async with hostile_server("remembers") as connection:
        call = asyncio.create_task(connection.call("echo", {}, None))
        for _ in range(20):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await connection.call("other", {}, None) == said("[3]")


@pytest.mark.requirement("H-mcp-floods")
async def test_cancelling_calls_of_a_server_that_does_not_read_takes_no_time(hostile_server: Opened) -> None:
    async with hostile_server("reads no more") as connection:
        calls = [asyncio.create_task(connection.call("echo", {"x": "x" * 200_000}, None)) for _ in range(10)]
        for _ in range(50):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        for _ in range(50):
            await asyncio.sleep(0)
        assert all(call.cancelled() for call in calls)


@pytest.mark.requirement("H-mcp-storm")
async def test_each_change_of_a_storm_is_only_counted(hostile_server: Opened) -> None:
    changes: list[None] = []
    async with hostile_server("a storm", on_change=lambda: changes.append(None)) as connection:
        assert await connection.call("echo", {}, None) == said("{}")
        async with asyncio.timeout(SOON_S):
            while len(changes) < 500:
                await asyncio.sleep(0)


async def test_no_descriptor_stays_open(hostile_server: Opened) -> None:
    async with hostile_server("sane"):
        pass
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with hostile_server("sane") as connection:
            await connection.tools()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_processes_of_a_server_are_found_without_a_look_at_all_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[str] = []
    listdir = os.listdir

    def seen(path: Path) -> list[str]:
        looked_at.append(str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", seen)
    script = "sh -c 'sleep 60 & echo; wait' & setsid sleep 60 & wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the innermost one runs
        found = descendants(process.pid)
        kill(found)
        process.kill()
    assert len(found) in (3, 4), "setsid may still be about to fork"
    assert set(looked_at) == {f"/proc/{each}/task" for each in (process.pid, *(child.pid for child in found))}
    assert descendants(process.pid) == []
