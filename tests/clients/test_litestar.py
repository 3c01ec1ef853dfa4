"""A real application of Litestar, whose mounts do not say their path, serves a host with right addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from time import sleep

import pytest
from httpx2 import Client, TransportError
from tests.clients.environments import PROGRAMS, environment
from tests.kept_port import kept_port
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.requirement("I32-unsaid-prefix")]

TRIES = 100
"""A tenth of a second each; an application starts in two seconds."""


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of the running application."""
    [packages] = environment("litestar").glob("lib/*/site-packages")
    places = os.pathsep.join([str(packages), str(ROOT / "src")])
    with kept_port() as port:
        command = [sys.executable, PROGRAMS / "mount_in_litestar.py", str(port)]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": places}) as process:
            try:
                with Client(base_url=f"http://127.0.0.1:{port}") as client:
                    for tried in count():
                        try:
                            client.get("/own").raise_for_status()
                            break
                        except TransportError:
                            assert process.poll() is None
                            assert tried < TRIES
                            sleep(0.1)
                    yield client
            finally:
                process.terminate()


def test_every_address_below_a_mount_of_litestar_is_right(client: Client) -> None:
    root = f"{client.base_url}/tools".replace("//tools", "/tools")
    assert client.get("/own").text == "own"
    assert client.get("/tools/v1/hello").json() == {"greeting": "Hello, default!"}
    created = client.post("/tools/api/sessions").json()
    place = f"{root}/api/sessions/{created['code']}"
    assert (created["mcpUrl"], created["streamUrl"]) == (f"{place}/mcp", f"{place}/stream")
    assert client.get(f"{place}/metadata").status_code == 200
    initialize = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize}
    answer = client.post(created["mcpUrl"], json=asked, headers={"accept": "application/json, text/event-stream"})
    assert (answer.status_code, "serverInfo" in answer.text) == (200, True)
    with client.stream("GET", created["streamUrl"]) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
    document = client.get("/tools/openapi.json").json()
    assert document["servers"] == [{"url": root}]
    called = client.post(f"{root}/v1/tools/hello", json={"name": "Ada"})
    assert called.json() == {"output": "Hello, Ada!"}
    assert client.get("/tools/v1/openapi.json").json()["servers"] == [{"url": "/tools"}]
    assert 'href="/tools/v1/tools"' in client.get("/tools").text
