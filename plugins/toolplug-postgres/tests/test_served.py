"""`toolplug serve` with its records in PostgreSQL."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from httpx2 import AsyncClient
from tests.cli.process import serving, toolplug
from tests.kept_port import kept_port
from tests.postgres_server import QUOTED, PostgresServer

from toolplug.client import Application

pytestmark = [pytest.mark.judge, pytest.mark.needs("pg_createcluster"), pytest.mark.anyio]


@pytest.mark.requirement("C-12-postgres-served")
async def test_a_session_is_there_after_its_host_was_killed(url: str, tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text(f"store: {url}\nproviders: {{}}\n")
    rows: list[str] = []
    with kept_port() as port:
        host = f"http://127.0.0.1:{port}"
        app = Application(host, plugin_type="table")

        @app.tool
        async def add_row(name: str) -> int:
            """Add a row to the table and return how many there are."""
            rows.append(name)
            return len(rows)

        async def added(name: str) -> str:
            async with AsyncClient(base_url=host, timeout=30) as model:
                call = {"tool": "add_row", "arguments": {"name": name}}
                answer = await model.post(f"/api/sessions/{app.code}/tool-calls", json=call)
            return answer.json()["output"]

        with serving("--port", str(port), folder=tmp_path) as first:
            assert first.url == host
            await app.__aenter__()
            assert await added("otter") == "1"
            first.send(signal.SIGKILL)
            first.end()
        # The lease of the one that was killed ends after six seconds.
        with serving("--port", str(port), folder=tmp_path) as second:
            assert second.url == host
            assert await added("heron") == "2"
            await app.__aexit__(None, None, None)
            second.send(signal.SIGTERM)
            assert second.end() == 0
            assert QUOTED not in "\n".join([*first.lines, *second.lines])


@pytest.mark.requirement("C-12-postgres-url", "C-12-postgres-away")
def test_check_names_what_is_wrong_with_the_server(server: PostgresServer, tmp_path: Path) -> None:
    config = tmp_path / "providers.yaml"
    config.write_text(f"store: {server.url('missing')}\nproviders: {{}}\n")
    done = toolplug("doctor", folder=tmp_path)
    assert 'database "missing" does not exist' in done.out + done.err
    config.write_text(f"store: {server.url(pool='5')}\nproviders: {{}}\n")
    done = toolplug("check", folder=tmp_path)
    assert done.code != 0
    assert "unknown option 'pool'" in done.out + done.err
    assert QUOTED not in done.out + done.err
