"""What the form that tries a tool shows after a crash."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from toolplug import Principal
from toolplug_console import call_lines

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[Any]]

ALICE = Principal("alice", "t1", frozenset({"tools:read", "tools:call", "admin"}))
ROOT = Principal("root", "t1", frozenset({"tools:read", "tools:call", "operator"}))


async def crash(caller: Any) -> str:
    """Crash a tool; the path of what is known of it."""
    answer = await caller.client.post("/v1/tool-calls", json={"name": "crash", "arguments": {}})
    return f"/console/crashes/{answer.headers['x-request-id']}/{answer.json()['call_id']}"


@pytest.mark.requirement("I33-dev")
async def test_operators_see_the_whole_trace_where_traces_is_set(serve: Serve) -> None:
    async with serve(ALICE, ROOT, traces=True) as host:
        path = await crash(host.callers["alice"])
        found = await host.callers["root"].client.get(path)
        refused = await host.callers["alice"].client.get(path)
        unknown = await host.callers["root"].client.get(f"{path}x")
    assert "ValueError at" in found.json()["line"]
    assert found.json()["trace"].startswith("Traceback")
    assert found.json()["trace"].endswith("ValueError: a secret text")
    assert (refused.status_code, unknown.status_code) == (403, 404)


async def test_without_traces_it_is_the_line_alone(serve: Serve) -> None:
    async with serve(ROOT) as host:
        found = await host.callers["root"].client.get(await crash(host.callers["root"]))
    assert list(found.json()) == ["line"]
    assert "a secret text" not in found.text


async def test_the_newest_crashes_are_kept(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_lines, "MAX_CRASHES", 2)
    async with serve(ROOT) as host:
        root = host.callers["root"]
        paths = [await crash(root) for _ in range(3)]
        codes = [(await root.client.get(path)).status_code for path in paths]
    assert codes == [404, 200, 200]
