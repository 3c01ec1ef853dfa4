"""Grants: a person allows several calls at once by a rule, sees the rule, and takes it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient, Response
from pydantic import BaseModel
from tests.http.conftest import as_holder, client_of
from tests.postgres_server import postgres, programs
from tests.redis_server import redis

from toolplug import (
    CallContext,
    FunctionProvider,
    Host,
    NeedsApproval,
    Principal,
    ToolCall,
    ToolDefinition,
    hookimpl,
    open_host,
    tool,
)
from toolplug.host.inspection import tool_warnings
from toolplug.http import create_app
from toolplug.parts.approvals import grants as grants_module
from toolplug.providers.site import ProviderContext

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I35-grants")]

PERSON, AGENT, OTHER, SEER = (as_holder(f"{name}-key") for name in ("person", "agent", "other", "seer"))
AUTH = {
    "api_keys": [
        {"key": "agent-key", "subject": "agent", "scopes": ["tools:call", "tools:read", "sessions:write"]},
        {"key": "other-key", "subject": "other", "scopes": ["tools:call"]},
        {"key": "person-key", "subject": "person", "scopes": ["approvals:write"]},
        {"key": "seer-key", "subject": "seer", "scopes": ["approvals:read"]},
        {"key": "far-key", "subject": "person", "tenant": "far", "scopes": ["approvals:write"]},
    ]
}
SMALL = {"properties": {"table": {"const": "orders"}, "limit": {"minimum": 1, "maximum": 100}, "only": {"const": None}}}
CALLER = {"most": "8h", "scope": "caller"}


class Filter(BaseModel):
    column: str = "id"
    deep: bool = False


class Ops(FunctionProvider):
    """A tool whose defaults are dangerous."""

    @tool
    async def query(self, table: str, limit: int = 10_000, only: Filter | None = None) -> str:
        """Query a table."""
        return f"{table} {limit}"

    @tool
    async def count(self, table: str) -> dict[str, int]:
        """Count."""
        return {table: 1}

    @hookimpl
    def before_call(self, call: ToolCall, context: CallContext, tool: ToolDefinition, site: ProviderContext) -> object:
        if call.arguments.get("table") == "secrets":  # type: ignore[union-attr]
            return "not that table"
        return NeedsApproval("it is a large table") if call.arguments.get("table") == "large" else None  # type: ignore[union-attr]


def sections(store: str = "memory://", *, grants: object = CALLER, **more: object) -> dict[str, Any]:
    rules = {"query": {"policy": "ask", **({} if grants is None else {"grants": grants})}}
    return {"store": store, "auth": AUTH, "providers": {"ops": {"tools": rules}}, **more}


@asynccontextmanager
async def served(settings: dict[str, Any]) -> AsyncIterator[tuple[Host, AsyncClient]]:
    settings["providers"]["ops"] = {"type": f"{__file__}:Ops", "enabled": True, **settings["providers"]["ops"]}
    async with open_host(settings, environ={}) as host, client_of(create_app(host)) as client:
        yield host, client


async def call(client: AsyncClient, who: dict[str, str] = AGENT, name: str = "query", **arguments: object) -> Any:
    body = {"name": name, "arguments": arguments}
    return (await client.post("/v1/tool-calls", headers=who, json=body)).raise_for_status().json()


async def decide(client: AsyncClient, refused: Any, who: dict[str, str] = PERSON, **more: object) -> Response:
    ticket = refused["metadata"]["approval"]["id"]
    return await client.post(f"/v1/approvals/{ticket}", headers=who, json={"decision": "approve", **more})


def grant(arguments: object = SMALL, **more: object) -> dict[str, object]:
    given = {} if arguments is None else {"arguments": arguments}
    return {"grant": {**given, "for": "8h", "scope": "caller", **more}}


async def listed(client: AsyncClient, who: dict[str, str] = SEER) -> list[Any]:
    return (await client.get("/v1/grants", headers=who)).raise_for_status().json()["grants"]


@contextmanager
def store_url(kind: str, folder: Path) -> Iterator[str]:
    if kind == "memory":
        yield "memory://"
    elif kind == "sqlite":
        yield f"sqlite:///{folder}/state.db?shared=true"
    elif kind == "redis":
        with redis() as server:
            yield f"redis://127.0.0.1:{server.port}/0?prefix=grants"
    elif programs() is None:
        pytest.skip("there is no PostgreSQL here")
    else:
        with postgres() as server:
            yield server.url()


STORES = ["memory", "sqlite", *(pytest.param(name, marks=pytest.mark.judge) for name in ("redis", "postgres"))]


@pytest.mark.parametrize("kind", STORES)
async def test_fifty_like_calls_are_one_question_and_the_rule_can_be_taken_back(kind: str, tmp_path: Path) -> None:
    with store_url(kind, tmp_path) as url:
        async with served(sections(url)) as (_, client):
            questions = 0
            for number in range(50):
                answer = await call(client, table="orders", limit=number + 1)
                if answer["status"] == "denied":
                    questions += 1
                    decided = await decide(client, answer, **grant())
                    assert decided.status_code == 200, decided.text
                    answer = await call(client, table="orders", limit=number + 1)
                assert answer["output"] == f"orders {number + 1}", answer
            (made,) = await listed(client)
            assert answer["metadata"] == {"granted_by": made["id"]}
            assert (questions, made["caller"], made["arguments"], made["made_by"]) == (1, "agent", SMALL, "person")
            assert (made["used"], made["calls_left"], made["scope"], made["session"]) == (49, None, "caller", False)
            for outside in ({"table": "users", "limit": 1}, {"table": "orders", "limit": 1000}, {"table": "orders"}):
                assert (await call(client, **outside))["status"] == "denied"
            assert (await call(client, OTHER, table="orders", limit=1))["status"] == "denied"
            gone = await client.delete(f"/v1/grants/{made['id']}", headers=PERSON)
            assert (gone.status_code, await listed(client)) == (204, [])
            assert (await call(client, table="orders", limit=1))["status"] == "denied"


@pytest.mark.parametrize("kind", STORES[1:])
async def test_a_grant_and_its_count_hold_over_processes_and_a_revocation_acts_within_a_second(
    kind: str, tmp_path: Path
) -> None:
    with store_url(kind, tmp_path) as url:
        async with AsyncExitStack() as stack:
            (_, one), (_, two) = [await stack.enter_async_context(served(sections(url))) for _ in range(2)]
            asked = await call(one, table="orders", limit=1)
            made = (await decide(two, asked, **grant(calls=20))).json()["grant"]
            assert made
            answers = await asyncio.gather(*(call((one, two)[n % 2], table="orders", limit=n) for n in range(2, 27)))
            assert [item["status"] for item in answers].count("success") == 20
            asked = next(item for item in answers if item["status"] == "denied")
            await decide(one, asked, **grant())
            assert (await call(two, table="orders", limit=7))["status"] == "success"
            for item in await listed(one):
                await one.delete(f"/v1/grants/{item['id']}", headers=PERSON)
            await asyncio.sleep(0.6)
            assert (await call(two, table="orders", limit=7))["status"] == "denied"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (grant({"properties": {"limit": {"maximun": 100}}}), 422, "invalid_grant"),
        (grant({"properties": {"tabel": {"const": "orders"}}}), 422, "invalid_grant"),
        (grant({"$ref": "#"}), 422, "invalid_grant"),
        (grant({"properties": {"limit": {"type": "string", "maximum": 1}}}), 422, "invalid_grant"),
        (grant({"properties": {}, "additionalProperties": True}), 422, "invalid_grant"),
        (grant({"properties": {"table": {"pattern": "(a{1000}){1000}"}}}), 422, "invalid_grant"),
        (grant({"anyOf": []}), 422, "invalid_grant"),
        (grant({"properties": {"table": False}}), 422, "invalid_grant"),
        (grant(scope="session"), 422, "invalid_grant"),
        (grant(**{"for": 0}), 422, "invalid_grant"),
        (grant(**{"for": "9h"}), 403, "grant_not_allowed"),
        (grant(True), 403, "grant_not_allowed"),
        ({"decision": "deny", **grant()}, 422, "invalid_grant"),
        (grant(calls=0), 400, "invalid_request"),
        (grant(more=1), 400, "invalid_request"),
    ],
)
async def test_a_grant_that_would_allow_more_than_it_says_is_refused_and_the_question_waits_on(
    body: dict[str, Any], status: int, code: str
) -> None:
    async with served(sections()) as (_, client):
        asked = await call(client, table="orders", limit=1)
        answer = await decide(client, asked, **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
        (waiting,) = (await client.get("/v1/approvals", headers=SEER)).json()["approvals"]
        assert (waiting["state"], await listed(client)) == ("waiting", [])


async def test_a_refused_rule_says_where_in_the_rule_it_is_wrong() -> None:
    async with served(sections()) as (_, client):
        asked = await call(client, table="orders", limit=1)
        misspelt = await decide(client, asked, **grant({"properties": {"limit": {"maximun": 100}}}))
        assert "cannot be used: /properties/limit: rules have no keyword" in misspelt.json()["error"]["message"]
        wrong = (await decide(client, asked, **grant(5))).json()["error"]
        assert (wrong["param"], wrong["message"].split()[0]) == ("grant.arguments", "'grant.arguments'")


async def test_one_is_not_true_which_would_allow_every_call() -> None:
    async with served(sections(grants={**CALLER, "any": True})) as (_, client):
        asked = await call(client, table="orders", limit=1)
        for number in (1, 1.0):
            assert (await decide(client, asked, **grant(number))).status_code == 400
        assert (await decide(client, asked, **grant(True))).status_code == 200


@pytest.mark.parametrize("grants", [None, {"most": "8h"}], ids=["none", "one session only"])
async def test_the_file_limits_what_a_person_may_allow(grants: object) -> None:
    async with served(sections(grants=grants)) as (_, client):
        answer = await decide(client, await call(client, table="orders", limit=1), **grant())
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "grant_not_allowed")


async def test_an_equal_call_is_granted_with_the_defaults_of_the_tool_filled_in() -> None:
    async with served(sections()) as (_, client):
        await decide(client, await call(client, table="orders", only={"column": "name"}), **grant(None))
        same = {"table": "orders", "limit": 10_000, "only": {"column": "name", "deep": False}}
        assert (await call(client, **same))["metadata"].keys() == {"granted_by"}
        assert (await call(client, **{**same, "only": {"column": "id"}}))["status"] == "denied"


async def test_a_caller_that_decides_makes_no_grant_and_others_see_and_revoke_by_their_scopes() -> None:
    settings = sections()
    settings["providers"]["ops"]["tools"]["query"]["policy"] = {"ask": "caller"}
    settings["auth"] = {"api_keys": [*AUTH["api_keys"], {"key": "own-key", "subject": "own", "scopes": ["admin"]}]}
    own = as_holder("own-key")
    async with served(settings) as (_, client):
        asked = await call(client, own, table="orders", limit=1)
        answer = await decide(client, asked, own, **grant())
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "own_call")
        made = (await decide(client, asked, **grant())).json()["grant"]
        assert (await client.get("/v1/grants", headers=AGENT)).status_code == 403
        assert (await client.get("/v1/grants?tool=count", headers=own)).json() == {"grants": []}
        assert (await client.delete(f"/v1/grants/{made}", headers=SEER)).status_code == 403
        far = await client.delete(f"/v1/grants/{made}", headers=as_holder("far-key"))
        assert (far.status_code, far.json()["error"]["code"]) == (404, "grant_not_found")
        assert await listed(client, as_holder("far-key")) == []
        assert (await client.delete(f"/v1/grants/{made}", headers=PERSON)).status_code == 204


async def test_edited_arguments_are_checked_run_and_shown() -> None:
    settings = sections()
    settings["providers"]["ops"]["tools"]["count"] = "ask"
    async with served(settings) as (_, client):
        asked = await call(client, table="orders", limit=5)
        bad = await decide(client, asked, arguments={"table": 1})
        assert (bad.status_code, bad.json()["error"]["code"]) == (422, "invalid_arguments")
        veto = await decide(client, asked, arguments={"table": "secrets"})
        assert (veto.status_code, veto.json()["error"]["code"]) == (422, "refused_by_plugin")
        assert "not that table" in veto.json()["error"]["message"]
        ran = {"table": "users", "limit": 2}
        decided = (await decide(client, asked, arguments=ran, reason="smaller")).json()
        assert (decided["arguments"], decided["asked_arguments"]) == (ran, {"table": "orders", "limit": 5})
        assert decided["reason"] == "smaller"
        answer = await call(client, table="orders", limit=5)
        assert (answer["output"], answer["metadata"]) == ("users 2", {"ran": ran})
        assert "a person has changed the arguments" in answer["parts"][0]["text"]
        await decide(client, await call(client, name="count", table="a"), arguments={"table": "b"})
        answer = await call(client, name="count", table="a")
        assert (answer["structured"], answer["output"]) == ({"b": 1}, '{"b":1}')


async def test_a_plugin_can_ask_for_an_approval_whatever_the_policy_says_and_its_veto_wins() -> None:
    settings = sections()
    settings["providers"]["ops"]["tools"]["count"] = {"policy": "allow", "grants": CALLER}
    async with served(settings) as (_, client):
        asked = await call(client, name="count", table="large")
        assert "a person must approve this call first (it is a large table)" in asked["output"]
        (waiting,) = (await client.get("/v1/approvals", headers=SEER)).json()["approvals"]
        assert waiting["asked_because"] == "it is a large table"
        await decide(client, asked, **grant(None))
        assert (await call(client, name="count", table="large"))["status"] == "success"
        assert (await call(client, name="count", table="small"))["metadata"] == {}
        assert "not that table" in (await call(client, name="count", table="secrets"))["output"]


async def test_an_equal_waiting_call_has_the_same_ticket_and_callers_have_at_most_fifty() -> None:
    async with served(sections()) as (_, client):
        answers = await asyncio.gather(*(call(client, table="orders", limit=1) for _ in range(20)))
        assert len({item["metadata"]["approval"]["id"] for item in answers}) == 1
        others = [await call(client, table="orders", limit=number) for number in range(2, 53)]
        assert [item["status"] for item in others] == ["denied"] * 49 + ["limited"] * 2
        assert "50 calls of this caller wait" in others[-1]["output"]
        assert (await call(client, table="orders", limit=1))["status"] == "denied"
        assert (await call(client, OTHER, table="orders", limit=1))["status"] == "denied"


async def test_a_question_waits_as_long_as_the_file_says_and_survives_a_restart(tmp_path: Path) -> None:
    settings = sections(f"sqlite:///{tmp_path}/state.db", approvals={"life": "8h"})
    async with served(settings) as (host, client):
        asked = await call(client, table="orders", limit=1)
        (ticket,) = await host.approvals.waiting("default")
        assert "T" in ticket.expires_at
    async with served(sections(f"sqlite:///{tmp_path}/state.db", approvals={"life": "8h"})) as (_, client):
        decided = await decide(client, asked, **grant())
        assert decided.status_code == 200
        assert (await call(client, table="orders", limit=1))["status"] == "success"


@pytest.mark.requirement("I35-watch")
async def test_watched_policies_let_every_call_pass_and_say_what_they_would_have_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = sections()
    settings["providers"]["ops"]["tools"] = {
        "query": {"policy": "deny", "watch": True},
        "count": {"policy": "ask", "watch": True},
    }
    async with served(settings) as (host, client):
        assert [item.message for item in tool_warnings(host) if item.code == "watched"] == [
            "the policy deny of 'query' is only watched: every call passes",
            "the policy ask of 'count' is only watched: every call passes",
        ]
        caplog.set_level("INFO", "toolplug.audit")
        assert (await call(client, table="orders"))["status"] == "success"
        assert (await call(client, name="count", table="a"))["status"] == "success"
        said = [record.getMessage() for record in caplog.records if '"would":"denied"' in record.getMessage()]
        assert ['"policy: deny"' in said[0], '"policy: ask"' in said[1], len(said)] == [True, True, 2]
        metrics = (await client.get("/metrics", headers=PERSON)).text
        assert 'watched_total{provider="ops",rule="policy: deny",tool_name="query"} 1.0' in metrics


async def test_a_grant_for_a_session_holds_in_that_session_alone() -> None:
    async with served(sections()) as (_, client):
        codes = [(await client.post("/api/sessions", headers=AGENT, json={})).json()["code"] for _ in range(2)]

        async def in_session(code: str | None, limit: int) -> Any:
            body = {"name": "query", "arguments": {"table": "orders", "limit": limit}, "session": code}
            return (await client.post("/v1/tool-calls", headers=AGENT, json=body)).json()

        decided = await decide(client, await in_session(codes[0], 1), **grant(scope="session"))
        assert decided.status_code == 200, decided.text
        for _ in range(2):
            assert (await in_session(codes[0], 2))["status"] == "success"
        assert [(await in_session(code, 3))["status"] for code in (codes[1], None)] == ["denied", "denied"]


async def test_a_grant_for_the_call_of_an_agent_holds_for_that_agent_alone() -> None:
    toolsets = {"web": {"prefix": "web", "from": "provider:ops"}}
    agents = {"one": {"toolsets": ["web"]}, "two": {"toolsets": ["web"]}}
    async with served(sections(toolsets=toolsets, agents=agents)) as (_, client):

        async def by(agent: str, limit: int) -> Any:
            body = {"name": "web.query", "arguments": {"table": "orders", "limit": limit}, "agent": agent}
            return (await client.post("/v1/tool-calls", headers=AGENT, json=body)).json()

        await decide(client, await by("one", 1), **grant())
        assert [(await by(agent, 2))["status"] for agent in ("one", "two")] == ["success", "denied"]


async def test_a_grant_ends_at_its_time_also_where_a_process_has_it_in_memory() -> None:
    async with served(sections()) as (_, client):
        await decide(client, await call(client, table="orders", limit=1), **grant(**{"for": 0.3}))
        assert (await call(client, table="orders", limit=2))["status"] == "success"
        await asyncio.sleep(0.35)
        assert (await call(client, table="orders", limit=3))["status"] == "denied"


class ChangedOps(Ops):
    """The tool with another definition."""

    @tool
    async def query(self, table: str, limit: int = 10_000, only: Filter | None = None) -> str:
        """Query a table, and delete what was found."""
        return f"{table} {limit}"


@pytest.mark.parametrize(
    ("grants", "kind"),
    [({"most": "8h"}, "Ops"), (None, "Ops"), ({"most": "0.01s", "scope": "caller"}, "Ops"), (CALLER, "ChangedOps")],
    ids=["sessions only", "none", "a shorter time", "another definition"],
)
async def test_a_grant_ends_when_the_file_no_longer_allows_it_and_with_the_definition_of_its_tool(
    grants: object, kind: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    async with served(sections(url)) as (_, client):
        await decide(client, await call(client, table="orders", limit=1), **grant())
    async with served(sections(url)) as (_, client):
        assert (await call(client, table="orders", limit=1))["status"] == "success"
        assert (await call(client, table="orders", limit=2))["status"] == "success"
    changed = sections(url, grants=grants)
    changed["providers"]["ops"]["type"] = f"{__file__}:{kind}"
    async with served(changed) as (_, client):
        assert (await call(client, table="orders", limit=3))["status"] == "denied"


async def test_a_grant_for_every_call_ends_when_the_file_allows_only_rules(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    async with served(sections(url, grants={**CALLER, "any": True})) as (_, client):
        assert (await decide(client, await call(client, table="orders"), **grant(True))).status_code == 200
        await call(client, table="orders")
        assert (await call(client, table="users"))["status"] == "success"
    async with served(sections(url)) as (_, client):
        assert (await call(client, table="users"))["status"] == "denied"


@pytest.mark.parametrize("limit", ["MAX_GRANTS", "MAX_GRANTS_OF_TENANT"])
async def test_a_caller_and_a_tenant_have_so_many_grants(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants_module, limit, 2)
    async with served(sections()) as (_, client):
        for number in range(3):
            asked = await call(client, table=f"table {number}", limit=1)
            answer = await decide(client, asked, **grant(None))
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "too_many_grants")
        assert len(await listed(client)) == 2


async def test_a_reason_has_so_many_characters_and_other_arguments_need_the_same_definition(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    async with served(sections(url)) as (_, client):
        asked = await call(client, table="orders", limit=1)
        assert (await decide(client, asked, reason="x" * 2_001)).status_code in (400, 422)
    changed = sections(url)
    changed["providers"]["ops"]["type"] = f"{__file__}:ChangedOps"
    async with served(changed) as (_, client):
        answer = await decide(client, asked, arguments={"table": "orders"})
        assert "has another definition now" in answer.json()["error"]["message"]


async def test_a_rule_refuses_what_it_does_not_name_also_where_it_is_a_default_of_the_tool() -> None:
    async with served(sections()) as (_, client):
        rule = {"properties": {"table": {"const": "orders"}}}
        asked = await call(client, table="orders")
        assert (await decide(client, asked, **grant(rule))).status_code == 200
        assert (await call(client, table="orders"))["status"] == "success"  # the call that was approved
        assert (await call(client, table="orders"))["status"] == "denied"
        assert (await call(client, table="orders", limit=1))["status"] == "denied"


async def test_a_call_that_does_not_reach_its_tool_is_not_counted_as_a_use_of_its_grant() -> None:
    async with served(sections()) as (host, client):
        await decide(client, await call(client, table="orders", limit=1), **grant())
        for number in range(1, 4):
            assert (await call(client, table="orders", limit=number))["status"] == "success"
        (before,) = await listed(client)
        agent = Principal("agent", scopes=frozenset({"tools:call"}))
        tool_of_agent = host.executor_for(agent).catalog.find("query")
        assert tool_of_agent is not None
        abandoned = tool_of_agent.plan.abandoned
        abandoned.running += abandoned.limit
        assert (await call(client, table="orders", limit=2))["status"] == "limited"
        abandoned.running -= abandoned.limit
        assert await listed(client) == [before]
