"""Refused requests: what the audit trail says of them, and how a peer that guesses credentials is slowed down."""

from __future__ import annotations

import json
import logging
from hashlib import sha256

import pytest
from httpx2 import AsyncClient, Response
from tests.http.conftest import ALICE, ROOT, as_holder, client_of

from toolplug import Host
from toolplug.http import create_app
from toolplug.http.auth.authentication import CredentialBrake
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.anyio


def code(answer: Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.requirement("C-5-brake")
async def test_after_ten_wrong_credentials_a_peer_waits_and_a_valid_key_does_not(host: Host) -> None:
    app = create_app(host)
    wrong = [as_holder("guess"), {"Authorization": "Bearer guess"}, {"Authorization": f"Bearer tps_{'A' * 40}"}]
    paths = ["/v1/tools", "/v1/samples", "/api/sessions"]
    async with client_of(app, peer="192.0.2.1") as guesser, client_of(app, peer="192.0.2.2") as other:
        for number in range(10):
            answer = await guesser.get(paths[number % 3], headers=wrong[number % 3])
            assert code(answer) == (401, "authentication_required"), number
        for path in paths:
            answer = await guesser.get(path, headers=as_holder("guess"))
            assert code(answer) == (429, "too_many_failures")
            assert 0 < int(answer.headers["Retry-After"]) <= 60
            assert answer.json()["error"]["type"] == "too_many_requests"
            assert (await guesser.get(path, headers=ALICE)).status_code == 200, "a valid key is never delayed"
            assert code(await other.get(path, headers=as_holder("guess"))) == (401, "authentication_required")
        assert code(await guesser.get("/v1/tools")) == (401, "authentication_required"), "a missing one is no guess"


@pytest.mark.requirement("C-5-brake")
async def test_missing_credentials_and_those_that_lack_a_scope_are_no_guesses(client: AsyncClient) -> None:
    for _ in range(12):
        assert code(await client.get("/v1/tools")) == (401, "authentication_required")
        assert code(await client.get("/v1/explain?tool=x", headers=ALICE)) == (403, "insufficient_scope")
    assert code(await client.get("/v1/tools", headers=as_holder("guess"))) == (401, "authentication_required")


def test_the_wait_is_a_minute_and_what_failed_a_minute_ago_counts_no_more() -> None:
    clock = ManualClock()
    brake = CredentialBrake(clock)
    for _ in range(9):
        assert brake.count_failure("a") is None
    clock.now += 60
    for _ in range(10):
        assert brake.count_failure("a") is None
    assert brake.count_failure("a") == 60
    clock.now += 59.5
    assert brake.count_failure("a") == 0.5
    clock.now += 0.5
    assert brake.count_failure("a") is None


def test_however_many_peers_fail_few_are_remembered() -> None:
    brake = CredentialBrake(ManualClock())
    for number in range(10_001):
        brake.count_failure(f"peer-{number}")
    for _ in range(9):
        brake.count_failure("peer-0")
    assert brake.count_failure("peer-0") is None, "the first one was forgotten, and has failed ten times since"
    assert brake.count_failure("peer-0") == 60


@pytest.mark.requirement("C-5-audit-origin")
async def test_audit_lines_of_requests_name_the_peer_and_the_credential_by_its_fingerprint(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="toolplug.audit")
    async with client_of(create_app(host), peer="192.0.2.7") as client:
        await client.get("/v1/tools", headers=as_holder("guessed-key"))
        await client.get("/v1/tools")
        created = await client.post("/api/sessions", headers=ALICE)
        await client.post("/v1/providers/sample/disable", headers=ROOT)
        plugin = {"Authorization": f"Bearer {created.json()['pluginToken']}"}
        register = f"/api/sessions/{created.json()['code']}/register-tools"
        await client.post(
            register, headers=plugin, json={"pluginType": "x", "tools": [], "capabilities": [], "environment": {}}
        )
    lines = [json.loads(record.message) for record in caplog.records if record.name == "toolplug.audit"]

    def fingerprint(credential: str) -> str:
        return sha256(credential.encode()).hexdigest()[:16]

    assert [(line["event"], line["peer"], line["credential"]) for line in lines] == [
        ("http.request", "192.0.2.7", fingerprint("guessed-key")),
        ("http.request", "192.0.2.7", ""),
        ("session.create", "192.0.2.7", fingerprint("alice-key")),
        ("provider.disable", "192.0.2.7", fingerprint("root-key")),
        ("session.register", "192.0.2.7", fingerprint(created.json()["pluginToken"])),
    ]
    assert "guessed-key" not in caplog.text
