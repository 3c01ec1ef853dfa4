"""Credentials that callers bring themselves: for MCP servers of both eras, and for any provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.credentials.who_server import Sent, WhoServer, serving_who

from toolplug import (
    CallContext,
    ConfigError,
    FunctionProvider,
    Host,
    Principal,
    ToolCall,
    ToolResult,
    open_host,
    tool,
)
from toolplug.host.file.configuration import read_configuration
from toolplug.packages.entry_points import find_installed
from toolplug.parts.mcp.client.users import IDLE_S, UserConnections

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

HEADER = "X-Toolplug-Credential-search"
AUTH = {"header": "Authorization", "format": "Bearer {}", "from": "credential:search"}


@pytest.fixture(params=[False, True], ids=["stateless", "sessions"])
def server(request: pytest.FixtureRequest) -> WhoServer:
    return WhoServer(handshake=request.param)


@pytest.fixture
def url(server: WhoServer) -> Iterator[str]:
    with serving_who(server) as found:
        yield found


@asynccontextmanager
async def hosting(url: str, **entry: object) -> AsyncGenerator[Host]:
    """A host whose server has been listed."""
    entry = {"url": url, "prefix": "who", "user_auth": AUTH, **entry}
    async with open_host({"store": "memory://", "mcp_servers": {"who": entry}}) as host:
        async with asyncio.timeout(20):
            while "who.whoami" not in host.executor_for(Principal("ada")).catalog:
                await asyncio.sleep(0.01)
        yield host


async def call(host: Host, subject: str, token: str | None, name: str = "who.whoami", **more: Any) -> ToolResult:
    me = Principal(subject, scopes=frozenset({"tools:call"}))
    given = {} if token is None else {"search": token}
    context = CallContext(me, credentials=given, **more)
    return await host.executor_for(me).execute(ToolCall("1", name), context)


@pytest.mark.requirement("I38-server")
async def test_each_call_is_sent_with_the_credential_of_its_own_caller(server: WhoServer, url: str) -> None:
    async with hosting(url, headers={"X-Key": "of-the-operator"}) as host:
        before = len(server.sent)
        results = await asyncio.gather(*(call(host, f"user-{n}", f"token-{n}") for n in range(20)))
        assert [result.output for result in results] == [f"Bearer token-{n}" for n in range(20)]
        assert {each.key for each in server.sent[:before]} == {"of-the-operator"}  # it serves the list alone
        assert {each.key for each in server.sent[before:]} == {None}
        assert None not in server.of("tools/call")


@pytest.mark.requirement("I38-connections")
async def test_one_connection_serves_all_where_a_connection_is_no_session_else_one_each(
    server: WhoServer, url: str, request: pytest.FixtureRequest
) -> None:
    async with hosting(url) as host:
        server.sent.clear()
        for subject in ("ada", "ben", "ada", "ben"):
            assert (await call(host, subject, f"of-{subject}")).output == f"Bearer of-{subject}"
        if "sessions" in request.node.callspec.id:
            assert server.of("initialize") == ["Bearer of-ada", "Bearer of-ben"]
        else:
            assert [each.method for each in server.sent].count("server/discover") == 1
            # Nothing is sent on behalf of the one who came first but its own requests.
            assert server.of("tools/call") == ["Bearer of-ada", "Bearer of-ben"] * 2
            assert {each.authorization for each in server.sent if each.method != "tools/call"} == {"Bearer of-ada"}


@pytest.mark.requirement("I38-connections")
@pytest.mark.parametrize("server", [True], ids=["sessions"], indirect=True)
async def test_the_connection_of_one_user_ends_when_it_is_idle(
    server: WhoServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = UserConnections.__init__.__kwdefaults__
    assert defaults["idle_s"] == IDLE_S
    monkeypatch.setitem(defaults, "idle_s", 0.05)
    async with hosting(url) as host:
        server.sent.clear()
        async with asyncio.timeout(60):
            while len(server.of("initialize")) < 2:
                assert (await call(host, "ada", "of-ada")).output == "Bearer of-ada"
                await asyncio.sleep(0.2)
        assert {*server.of("initialize")} == {"Bearer of-ada"}


@pytest.mark.requirement("I38-needed")
async def test_without_a_credential_the_call_says_which_header_is_missing(server: WhoServer, url: str) -> None:
    async with hosting(url) as host:
        # One that begins with a blank is no header's value: over HTTP nobody sends it.
        for given in (None, "", "no\nheader", " blank", "blank "):
            result = await call(host, "ada", given)
            assert (result.status, result.metadata["code"]) == ("unavailable", "credential_needed")
            assert result.metadata["credential"] == {"header": HEADER}
            assert HEADER in result.output
        assert server.of("tools/call") == []


@pytest.mark.requirement("I38-needed")
async def test_a_refused_credential_is_said_and_costs_no_other_caller_anything(server: WhoServer, url: str) -> None:
    async with hosting(url) as host:
        server.refused.add("Bearer of-ada")
        for _ in range(3):
            refused = await call(host, "ada", "of-ada")
            assert refused.metadata["code"] == "credential_needed"
            assert f"refuses the credential of the header {HEADER}" in refused.output
            assert "of-ada" not in str(refused)
        assert (await call(host, "ben", "of-ben")).output == "Bearer of-ben"
        assert (await call(host, "ada", "new")).output == "Bearer new"


@pytest.mark.requirement("I38-needed")
@pytest.mark.parametrize("status", [400, 403, 431])
async def test_a_server_that_lets_one_caller_not_in_is_not_down_for_others(
    server: WhoServer, url: str, status: int
) -> None:
    async with hosting(url) as host:
        server.refused, server.refusal = {"Bearer of-eve"}, status
        for _ in range(3):
            refused = await call(host, "eve", "of-eve")
            assert (refused.status, "does not let this caller in" in refused.output) == ("unavailable", True)
        assert (await call(host, "ben", "of-ben")).output == "Bearer of-ben"


@pytest.mark.requirement("I38-needed")
async def test_a_call_that_was_not_sent_is_not_replayed_once_there_is_a_credential(url: str) -> None:
    async with hosting(url) as host:
        assert (await call(host, "ada", None, idempotency_key="k")).metadata["code"] == "credential_needed"
        assert (await call(host, "ada", "mine", idempotency_key="k")).output == "Bearer mine"


async def test_a_server_that_wants_a_token_for_everything_is_called_over_a_connection_of_its_callers() -> None:
    server = WhoServer(closed=True)
    with serving_who(server) as url:
        async with hosting(url, headers={"Authorization": "Bearer of-the-operator"}) as host:
            server.sent.clear()
            assert (await call(host, "ada", "of-ada")).output == "Bearer of-ada"
            assert (await call(host, "ben", "of-ben")).output == "Bearer of-ben"
            assert server.sent == [
                Sent("server/discover", "Bearer of-ada", None),
                Sent("tools/call", "Bearer of-ada", None),
                Sent("tools/call", "Bearer of-ben", None),
            ]


class Shop(FunctionProvider):
    """Acts as its caller, and has another provider's tool called."""

    @tool
    async def mine(self, context: CallContext) -> str:
        """Say whose credential it has."""
        return await context.credential()

    @tool
    async def through(self, context: CallContext) -> str:
        """Call the tool of a provider without user_auth."""
        return (await context.tools.execute(ToolCall("2", "plain"))).output


class Plain(FunctionProvider):
    """Has no user_auth."""

    @tool
    async def plain(self, context: CallContext) -> str:
        """Try to have a credential."""
        return await context.credential()


@pytest.mark.requirement("I38-provider")
async def test_a_provider_has_the_credential_of_its_own_entry_and_no_other_has_it() -> None:
    shop = {"enabled": True, "user_auth": {"from": "credential:search"}}
    config = {"store": "memory://", "providers": {"shop": shop}}
    async with open_host(config, providers={"shop": Shop, "plain": Plain}) as host:
        assert (await call(host, "ada", "of-ada", "mine")).output == "of-ada"
        missing = await call(host, "ada", None, "mine")
        assert (missing.status, missing.metadata["credential"]) == ("unavailable", {"header": HEADER})
        nested = await call(host, "ada", "of-ada", "through")
        assert "the entry of its provider has no user_auth" in nested.output
        assert "of-ada" not in nested.output


@pytest.mark.requirement("I38-scope")
async def test_two_people_behind_one_subject_never_get_each_others_replay() -> None:
    shop = {"enabled": True, "user_auth": {"from": "credential:search"}}
    async with open_host({"store": "memory://", "providers": {"shop": shop}}, providers={"shop": Shop}) as host:
        for who in ("ada", "ben", "ada"):
            assert (await call(host, "shared", f"of-{who}", "mine", idempotency_key="k")).output == f"of-{who}"


WRONG = [
    ({"from": "search"}, "user_auth.from"),
    ({}, "user_auth"),
    ({"from": "credential:search", "format": "Bearer"}, "user_auth.format"),
    ({"from": "credential:search", "format": "{} {}"}, "user_auth.format"),
    ({"from": "credential:search", "header": "A B"}, "user_auth.header"),
    ({"form": "credential:search"}, "user_auth.form"),
]


@pytest.mark.parametrize(("auth", "path"), WRONG)
@pytest.mark.parametrize("section", ["mcp_servers", "providers"])
def test_a_wrong_user_auth_is_named_with_its_place(section: str, auth: dict[str, str], path: str) -> None:
    entry = {"url": "https://who.example/mcp"} if section == "mcp_servers" else {"enabled": True, "type": "hello"}
    settings = {"store": "memory://", section: {"who": {**entry, "user_auth": auth}}}
    try:
        problems = read_configuration(settings, {}, find_installed()).servers.problems
    except ConfigError as error:
        problems = error.problems
    assert [problem.path for problem in problems] == [f"{section}.who.{path}"]
