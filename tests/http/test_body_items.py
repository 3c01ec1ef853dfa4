"""Bodies of many items: each list and mapping has a maximum, and what is refused is counted, not built."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from httpx2 import AsyncClient, Response
from tests.cpu_cost import UNBOUNDED, longest_callback
from tests.http.conftest import ALICE, ROOT
from tests.http.session_plugin import new_plugin, sessions_host, tool

pytestmark = pytest.mark.anyio

Send = Callable[[str, bytes], Any]

KEYS = {f"k{number}": 1 for number in range(60_000)}
MANY = b",".join([b"1"] * 1_900_000)


def one_doubled(names: int) -> str:
    """An object as text, whose last key is there already."""
    return json.dumps({f"k{number}": 1 for number in range(names)})[:-1] + ', "k0": 1}'


def found(answer: Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


SESSION: dict[str, tuple[str, bytes, tuple[int, str, str | None]]] = {
    "keys of the environment": (
        "register-tools",
        json.dumps({"tools": [tool("a")], "environment": KEYS}).encode(),
        (422, "too_many", "environment"),
    ),
    "more keys than are read": (
        "register-tools",
        json.dumps({"tools": [], "environment": {f"key-number-{number}": 1 for number in range(200_000)}}).encode(),
        (422, "too_many", None),
    ),
    "tools": ("register-tools", b'{"tools": [%s]}' % b",".join([b"[]"] * 60_000), (422, "too_many", "tools")),
    "more tools than are read": (
        "register-tools",
        b'{"tools": [%s]}' % b",".join([b"{}"] * 300_000),
        (422, "too_many", None),
    ),
    "numbers": ("register-tools", b'{"tools": [%s]}' % MANY, (422, "too_many", None)),
    "long numbers": ("register-tools", b'{"tools": [%s]}' % b",".join([b"9" * 4300] * 66), (422, "too_many", None)),
    "capabilities": (
        "register-tools",
        json.dumps({"tools": [], "capabilities": [{}] * 101}).encode(),
        (422, "too_many", "capabilities"),
    ),
    "removed names": (
        "update-tools",
        json.dumps({"toolUpdates": {"removed": [f"n{number}" for number in range(39_999)] + ["z", "z"]}}).encode(),
        (422, "too_many", "toolUpdates.removed"),
    ),
    "more removed names than are read": (
        "update-tools",
        json.dumps({"toolUpdates": {"removed": [f"n{number}" for number in range(400_000)]}}).encode(),
        (422, "too_many", None),
    ),
    "added": (
        "update-tools",
        json.dumps({"toolUpdates": {"added": [None] * 1001}}).encode(),
        (422, "too_many", "toolUpdates.added"),
    ),
    "unknown keys": ("update-tools", json.dumps(KEYS).encode(), (400, "invalid_request", "k0")),
    "unknown keys inside": (
        "update-tools",
        json.dumps({"toolUpdates": KEYS}).encode(),
        (400, "invalid_request", "toolUpdates.k0"),
    ),
    "wrong items": (
        "update-tools",
        json.dumps({"toolUpdates": {"removed": [1] * 60_000}}).encode(),
        (422, "too_many", "toolUpdates.removed"),
    ),
}


@pytest.mark.requirement("SEC-too-many-items")
@pytest.mark.parametrize("case", SESSION)
async def test_an_application_that_sends_too_many_items_is_refused_before_they_are_read(case: str) -> None:
    path, body, refusal = SESSION[case]
    async with sessions_host() as served:
        plugin = await new_plugin(served.client, tool("a"))
        headers = {**plugin.headers, "Content-Type": "application/json"}
        with longest_callback() as longest:
            answer = await served.client.post(f"{plugin.place}/{path}", headers=headers, content=body)
    assert found(answer) == refusal
    assert longest.units <= UNBOUNDED


CALLS = {
    "as many as are read": (json.dumps(KEYS), "\n/: invalid, too large to explain"),
    "more names": (json.dumps({f"k{number}": 1 for number in range(66_000)}), "\n/: too large to validate"),
    "a name twice": (one_doubled(60_000), "\n/: duplicate key"),
}


@pytest.mark.requirement("SEC-too-many-items")
@pytest.mark.parametrize("case", CALLS)
async def test_arguments_as_text_are_counted_like_a_body(client: AsyncClient, case: str) -> None:
    arguments, reason = CALLS[case]
    with longest_callback() as longest:
        answer = await client.post("/v1/tool-calls", headers=ALICE, json={"name": "echo", "arguments": arguments})
    assert answer.json()["output"].endswith(reason)
    assert longest.units <= UNBOUNDED


@pytest.mark.requirement("SEC-too-many-items")
@pytest.mark.parametrize("kind", ["application/yaml", "application/json"])
async def test_an_imported_document_of_many_parts_holds_up_nobody(client: AsyncClient, kind: str) -> None:
    body = b"[" + b",".join([b"[1]"] * 65_000) + b"]"
    headers = {**ROOT, "Content-Type": kind}
    with longest_callback() as longest:
        answer = await client.post("/api/toolsets/import", headers=headers, content=body)
    assert answer.status_code in {400, 422}
    assert longest.units <= UNBOUNDED


@pytest.mark.requirement("SEC-too-many-items")
async def test_a_message_of_an_mcp_client_is_counted_like_a_body(client: AsyncClient) -> None:
    message = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"x": [%s]}}}'
    headers = {**ALICE, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with longest_callback() as longest:
        answer = await client.post("/mcp", headers=headers, content=message % b",".join([b"1"] * 300_000))
    assert found(answer) == (422, "too_many", None)
    assert longest.units <= UNBOUNDED
