"""`toolplug sessions tail`: the log of a session, then what happens."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from tests.cli.conftest import Run
from tests.cli.lending import READ, lending, lent
from tests.cli.process import PATIENCE_S, TOOLPLUG

from toolplug.client import SessionOver
from toolplug.parts.sessions.commands.sessions import event_line
from toolplug.parts.sessions.streams.events import StoredSessionEvent
from toolplug.parts.sessions.tools.negotiation import ToolChanges

Write = Callable[..., Path]

FILE = "providers: {}\nstore: sqlite:///./state.db\n"
CHANGES = [ToolChanges(added=[READ]), ToolChanges(removed=["write"], modified=[{**READ, "description": "Read."}])]
ENDED = "the session was ended; create a new one with POST /api/sessions"


@pytest.fixture
def config(write: Write) -> Path:
    return write(FILE)


@asynccontextmanager
async def tailing(folder: Path, *arguments: str) -> AsyncIterator[Process]:
    """The real command, killed at the end of the block if it has not ended by then."""
    process = await asyncio.create_subprocess_exec(
        TOOLPLUG, "sessions", "tail", *arguments, cwd=folder, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().rstrip("\n")


@pytest.mark.requirement("C-10-sessions", "I3-6-cli", "DYN-UX-debug")
def test_the_log_of_a_session_that_is_over_is_told_with_its_end(run: Run, config: Path) -> None:
    code = lent(config, changes=CHANGES, reason="two\nlines\x1b[2J\u202e", end=True)
    done = run("sessions", "tail", code)
    assert (done.code, done.err) == (0, f"{ENDED}\n")
    said = [line.split(maxsplit=3) for line in done.out.splitlines()]
    assert [(event, text) for _, event, _, text in said] == [
        ("tool-availability-update", "revision 1: +write (registered)"),
        ("tool-availability-update", "revision 2: +read (two lines[2J)"),
        ("tool-availability-update", "revision 3: -write ~read (two lines[2J)"),
    ]
    ids = [int(line[0]) for line in said]
    assert ids == sorted(set(ids))
    later = run("sessions", "tail", code, "--after", str(ids[1]))
    assert later.out == done.out.splitlines(keepends=True)[2]


@pytest.mark.requirement("C-10-sessions", "C-10-json")
def test_json_is_one_event_a_line_as_the_host_answers_it(run: Run, config: Path) -> None:
    code = lent(config, changes=CHANGES[:1], reason="more", end=True)
    done = run("sessions", "tail", code, "--json")
    registered, updated, over = map(json.loads, done.out.splitlines())
    assert registered["data"]["revision"] == 1
    assert (updated["event"], updated["data"]["updates"]) == (
        "tool-availability-update",
        {"added": [READ], "removed": [], "modified": []},
    )
    assert over == {"event": "error", "data": {"code": "session_ended", "message": ENDED}}


@pytest.mark.requirement("C-10-sessions")
def test_a_position_that_the_log_does_not_hold_is_said(run: Run, config: Path) -> None:
    code = lent(config, end=True)
    missed = "the log does not hold event 999; all that it holds follows"
    done = run("sessions", "tail", code, "--after", "999")
    assert (done.code, len(done.out.splitlines()), done.err) == (0, 1, f"{missed}\n{ENDED}\n")
    first = json.loads(run("sessions", "tail", code, "--after", "999", "--json").out.splitlines()[0])
    assert first == {"event": "resync", "data": {"message": missed}}
    assert run("sessions", "tail", code, "--after", "-1").code == 2


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.requirement("C-10-sessions", "I3-6-cli", "DYN-UX-debug")
async def test_events_are_told_as_they_come_until_the_session_ends(config: Path, tmp_path: Path) -> None:
    async with lending(config) as diary, tailing(tmp_path, diary.code) as process:
        assert "+diary.write +fails (registered)" in await line_of(process)
        assert (await line_of(process)).endswith(" attached")
        diary.application.remove("fails", reason="it never works")
        assert (await line_of(process)).endswith("revision 2: -fails (it never works)")
        async with httpx2.AsyncClient(base_url=diary.url, timeout=PATIENCE_S) as client:
            body = {"tool": "diary.write", "arguments": {"text": "a secret"}}
            assert (await client.post(f"/api/sessions/{diary.code}/tool-calls", json=body)).status_code == 200
            request = await line_of(process)
            assert "tool-request" in request
            assert "diary.write, until 20" in request
            assert "secret" not in request
            assert (await client.delete(f"/api/sessions/{diary.code}")).status_code == 204
        with pytest.raises(SessionOver):
            await diary.application.serve()
        out, err = await process.communicate()
        assert (process.returncode, out, err.decode()) == (0, b"", f"{ENDED}\n")


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.requirement("C-10-sessions", "C-10-exit-codes")
async def test_ctrl_c_is_a_good_end(config: Path, tmp_path: Path) -> None:
    async with lending(config) as diary, tailing(tmp_path, diary.code, "--json") as process:
        assert json.loads(await line_of(process))["event"] == "tool-availability-update"
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")


@pytest.mark.requirement("C-10-sessions")
@pytest.mark.parametrize(
    ("event", "data", "line"),
    [
        (
            "tool-request",
            {"id": "req_1", "tool": "write", "deadline": "2026-11-22T02:08:32.234Z", "attempt": 2},
            "write, attempt 2, until 2026-11-22T02:08:32.234Z (req_1)",
        ),
        ("tool-cancelled", {"id": "req_1", "reason": "timeout"}, "timeout (req_1)"),
        (
            "plugin-status",
            {"sessionCode": "ABCDEFGH", "status": "detached", "timestamp": "2026-11-22T02:08:32.234Z"},
            "2026-11-22T02:08:32.234Z detached",
        ),
        ("of-tomorrow", {"said": "something"}, '{"said":"something"}'),
    ],
)
def test_every_kind_of_event_is_a_line(event: str, data: dict[str, object], line: str) -> None:
    assert event_line(StoredSessionEvent(7, event, json.dumps(data).encode())) == f"     7  {event:<24}  {line}"
