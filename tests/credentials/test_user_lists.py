"""Servers that list their tools to nobody but a user with a token: `sign_in`, and the own list of each user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from httpx2 import AsyncClient
from tests.credentials.oauth_server import LISTING, Accounts, serving_oauth
from tests.credentials.test_sign_in import browser, press, settings

from toolplug import CallContext, Host, Principal, ToolDefinition, ToolUnavailable, open_host
from toolplug.parts.mcp.client import users
from toolplug.parts.mcp.client.connection_strategies import SwitchedConnection
from toolplug.parts.mcp.client.users import SIGN_IN, ListUpdates, UserLists
from toolplug.parts.mcp.discovery.record import FoundTool

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("I38-user-lists")]

ADA, BEN = Principal("ada", "acme"), Principal("ben", "acme")


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


@pytest.fixture
def url(accounts: Accounts) -> Iterator[str]:
    with serving_oauth(accounts) as found:
        yield found


def without_headers(url: str, tmp_path: Path, **more: Any) -> dict[str, Any]:
    """The settings of a host that cannot list the server itself."""
    config = settings(url, tmp_path)
    del config["mcp_servers"]["who"]["headers"]
    config["mcp_servers"]["who"].update(more)
    return config


@asynccontextmanager
async def hosting(config: dict[str, Any]) -> AsyncGenerator[tuple[Host, AsyncClient]]:
    async with open_host(config, environ={}) as host, browser(host) as client:
        async with asyncio.timeout(30):
            while host.servers.servers("acme")[0].record.status in {"never", "discovering"}:
                await asyncio.sleep(0.02)
        yield host, client


def listed(host: Host, who: Principal) -> list[str]:
    return [name for name in host.executor_for(who).catalog if name != "read_result"]


async def call(client: AsyncClient, who: Principal, name: str) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {who.subject}-key"}
    return (await client.post("/v1/tool-calls", json={"name": name}, headers=headers)).json()


async def sign_in(client: AsyncClient, accounts: Accounts, who: Principal) -> dict[str, Any]:
    """Call `sign_in`, press the link that it gives, and call it again."""
    needed = await call(client, who, "who.sign_in")
    assert (needed["status"], needed["metadata"]["code"]) == ("unavailable", "sign_in_needed")
    accounts.user = who.subject
    assert (await press(client, needed["metadata"]["sign_in"]["url"])).status_code == 200
    return await call(client, who, "who.sign_in")


async def test_a_user_is_shown_sign_in_and_then_its_own_list(accounts: Accounts, url: str, tmp_path: Path) -> None:
    async with hosting(without_headers(url, tmp_path)) as (host, client):
        assert listed(host, ADA) == listed(host, BEN) == ["who.sign_in"]
        signed = await sign_in(client, accounts, ADA)
        assert (signed["status"], "whoami" in signed["output"]) == ("success", True)
        assert sorted(listed(host, ADA)) == ["who.of_ada", "who.whoami"]
        assert listed(host, BEN) == ["who.sign_in"]
        assert (await call(client, BEN, "who.of_ada"))["status"] == "unknown_tool"
        assert (await call(client, ADA, "who.whoami"))["output"] == "ada"

        async with browser(host) as other:
            await sign_in(other, accounts, BEN)
            assert listed(host, BEN) == ["who.whoami"]
            assert sorted(listed(host, ADA)) == ["who.of_ada", "who.whoami"]
            assert (await call(other, BEN, "who.whoami"))["output"] == "ben"
            assert (await call(other, BEN, "who.of_ada"))["status"] == "unknown_tool"


async def test_a_user_who_is_connected_needs_no_link_for_its_list(accounts: Accounts, url: str, tmp_path: Path) -> None:
    config = without_headers(url, tmp_path)
    async with hosting(config) as (_, client):
        await sign_in(client, accounts, ADA)
    async with hosting(config) as (host, client):
        assert listed(host, ADA) == ["who.sign_in"]
        assert (await call(client, ADA, "who.sign_in"))["status"] == "success"
        assert sorted(listed(host, ADA)) == ["who.of_ada", "who.whoami"]


async def test_the_list_of_the_operator_is_for_all(accounts: Accounts, url: str, tmp_path: Path) -> None:
    async with hosting(without_headers(url, tmp_path, headers={"Authorization": f"Bearer {LISTING}"})) as (host, _):
        assert listed(host, ADA) == listed(host, BEN) == ["who.whoami"]


@pytest.mark.parametrize("more", [{"policy": "deny"}, {"pin": True}])
async def test_what_is_pinned_or_denied_is_listed_by_the_operator_alone(
    url: str, tmp_path: Path, more: dict[str, object]
) -> None:
    async with hosting(without_headers(url, tmp_path, **more)) as (host, _):
        assert listed(host, ADA) == []


async def until(host: Host, who: Principal, name: str) -> None:
    """Wait until a user is listed a tool."""
    async with asyncio.timeout(60):
        while name not in listed(host, who):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("handshake", [False, True])
async def test_the_lists_of_users_follow_what_the_server_announces(
    accounts: Accounts, tmp_path: Path, handshake: bool
) -> None:
    with serving_oauth(accounts, grows=True, handshake=handshake) as url:
        async with hosting(without_headers(url, tmp_path)) as (host, client), browser(host) as other:
            await sign_in(client, accounts, ADA)
            await sign_in(other, accounts, BEN)
            assert (await call(other, BEN, "who.whoami"))["output"] == "ben"
            assert (await call(client, ADA, "who.grow"))["status"] == "success"
            await until(host, ADA, "who.grown")
            assert "who.of_ada" in listed(host, ADA)
            if handshake:  # told the session of Ada alone
                assert (await call(other, BEN, "who.grow"))["status"] == "success"
            await until(host, BEN, "who.grown")
            assert "who.of_ada" not in listed(host, BEN)
            assert (await call(other, BEN, "who.grown"))["output"] == "ben"


class Reach:
    """Lists one more tool each time; `asking` counts those that are listed at once, and `gone` have no token."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.asking = self.most = 0
        self.gone: set[str] = set()

    async def ask_as(self, context: CallContext, ask: object) -> Any:
        self.asking += 1
        self.most = max(self.most, self.asking)
        await asyncio.sleep(0)
        self.asking -= 1
        self.asked.append(context.principal.subject)
        if context.principal.subject in self.gone:
            raise ToolUnavailable("no token", code="sign_in_needed")
        return [{"name": f"t{len(self.asked)}", "inputSchema": {"type": "object"}}]


async def test_a_storm_of_announcements_lists_a_few_users_at_once_and_once_a_second() -> None:
    lists, reach, pauses, listed_again = UserLists("who"), Reach(), list[float](), list[int]()
    people = [Principal(f"u{number}", "acme") for number in range(20)]
    for who in people:
        lists.keep(who, [found("x")])
    reach.gone.add("u7")
    updates: ListUpdates

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) < 3:
            updates.due(None)
            updates.due(("acme", "u3"))

    updates = ListUpdates(lists, lambda: cast("SwitchedConnection", reach), lambda: listed_again.append(1), pause)
    updates.due(("acme", "nobody"))
    for _ in range(50):
        updates.due(None)
    async with asyncio.timeout(30):
        while len(pauses) < 3:
            await asyncio.sleep(0)
    await updates.aclose()
    assert (len(reach.asked), reach.most) == (60, users.RELISTS_AT_ONCE)
    assert pauses == [users.RELIST_PAUSE_S] * 3
    assert len(listed_again) == 3
    (kept,) = [each for each in lists.union() if each.name == "x"]
    assert lists.lists(people[7], "x", kept.definition.ref.digest), "what cannot be read stays"


def found(name: str, text: str = "") -> FoundTool:
    return FoundTool(ToolDefinition(name=name, description=text).owned_by("mcp", "who"))


def test_lists_are_bounded_by_users_and_by_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MAX_LISTS", 2)
    monkeypatch.setattr(users, "MAX_KEPT_TOOLS", 4)
    lists = UserLists("who")
    for who in ("a", "b", "c"):
        lists.keep(Principal(who), [found("x")])
    assert [lists.has_list(Principal(who)) for who in "abc"] == [False, True, True]
    assert lists.has_list(Principal("b"))  # used after that of c
    lists.keep(Principal("a"), [found("x")])
    assert [lists.has_list(Principal(who)) for who in "abc"] == [True, True, False]
    lists.keep(Principal("d"), [found(str(number)) for number in range(5)])
    assert [lists.has_list(Principal(who)) for who in "bcd"] == [False, False, True]
    assert len(lists.union()) == 5


def test_of_two_definitions_of_a_name_each_user_has_its_own_or_none() -> None:
    lists, one, other = UserLists("who"), found("x", "one"), found("x", "other")
    lists.keep(ADA, [one, found(SIGN_IN)])
    lists.keep(BEN, [other])
    (shown,) = lists.union()
    digest = shown.definition.ref.digest
    assert [lists.lists(who, "x", digest) for who in (ADA, BEN)] == [True, False]
