"""Records that something else has overwritten: each counts as none and is logged, and nothing else suffers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE, ROOT, as_holder, client_of, sample_package, settings
from tests.http.session_plugin import new_plugin

from toolplug import Host, Principal, open_host
from toolplug.http import create_app

__all__ = ["sample_package"]

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("H-trust-damaged-record")]

GARBAGE = (b"\x00\xffgarbage", b"{}", b"[1]", b'{"tenant": 7}')
ADMIN = Principal("root", scopes=frozenset({"admin"}))


@pytest.fixture
def whole(sample_package: None, tmp_path: Path) -> dict[str, Any]:
    return settings(
        store=f"sqlite:///{tmp_path}/state.db",
        providers={"sample": {"enabled": True, "tools": {"echo": "ask"}}},
        toolsets={"samples": {"prefix": "s", "from": "provider:sample"}},
        agents={"researcher": {"toolsets": ["samples"]}},
    )


async def overwrite(host: Host, prefix: str, value: bytes) -> list[str]:
    """Overwrite every record whose key begins so, and return their keys."""
    keys = list(await host.store.keys(prefix))
    assert keys, prefix
    for key in keys:
        await host.store.commit(key, value)
    return keys


async def asked(client: AsyncClient, text: str, who: dict[str, str]) -> str:
    body = {"name": "echo", "arguments": {"text": text}}
    return (await client.post("/v1/tool-calls", headers=who, json=body)).json()["metadata"]["approval"]["id"]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_the_other_approvals_are_listed_and_decided(
    whole: dict[str, Any], garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    judge = as_holder("judge-key")
    async with open_host(whole, environ={}) as host, client_of(create_app(host)) as client:
        damaged = await asked(client, "one", ROOT)
        (key,) = await overwrite(host, "approval/", garbage)
        other = await asked(client, "two", ROOT)
        listed = await client.get("/v1/approvals", headers=judge)
        assert [item["id"] for item in listed.json()["approvals"]] == [other]
        body = {"decision": "approve"}
        assert (await client.post(f"/v1/approvals/{damaged}", headers=judge, json=body)).status_code == 404
        assert (await client.post(f"/v1/approvals/{other}", headers=judge, json=body)).status_code == 200
        named = {"name": "echo", "arguments": {"text": "one"}, "approval": damaged}
        again = (await client.post("/v1/tool-calls", headers=ROOT, json=named)).json()
        assert "there is no such approval" in again["output"]
        assert f"record {key} cannot be read" in caplog.text


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_damaged_session_is_not_found_and_the_others_are(
    whole: dict[str, Any], garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_host(whole, environ={}) as host, client_of(create_app(host)) as client:
        damaged = await new_plugin(client)
        await overwrite(host, "session/", garbage)
        other = await new_plugin(client)
    async with open_host(whole, environ={}) as host, client_of(create_app(host)) as client:
        for headers in (ALICE, damaged.headers):
            answer = await client.get(f"{damaged.place}/metadata", headers=headers)
            assert answer.status_code in (404, 401), answer.text
        assert (await client.get(f"{damaged.place}/metadata", headers=ALICE)).json()["error"]["code"] == (
            "session_not_found"
        )
        assert (await client.get(f"{other.place}/metadata", headers=ALICE)).status_code == 200
        sessions = (await client.get("/api/sessions", headers=ALICE)).json()["sessions"]
        assert [item["code"] for item in sessions] == [other.code]
    assert "cannot be read" in caplog.text
    assert damaged.code not in caplog.text


@pytest.mark.parametrize("garbage", GARBAGE[:2])
async def test_the_agent_of_a_damaged_allowlist_has_no_toolsets_until_they_are_set_again(
    whole: dict[str, Any], garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def listed(host: Host) -> bool:
        return bool(list(host.executor_for(ADMIN, agent="researcher").catalog))

    async with open_host(whole, environ={}) as host:
        assert listed(host)
        await host.allow("researcher", ["samples"])
        agent, changed = host.executor_for(ADMIN, agent="researcher"), asyncio.Event()
        agent.subscribe(lambda diff: changed.set())
        (key,) = await overwrite(host, "allowlist/", garbage)
        await asyncio.wait_for(changed.wait(), 60)
        assert not listed(host), "a running host hears of it"
    caplog.clear()
    async with open_host(whole, environ={}) as host:
        assert not listed(host), "the list of the file may be a wider one"
        assert f"{key}: its agent is allowed no toolsets until they are set again" in caplog.text
        assert "cannot be read" in host.toolsets.allowlist("default", "researcher").origin
        other = Principal("eve", "t2", frozenset({"admin"}))
        assert list(host.executor_for(other, agent="researcher").catalog), "it is that of one tenant"
        await host.allow("researcher", ["samples"])
        assert listed(host)


async def test_a_damaged_queued_call_is_not_found_and_hinders_no_start(whole: dict[str, Any]) -> None:
    async with open_host(whole, environ={}) as host, client_of(create_app(host)) as client:
        plugin = await new_plugin(client)
        place = f"{plugin.place}/tool-calls"
        queued = await client.post(place, headers=ALICE, json={"tool": "echo", "arguments": {}, "wait": False})
        await overwrite(host, "queued/", b"garbage")
        answer = await client.get(f"{place}/{queued.json()['id']}", headers=ALICE)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "request_not_found")
    async with open_host(whole, environ={}) as host, client_of(create_app(host)) as client:
        assert (await client.get("/api/sessions", headers=ALICE)).status_code == 200
