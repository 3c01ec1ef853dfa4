"""What the store keeps of ten thousand users who have signed in, their tokens' own length apart (CREDENTIALS.md)."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from toolplug.catalog.call import Principal
from toolplug.execution.user_auth import AuthOwner
from toolplug.host.keys.host_key import Sealer
from toolplug.parts.credentials.records import TokenRecords, UserConnection, UserTokens, user_key
from toolplug.sqlite.store import SqliteStore

USERS = 10_000
BYTES_EACH = 1024
SHORT = {"access": "a", "refresh": "r"}
OWNER = AuthOwner("mcp", "jira", "https://jira.example.com/mcp")
ISSUER = "https://login.example.com/realms/company"


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.requirement("I38-size")
async def test_a_connection_of_a_user_takes_at_most_a_kilobyte(tmp_path: Path) -> None:
    key = secrets.token_bytes(32)
    sealer = Sealer(lambda: [key], lambda: None, "credentials")

    async def sealing() -> Sealer:
        return sealer

    file = tmp_path / "state.db"
    tokens = UserTokens(
        **SHORT,
        client_id="https://tools.example.com/connect/client.json",
        token_endpoint=f"{ISSUER}/protocol/openid-connect/token",
        revocation_endpoint=f"{ISSUER}/protocol/openid-connect/revoke",
        resource=OWNER.url,
        renewed_at=1_800_000_000.123,
    )
    async with SqliteStore(file) as store:
        records = TokenRecords(store, sealing)
        for number in range(USERS):
            who = Principal(f"user-{number}@company.example.com", "company")
            connection = UserConnection(
                tenant=who.tenant,
                subject=who.subject,
                kind=OWNER.kind,
                key=OWNER.key,
                issuer=ISSUER,
                scope="openid read write",
                connected_at=1_800_000_000.123,
                expires_at=1_800_003_600.123,
            )
            await records.write(user_key(OWNER, who), OWNER, connection, tokens, expected=0)
    size = sum(each.stat().st_size for each in tmp_path.iterdir())
    assert size / USERS <= BYTES_EACH
