"""Sessions with hostile schemas come to a running host and go: its memory is back afterwards."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from tests.cli.process import serving
from tests.figures import FIGURE
from tests.hostile_corpus import FAMILIES, hostile_pairs

pytestmark = pytest.mark.judge

FIRST = 20
"""Sessions until the bounded caches of a host are full: 134 MiB after 10, 147 after 20, 150 after 30 to 60."""
SESSIONS = 30
GROWTH = 1.1


@pytest.mark.long(40)
@pytest.mark.timeout(900)
@pytest.mark.requirement("C-3-validation-bounded")
def test_memory_is_back_when_sessions_with_hostile_schemas_have_gone(
    tmp_path: Path, write: Callable[..., Path], record_property: Callable[[str, object], None]
) -> None:
    write("providers: {}\nstore: sqlite:///state.db")
    with serving(folder=tmp_path) as service, httpx2.Client(base_url=service.url, timeout=60) as client:
        for number in range(FIRST):
            visit(client, number)
        before = resident_mib(service.process.pid)
        for number in range(FIRST, FIRST + SESSIONS):
            visit(client, number)
        after = resident_mib(service.process.pid)
    record_property(
        FIGURE, f"memory after {SESSIONS} hostile sessions / before: {after / before:.2f} ({after:.0f} MiB)"
    )
    assert after <= before * GROWTH


def visit(client: httpx2.Client, number: int) -> None:
    """A session that registers a tool for each family, has each called, and is deleted."""
    tools, calls = [], []
    for index, (_, schema, arguments) in enumerate(hostile_pairs(len(FAMILIES), seed=number)):
        tools.append({"name": f"t{index}", "description": "A tool", "inputSchema": schema})
        calls.append({"tool": f"t{index}", "arguments": arguments, "timeoutMs": 100})
    created = client.post("/api/sessions", json={}).raise_for_status().json()
    place = f"/api/sessions/{created['code']}"
    token = {"Authorization": f"Bearer {created['pluginToken']}"}
    registered = client.post(
        f"{place}/register-tools", headers=token, json={"pluginType": "table", "tools": tools}
    ).raise_for_status()
    assert registered.json()["registeredTools"]
    statuses = {client.post(f"{place}/tool-calls", json=call).json().get("status") for call in calls}
    assert "invalid_arguments" in statuses
    client.delete(place).raise_for_status()


def resident_mib(process: int) -> float:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20
