"""The hooks `approval_waiting` and `approval_decided`: each ticket is told once, also over processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import client_of
from tests.http.test_grants import AUTH, PERSON, call, decide

from toolplug import FunctionProvider, Principal, RevokedGrant, Ticket, open_host, tool
from toolplug.http import create_app
from toolplug.parts.approvals.grants import Grants
from toolplug.parts.approvals.running import Approvals
from toolplug.sqlite.store import SqliteStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I35-hooks")]


class Ops(FunctionProvider):
    """Two tools that wait, and what a plugin is told."""

    @tool
    async def query(self, table: str) -> str:
        """Query a table."""
        return table

    async def start(self, site: object) -> None:
        self.told: list[tuple[str, str, str | None]] = []

    async def approval_waiting(self, ticket: Ticket) -> None:
        if ticket.arguments == {"table": "bad"}:
            raise ValueError("a secret text")
        if ticket.arguments == {"table": "slow"}:
            await asyncio.sleep(3600)
        self.told.append((ticket.id, ticket.state, ticket.reason))

    def approval_decided(self, ticket: Ticket) -> None:
        self.told.append((ticket.id, ticket.state, ticket.reason))

    def grant_revoked(self, grant: RevokedGrant) -> None:
        self.told.append((grant.id, f"{grant.tool} of {grant.subject}, by {grant.made_by}", grant.revoked_by))


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def served(store: str) -> AsyncIterator[tuple[Ops, AsyncClient]]:
    rule = {"policy": "ask", "grants": {"most": "1h", "scope": "caller"}}
    entry = {"type": f"{__file__}:Ops", "enabled": True, "tools": {"query": rule}}
    settings: dict[str, Any] = {"store": store, "auth": AUTH, "providers": {"ops": entry}}
    async with open_host(settings, environ={}) as host, client_of(create_app(host)) as client:
        yield host.plugins.get_plugin("ops"), client


async def test_a_plugin_is_told_of_each_ticket_once_and_a_bad_one_costs_nobody_a_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served("memory://") as (ops, client):
        asked = await call(client, table="orders")
        await call(client, table="orders")
        await decide(client, asked, reason="yes")
        ticket = asked["metadata"]["approval"]["id"]
        await eventually(lambda: len(ops.told) == 2)
        assert ops.told == [(ticket, "waiting", None), (ticket, "approved", "yes")]
        bad, slow = await call(client, table="bad"), await call(client, table="slow")
        assert [bad["status"], slow["status"]] == ["denied", "denied"]
        assert (await decide(client, slow)).status_code == 200
        await eventually(lambda: "raised ValueError" in caplog.text)
        assert "a secret text" not in caplog.text


@pytest.mark.requirement("I35-hooks-replicas")
async def test_of_processes_that_share_a_store_the_one_that_acts_tells_and_for_the_command_line_one_of_them(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/state.db?shared=true"
    async with AsyncExitStack() as stack:
        (one, client), (two, other) = [await stack.enter_async_context(served(url)) for _ in range(2)]
        first, second = await call(client, table="a"), await call(other, table="b")
        await decide(other, first)
        await eventually(lambda: (len(one.told), len(two.told)) == (1, 2))
        assert [state for _, state, _ in two.told] == ["waiting", "approved"]
        async with SqliteStore(tmp_path / "state.db", shared=True) as store:
            ticket = second["metadata"]["approval"]["id"]
            await Approvals(store).decide(ticket, "deny", Principal("operator"), decided="command")
        await eventually(lambda: len(one.told) + len(two.told) == 4)
        assert (ticket, "denied", None) in [*one.told, *two.told]
        await asyncio.sleep(0.3)
        assert len(one.told) + len(two.told) == 4


async def test_a_plugin_is_told_who_has_taken_a_grant_back() -> None:
    async with served("memory://") as (ops, client):
        asked = await call(client, table="orders")
        await decide(client, asked, grant={"scope": "caller", "for": "1h"})
        (grant,) = (await client.get("/v1/grants", headers=PERSON)).json()["grants"]
        gone = await client.delete(f"/v1/grants/{grant['id']}", headers=PERSON)
        again = await client.delete(f"/v1/grants/{grant['id']}", headers=PERSON)
        assert (gone.status_code, again.status_code) == (204, 404)
        await eventually(lambda: len(ops.told) == 3)
        assert ops.told[-1] == (grant["id"], "query of agent, by person", "person")


@pytest.mark.requirement("I35-hooks-replicas")
async def test_of_processes_that_share_a_store_one_tells_what_the_command_line_has_taken_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db?shared=true"
    async with AsyncExitStack() as stack:
        (one, client), (two, _) = [await stack.enter_async_context(served(url)) for _ in range(2)]
        await decide(client, await call(client, table="a"), grant={"scope": "caller", "for": "1h"})
        (grant,) = (await client.get("/v1/grants", headers=PERSON)).json()["grants"]
        async with SqliteStore(tmp_path / "state.db", shared=True) as store:
            await Grants(store).revoke(grant["id"], Principal("operator"), decided="command")
        await eventually(lambda: len(one.told) + len(two.told) == 3)
        assert (grant["id"], "query of agent, by person", "operator") in [*one.told, *two.told]
        await asyncio.sleep(0.3)
        assert len(one.told) + len(two.told) == 3
