"""What `/metrics` tells of sessions, and what it never does."""

from __future__ import annotations

import asyncio

import pytest
from tests.http.conftest import ALICE
from tests.http.event_talk import talking
from tests.http.session_plugin import new_plugin, sessions_host, tool

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("I3-6-metrics", "C-5-metric-session", "I3-4-everywhere")
async def test_sessions_streams_changes_and_relayed_calls_are_counted_without_a_code() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        await plugin.update(added=[tool("draw")])
        await plugin.update(added=[tool("draw")])
        async with talking(app, f"{plugin.place}/stream", plugin.headers) as stream:
            for path, named in (
                ("/v1/tool-calls", {"name": "add", "session": plugin.code}),
                (f"{plugin.place}/tool-calls", {"tool": "add"}),
            ):
                calling = asyncio.create_task(client.post(path, headers=ALICE, json=named))
                request = await stream.until("tool-request")
                await plugin.answer(request.data["id"], result="done")
                assert (await calling).json()["output"] == "done"
            text = (await client.get("/metrics")).text
        lines = set(text.splitlines())
        assert plugin.code not in text
        assert {
            'antwort_sessions{plugin="attached"} 1.0',
            'antwort_session_streams{role="plugin"} 1.0',
            "antwort_session_created_total 1.0",
            'antwort_session_changes_total{kind="register",outcome="done"} 1.0',
            'antwort_session_changes_total{kind="update",outcome="done"} 1.0',
            'antwort_session_changes_total{kind="update",outcome="tool_exists"} 1.0',
            'antwort_session_relay_requests_total{outcome="answered"} 2.0',
            "antwort_session_relay_duration_seconds_count 2.0",
            'antwort_session_events_total{event="tool-request"} 2.0',
            'antwort_builtin_tool_executions_total{provider="_session",status="success",tool_name="_session"} 2.0',
        } <= lines
