"""`toolplug serve` with its store on Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from tests.cli.process import serving, toolplug

from toolplug.client import Application

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.requirement("I17-3-redis-host")]

PATIENCE_S = 60
BURNERS = 4 * (os.cpu_count() or 1)


async def called(url: str, code: str) -> str:
    """Return the output of the session's tool."""
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        call = {"tool": "double", "arguments": {"number": 21}}
        answer = (await client.post(f"/api/sessions/{code}/tool-calls", json=call)).raise_for_status()
        output: str = answer.json()["output"]
        return output


async def test_a_host_that_was_killed_comes_back_with_its_sessions(start_server, tmp_path: Path) -> None:
    server = start_server("--appendonly", "yes")
    (tmp_path / "providers.yaml").write_text(f"store: redis://127.0.0.1:{server.port}/0?prefix=e2e\n")
    with serving(folder=tmp_path) as first:
        url = first.url
        app = Application(url, plugin_type="table")

        @app.tool
        async def double(number: int) -> int:
            """Return twice the number."""
            return 2 * number

        async with app:
            assert await called(url, app.code) == "42"
            first.send(signal.SIGKILL)
            first.end()
            server.kill()
            server.start()
            port = url.rpartition(":")[2]
            with serving("--port", port, folder=tmp_path) as second:
                assert second.url == url
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        if "attached" in toolplug("sessions", "show", app.code, folder=tmp_path).out:
                            break
                        await asyncio.sleep(0.1)
                    assert await called(url, app.code) == "42"


async def test_a_host_calls_the_tools_of_a_session_at_another_one(start_server, tmp_path: Path) -> None:
    server = start_server()
    (tmp_path / "providers.yaml").write_text(f"store: redis://127.0.0.1:{server.port}\n")
    with serving(folder=tmp_path) as first, serving(folder=tmp_path) as second:
        app = Application(first.url, plugin_type="table")

        @app.tool
        async def double(number: int) -> int:
            """Return twice the number."""
            return 2 * number

        async with app:
            assert await called(second.url, app.code) == "42"
            assert await called(first.url, app.code) == "42"


async def test_requests_that_need_a_stopped_server_are_answered_with_503(start_server, tmp_path: Path) -> None:
    server = start_server()
    (tmp_path / "providers.yaml").write_text(f"store: redis://127.0.0.1:{server.port}\n")
    with serving(folder=tmp_path) as host:
        async with httpx2.AsyncClient(base_url=host.url, timeout=PATIENCE_S) as client:
            assert (await client.post("/api/sessions")).status_code == 201
            server.signal(signal.SIGSTOP)
            refused = await client.post("/api/sessions")
            assert refused.status_code == 503
            assert str(server.port) not in refused.text
            server.signal(signal.SIGCONT)
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    if (await client.post("/api/sessions")).status_code == 201:
                        break
                    await asyncio.sleep(0.05)


async def test_a_host_waits_for_a_server_that_starts_later(start_server, tmp_path: Path) -> None:
    server = start_server()
    server.kill()
    (tmp_path / "providers.yaml").write_text(f"store: redis://127.0.0.1:{server.port}\n")
    with serving(folder=tmp_path) as host:
        host.wait_for("the store cannot be opened yet: the Redis server does not answer")
        server.start()
        assert httpx2.get(f"{host.url}/readyz", timeout=PATIENCE_S).status_code == 200


async def test_a_signal_ends_the_wait_for_a_server(start_server, tmp_path: Path) -> None:
    server = start_server()
    server.kill()
    (tmp_path / "providers.yaml").write_text(f"store: redis://127.0.0.1:{server.port}\n")
    with serving(folder=tmp_path) as host:
        host.wait_for("the store cannot be opened yet")
        host.send(signal.SIGTERM)
        assert host.end() == 0


@pytest.mark.requirement("H-time-loop")
def test_a_host_starts_on_a_busy_machine(start_server, tmp_path: Path) -> None:
    server = start_server()
    (tmp_path / "providers.yaml").write_text(
        f"providers: {{hello: {{enabled: true}}}}\nstore: redis://127.0.0.1:{server.port}\n"
    )
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BURNERS)]
    try:
        with serving(folder=tmp_path) as host:
            host.wait_for("toolplug listening on ", patience_s=10 * PATIENCE_S)
            assert host.call("hello").json()["output"] == "Hello, world!"
            assert not [line for line in host.lines if "does not answer" in line]
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
