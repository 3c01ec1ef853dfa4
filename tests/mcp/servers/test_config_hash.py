"""Which configurations start the same server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from toolplug.execution.plans import ToolRule
from toolplug.execution.resolved_limits import Limits
from toolplug.parts.mcp.client.server_config import ClientCredentials, Command, Endpoint, Server, config_hash
from toolplug.parts.mcp.discovery.record import ServerName

KEY = b"k" * 32
COMMAND = Command(command="uvx", args=("time", "-v"), env={"A": "1", "B": "2"}, cwd=Path("/srv"))
ENDPOINT = Endpoint(url="https://a.example/mcp", headers={"X-A": "1", "X-B": "2"})
LOGIN = ClientCredentials(client_id="me", client_secret="s")


def hashed(transport: Command | Endpoint, key: bytes = KEY) -> str:
    return config_hash(Server(name=ServerName("time"), transport=transport), key)


@pytest.mark.requirement("C-8-hash", "DISC-hash")
@pytest.mark.parametrize(
    ("transport", "other"),
    [
        (COMMAND, replace(COMMAND, command="npx")),
        (COMMAND, replace(COMMAND, args=("-v", "time"))),
        (COMMAND, replace(COMMAND, env={"A": "1"})),
        (COMMAND, replace(COMMAND, env={"A": "1", "B": "3"})),
        (COMMAND, replace(COMMAND, env={"A": "1", "C": "2"})),
        (COMMAND, replace(COMMAND, cwd=None)),
        (COMMAND, ENDPOINT),
        (ENDPOINT, replace(ENDPOINT, url="https://b.example/mcp")),
        (ENDPOINT, replace(ENDPOINT, headers={"X-A": "1", "X-B": "3"})),
        (ENDPOINT, replace(ENDPOINT, oauth=LOGIN)),
        (replace(ENDPOINT, oauth=LOGIN), replace(ENDPOINT, oauth=replace(LOGIN, client_secret="t"))),
    ],
)
def test_whatever_starts_another_server_gives_another_hash(
    transport: Command | Endpoint, other: Command | Endpoint
) -> None:
    assert hashed(transport) != hashed(other)


@pytest.mark.requirement("C-8-hash")
def test_the_order_of_variables_and_headers_makes_no_difference() -> None:
    assert hashed(COMMAND) == hashed(replace(COMMAND, env={"B": "2", "A": "1"}))
    assert hashed(ENDPOINT) == hashed(replace(ENDPOINT, headers={"x-b": "2", "X-A": "1"}))


@pytest.mark.requirement("C-8-hash")
def test_rules_and_limits_make_no_difference() -> None:
    server = Server(name=ServerName("time"), transport=COMMAND)
    ruled = replace(
        server,
        enabled=False,
        pin=True,
        policy="deny",
        tools={"now": ToolRule(policy="ask")},
        limits=Limits.model_validate({"timeout": "3s"}),
        discovery_timeout_s=3,
    )
    assert config_hash(server, KEY) == config_hash(ruled, KEY)


@pytest.mark.requirement("C-8-hash")
def test_nobody_can_try_out_secrets_without_the_key() -> None:
    assert hashed(COMMAND) != hashed(COMMAND, b"another key")
