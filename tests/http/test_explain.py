"""`GET /v1/explain`: why a call would run, or not."""

from __future__ import annotations

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE, ROOT, client_of, settings

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("C-5-explain", "C-5-explain-admin", "I2-3-explain-effective")
async def test_every_gate_and_knob_is_told_with_what_decided(sample_package: None) -> None:
    rules = {"fails": "deny", "echo": {"limits": {"timeout": "5s"}}}
    providers = {"sample": {"enabled": True, "tools": rules}}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        assert (await client.get("/v1/explain?tool=echo", headers=ALICE)).status_code == 403
        echo = (await client.get("/v1/explain?tool=echo", headers=ROOT)).json()
        assert (echo["name"], echo["found"], echo["callable"], echo["provider"]) == ("echo", True, True, "sample")
        assert all(gate["verdict"] == "passes" and gate["origin"] for gate in echo["gates"])
        timeout = next(setting for setting in echo["settings"] if setting["name"] == "timeout")
        assert timeout["value"].startswith("5")
        fails = (await client.get("/v1/explain?tool=fails", headers=ROOT)).json()
        refused = [gate["gate"] for gate in fails["gates"] if gate["verdict"] == "refuses"]
        assert (fails["callable"], refused) == (False, ["policy"])


@pytest.mark.requirement("C-5-explain-nearest")
async def test_an_unknown_name_is_told_the_nearest_ones(client: AsyncClient) -> None:
    answer = (await client.get("/v1/explain?tool=ecko", headers=ROOT)).json()
    assert (answer["found"], answer["callable"], answer["nearest"][0]) == (False, False, "echo")


async def test_a_request_without_tool_or_with_an_unknown_session_is_refused(client: AsyncClient) -> None:
    for path in ("/v1/explain", "/v1/explain?tool="):
        answer = await client.get(path, headers=ROOT)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tool")
    unknown = await client.get("/v1/explain?tool=echo&session=ABCDEFGH", headers=ROOT)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "session_not_found")
