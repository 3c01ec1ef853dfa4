"""Toolsets and agents of a running host: what a file says of them, what code registers, and how both change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package
from tests.toolsets.harness import READ, Files, Shop, settled

from toolplug import CallContext, FunctionRegistry, Principal, ToolCall, ToolExecutor, ToolResult, open_host
from toolplug.catalog.catalog import CatalogDiff
from toolplug.errors import AgentNotAllowed, AgentRequired, ApiError, ConfigError, InvalidDefinition
from toolplug.host.toolsets.records import Binding
from toolplug.testing.executor_laws import check_executor

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("notes")]

NOTES = """
    from pydantic import BaseModel
    from toolplug import FunctionProvider, ToolError, tool

    class Notes(FunctionProvider):
        class Config(BaseModel):
            label: str = "notes"

        @tool
        async def read(self) -> str:
            return self.config.label

        @tool
        async def fail(self) -> str:
            raise ToolError("nothing is written")
"""
VETOING = """
    from toolplug import FunctionProvider

    class Vetoing(FunctionProvider):
        def before_call(self, call, context):
            return "nobody reads" if call.name == "read" else None
"""
FILE = """
    providers:
      notes: {enabled: true}
      more: {enabled: true, type: notes, label: more, tools: {fail: {tenants: [t1]}}}
    toolsets:
      two: {prefix: second, from: provider:more}
      one: {prefix: first, from: provider:notes, scope: shared}
    agents: {researcher: {toolsets: [two, one]}, idle: {toolsets: []}, writer: {toolsets: [one]}}
"""
ADMIN = Principal(subject="root", scopes=frozenset({"admin", "operator"}))
Write = Callable[[str], Path]


@pytest.fixture
def notes(package: Package) -> None:
    package("toolplug-notes", {"notes": "notes_mod:Notes"}, notes_mod=NOTES)


async def run(executor: ToolExecutor, name: str, principal: Principal = ADMIN) -> ToolResult:
    return await executor.execute(ToolCall("c", name), CallContext(principal=principal))


@pytest.mark.requirement("C-5-catalog-agent", "ROUTE-OQ-config", "C-1-order", "C-7-full-name", "ROUTE-error-through")
async def test_an_agent_sees_its_toolsets_prefixed_in_the_order_of_its_allowlist(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        agent = host.executor_for(ADMIN, agent="researcher")
        assert list(agent.catalog) == ["second.read", "first.read", "first.fail"]
        assert list(host.executor_for(ADMIN, agent="idle").catalog) == []
        assert list(host.executor_for(ADMIN, agent="default").catalog) == []
        results = [await run(agent, name) for name in ("second.read", "first__read", "first.fail", "read")]
        assert [(item.call_id, item.name, item.status, item.output) for item in results] == [
            ("c", "second.read", "success", "more"),
            ("c", "first__read", "success", "notes"),
            ("c", "first.fail", "tool_error", "nothing is written"),
            ("c", "read", "unknown_tool", 'no builtin provider handles tool "read"'),
        ]
        assert host.executor_for(ADMIN, agent="researcher").catalog is agent.catalog


@pytest.mark.requirement("C-7-intersection", "C-3-unknown-agent", "C-5-agent-implied", "C-5-agent-required")
async def test_what_an_agent_may_is_cut_by_tenant_and_credential(config: Write) -> None:
    one = Principal(tenant="t1", scopes=ADMIN.scopes, agents=frozenset({"researcher"}))
    both = Principal(scopes=ADMIN.scopes, agents=frozenset({"researcher", "writer"}))
    listed = Principal(scopes=frozenset({"tools:read"}))
    async with open_host(config(FILE), environ={}) as host:
        assert list(host.executor_for(one).catalog) == ["second.read", "second.fail", "first.read", "first.fail"]
        with pytest.raises(AgentRequired):
            host.executor_for(both)
        with pytest.raises(AgentNotAllowed):
            host.executor_for(both, agent="idle")
        hidden = await run(host.executor_for(ADMIN, agent="researcher"), "second.fail")
        assert hidden.output == 'no builtin provider handles tool "second.fail"'
        refused = await run(host.executor_for(listed, agent="writer"), "first.read", listed)
        assert refused.output == "tool \"first.read\" is not allowed: scope: the scope 'tools:call' is missing"


@pytest.mark.requirement("C-3-disable-at-once")
async def test_an_agents_view_follows_the_providers_at_once(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        agent = host.executor_for(ADMIN, agent="researcher")
        heard: list[CatalogDiff] = []
        stop = agent.subscribe(heard.append)
        await host.disable("more", by=ADMIN)
        gone = await run(agent, "second.read")
        assert (gone.status, list(agent.catalog)) == ("unknown_tool", ["first.read", "first.fail"])
        assert gone.output == 'no builtin provider handles tool "second.read"'
        await host.enable("more", by=ADMIN)
        assert (await run(agent, "second.read")).output == "more"
        stop()
    assert heard == [CatalogDiff(removed=("second.read",)), CatalogDiff(added=("second.read",))]


@pytest.mark.requirement("C-2-reload-plan", "C-7-allowlist-revoked")
async def test_a_reload_replaces_toolsets_and_allowlists_under_executors_in_use(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        agent = host.executor_for(ADMIN, agent="researcher")
        same = host.executor_for(ADMIN, agent="writer")
        before = same.catalog
        text = FILE.replace("prefix: second", "prefix: other").replace("[two, one]", "[two]")
        config(text)
        await host.reload(by=ADMIN)
        assert list(agent.catalog) == ["other.read"]
        assert same.catalog is before
        config(text.replace("provider:more", "provider:mor"))
        with pytest.raises(ConfigError, match="there is no provider 'mor'"):
            await host.reload(by=ADMIN)
        assert list(agent.catalog) == ["other.read"]


@pytest.mark.requirement("C-7-register-executor", "C-7-register-factory", "C-12-host-toolsets", "ROUTE-goal-code")
async def test_code_registers_toolsets_before_and_while_the_host_runs(config: Write) -> None:
    shop = Shop()
    text = f"{FILE.rstrip()[:-1]}, coder: {{toolsets: [own, fs]}}}}"
    host = open_host(config(text.replace("own, fs", "own")), environ={})
    host.register_toolset("own", "own", shop, READ)
    async with FunctionRegistry({"files": Files()}) as registry:
        async with host:
            agent = host.executor_for(ADMIN, agent="coder")
            assert list(agent.catalog) == ["own.read"]
            host.register_toolset("fs", "fs", registry)
            await host.toolsets.allow("coder", ("fs", "own"), by=ADMIN, request_id="r")
            assert list(agent.catalog) == ["fs.read", "own.read"]
            outputs = [(await run(agent, name)).output for name in ("fs.read", "own.read")]
            assert outputs == ["files", "files 1"]
            for bad, error in (("first", ApiError), ("a.b", InvalidDefinition)):
                with pytest.raises(error):
                    host.register_toolset("bad", bad, registry)
        async with host:
            assert list(host.executor_for(ADMIN, agent="coder").catalog) == ["own.read"]
        assert list(registry.catalog) == ["read"]
    assert shop.closed == [1]


@pytest.mark.parametrize(("source", "tools"), [(FunctionRegistry(), READ), (7, None)])
def test_what_is_no_source_of_tools_is_refused(source: FunctionRegistry, tools: None) -> None:
    with pytest.raises(TypeError):
        open_host({}).register_toolset("fs", "fs", source, tools)


@pytest.mark.requirement("C-7-first-use-opens", "C-7-no-session")
async def test_the_catalog_of_a_caller_is_told_once_everything_is_open(config: Write) -> None:
    shop = Shop()
    async with open_host(config(FILE), environ={}) as host:
        host.register_toolset("own", "own", shop)
        await host.toolsets.allow("researcher", ("own", "one"), by=ADMIN, request_id="r")
        assert list(host.executor_for(ADMIN, agent="researcher").catalog) == ["first.read", "first.fail"]
        listed = await host.catalog_for(ADMIN, agent="researcher")
        assert (list(listed), shop.closed) == (["own.read", "first.read", "first.fail"], [1])
        assert list(await host.catalog_for(ADMIN)) == ["read", "fail"]


@pytest.mark.requirement("C-7-allowlist-put", "C-7-binding", "C-7-allowlist-unknown")
async def test_what_a_tenant_changed_is_kept_and_holds_for_that_tenant_alone(config: Write) -> None:
    path = config(f"{FILE}\n    store: sqlite:///state.db")
    other = Principal(subject="eve", tenant="t2", scopes=ADMIN.scopes)
    async with open_host(path, environ={}) as host:
        await host.toolsets.bind("mine", Binding("mine", "provider:more"), by=ADMIN, request_id="r")
        await host.toolsets.allow("writer", ("mine", "one"), by=ADMIN, request_id="r")
        with pytest.raises(ApiError, match=r"there is no toolset 'mine'") as caught:
            await host.toolsets.allow("writer", ("one", "mine"), by=other, request_id="r")
        assert (caught.value.code, caught.value.param) == ("unknown_toolset", "toolsets[1]")
    async with open_host(path, environ={}) as host:
        assert list(host.executor_for(ADMIN, agent="writer").catalog) == ["mine.read", "first.read", "first.fail"]
        assert list(host.executor_for(other, agent="writer").catalog) == ["first.read", "first.fail"]
        assert host.toolsets.allowlist("default", "writer").origin == "PUT /api/agents/writer/toolsets by root"
        assert host.toolsets.allowlist("t2", "writer").origin.endswith("providers.yaml:8")


@pytest.mark.requirement("I4-two-processes", "C-7-allowlist-put", "C-7-binding")
async def test_what_one_host_changes_another_on_the_same_store_follows(config: Write) -> None:
    path = config(f"{FILE}\n    store: sqlite:///state.db")
    async with open_host(path, environ={}) as one, open_host(path, environ={}, sessions=False) as other:
        agent = other.executor_for(ADMIN, agent="writer")
        changed = asyncio.Event()
        agent.subscribe(lambda diff: changed.set())
        await one.toolsets.bind("mine", Binding("mine", "provider:more"), by=ADMIN, request_id="r")
        await one.toolsets.allow("writer", ("mine",), by=ADMIN, request_id="r")
        await asyncio.wait_for(changed.wait(), 60)
        assert list(agent.catalog) == list(one.executor_for(ADMIN, agent="writer").catalog) == ["mine.read"]
        assert other.toolsets.allowlist("default", "writer") == one.toolsets.allowlist("default", "writer")


async def test_a_kept_toolset_whose_prefix_the_file_has_taken_is_left_out_and_told(
    config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    path = config(f"{FILE}\n    store: sqlite:///state.db")
    async with open_host(path, environ={}) as host:
        await host.toolsets.bind("mine", Binding("mine", "provider:more"), by=ADMIN, request_id="r")
    config(f"{FILE.replace('prefix: second', 'prefix: mine')}\n    store: sqlite:///state.db")
    async with open_host(path, environ={}) as host:
        assert "toolset 'mine' of tenant 'default' is not used: prefix 'mine' is that of toolset 'two'" in caplog.text
        assert list(host.executor_for(ADMIN, agent="researcher").catalog) == ["mine.read", "first.read", "first.fail"]


@pytest.mark.requirement("I4-laws")
async def test_an_agents_executor_of_a_host_keeps_the_laws(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:

        async def change() -> None:
            await host.toolsets.allow("researcher", ("one",), by=ADMIN, request_id="r")

        agent = host.executor_for(ADMIN, agent="researcher")
        context = CallContext(principal=ADMIN)
        await check_executor(agent, calls={"second.read": {}, "first.read": {}}, change=change, context=context)


@pytest.mark.requirement("C-6-default-toolset")
async def test_a_session_without_registration_shows_the_default_toolset(config: Write) -> None:
    path = config(f"{FILE}\n    sessions: {{default_toolset: one}}")
    async with open_host(path, environ={}) as host:
        made = await host.sessions.create(ADMIN)
        executor = host.executor_for(ADMIN, session=made.session.code)
        assert list(executor.catalog)[-2:] == ["first.read", "first.fail"]
        assert (await run(executor, "first.read")).output == "notes"
        assert list(host.executor_for(ADMIN, agent="idle", session=made.session.code).catalog) == [
            "first.read",
            "first.fail",
        ]


@pytest.mark.requirement("C-12-before-call", "C-12-after-call")
async def test_host_wide_hooks_hear_the_calls_of_toolsets(config: Write, package: Package) -> None:
    package("toolplug-vetoing", {"vetoing": "vetoing_mod:Vetoing"}, vetoing_mod=VETOING)
    text = FILE.replace("providers:", "providers:\n      vetoing: {enabled: true}")
    async with open_host(config(text), environ={}) as host:
        host.register_toolset("own", "own", Shop(), READ)
        await host.toolsets.allow("writer", ("one", "own"), by=ADMIN, request_id="r")
        agent = host.executor_for(ADMIN, agent="writer")
        said = [(await run(agent, name)).output for name in ("first.read", "own.read", "first.fail")]
        assert said == [
            'tool "first.read" is not allowed: hook: nobody reads',
            'tool "own.read" is not allowed: hook: nobody reads',
            "nothing is written",
        ]
        await host.disable("vetoing", by=ADMIN)
        assert (await run(agent, "own.read")).output == "files 1"


@pytest.mark.requirement("C-7-factory-once", "C-7-session-code")
async def test_a_session_has_one_executor_of_a_toolset_that_is_made_for_each(config: Write) -> None:
    shop = Shop()
    async with open_host(config(FILE), environ={}) as host:
        host.register_toolset("own", "own", shop, READ)
        await host.toolsets.allow("writer", ("own",), by=ADMIN, request_id="r")
        sessions = [(await host.sessions.create(ADMIN)).session for _ in range(3)]
        executors = [host.executor_for(ADMIN, agent="writer", session=item.code) for item in (*sessions, *sessions)]
        outputs = [(await run(executor, "own.read")).output for executor in executors]
        assert outputs == ["files 1", "files 2", "files 3"] * 2
        await host.sessions.end(sessions[1], ADMIN)
        await settled()
        assert ((await run(executors[1], "own.read")).status, shop.closed) == ("unknown_tool", [0, 1, 0])
    assert shop.closed == [1, 1, 1]


@pytest.mark.requirement("C-3-read-result-last", "C-3-artifacts-kept")
async def test_who_can_have_a_result_kept_can_read_it_with_the_last_tool(config: Write) -> None:
    text = f"{FILE}\n    limits: {{artifacts: true, max_result_bytes: 3}}\n    sessions: {{default_toolset: two}}"
    async with open_host(config(text), environ={}) as host:
        agent = host.executor_for(ADMIN, agent="writer")
        assert list(agent.catalog) == ["first.read", "first.fail", "read_result"]
        cut = await run(agent, "first.read")
        call = ToolCall("c", "read_result", {"handle": cut.metadata["truncated"]["handle"]})  # type: ignore[index]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
        assert (await agent.execute(call, CallContext(principal=ADMIN))).output == "notes"
        code = (await host.sessions.create(ADMIN)).session.code
        for name, base in (("writer", ["first.read", "first.fail"]), (None, ["read", "fail"]), ("idle", [])):
            executor = host.executor_for(ADMIN, agent=name, session=code)
            assert list(executor.catalog) == [*base, "second.read", "read_result"]
