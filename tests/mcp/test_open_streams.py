"""Streams without an end of their own: how they are kept, checked and given up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.http.conftest import ALICE, ROOT, client_of
from tests.http.jumping_loop import Jump, on_jumping_loop
from tests.http.session_plugin import Json, new_plugin, sessions_host, tool
from tests.mcp.stream_talk import COMMENT, listening

from toolplug import open_host
from toolplug.http import create_app
from toolplug.http.event_stream import STUCK_S
from toolplug.parts.mcp.http.endpoint import RECHECK_S, SILENT_S

pytestmark = [pytest.mark.requirement("C-5-mcp")]

BOB = {"X-API-Key": "bob-key"}


def test_a_quiet_stream_says_something_every_15_seconds(era: str) -> None:
    async def scenario(jump: Jump) -> None:
        async with sessions_host() as (_, app, client), listening(app, client, era, ALICE) as stream:
            for _ in range(3):
                jump(SILENT_S)
                assert await stream.next() == COMMENT

    on_jumping_loop(scenario)


@pytest.mark.requirement("C-5-scope-call")
def test_a_stream_ends_within_a_minute_of_its_callers_key(era: str, tmp_path: Path) -> None:
    keys: list[Json] = [
        {"key": "root-key", "subject": "root", "scopes": ["admin", "operator"]},
        {"key": "bob-key", "subject": "bob", "tenant": "t1"},
        {"key": "alice-key", "subject": "alice", "tenant": "t1"},
    ]
    path = tmp_path / "providers.yaml"

    def write(kept: list[Json]) -> None:
        path.write_text(json.dumps({"store": "memory://", "auth": {"api_keys": kept}}))

    async def scenario(jump: Jump) -> None:
        async with open_host(path, environ={}) as host:
            app = create_app(host)
            async with (
                client_of(app) as client,
                client_of(app) as other,
                listening(app, client, era, ALICE) as gone,
                listening(app, other, era, BOB) as kept,
            ):
                write(keys[:2])
                assert (await other.post("/v1/reload", headers=ROOT)).status_code == 200
                for _ in range(int(RECHECK_S / SILENT_S)):
                    assert not gone.over.is_set()
                    jump(SILENT_S)
                    assert await kept.next() == COMMENT
                assert set(map(str, await gone.rest())) <= {str(COMMENT)}
                jump(SILENT_S)
                assert await kept.next() == COMMENT

    write(keys)
    on_jumping_loop(scenario)


@pytest.mark.requirement("H-stream-slow")
def test_a_connection_that_takes_nothing_for_five_minutes_is_given_up(era: str) -> None:
    async def scenario(jump: Jump) -> None:
        async with sessions_host() as (_, app, client):
            plugin = await new_plugin(client, tool("add"))
            async with listening(app, client, era, ALICE, f"{plugin.place}/mcp") as dead:
                dead.taking.clear()
                await plugin.update(removed=["add"])
                waited_s = 0.0
                while not dead.over.is_set():
                    jump(SILENT_S)
                    waited_s += SILENT_S
                    await asyncio.sleep(0)
                    assert waited_s <= 10 * STUCK_S
                assert waited_s > STUCK_S

    on_jumping_loop(scenario)
