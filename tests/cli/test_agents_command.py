"""`toolplug agents`: allowlists beside a running host, which follows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.process import toolplug

from toolplug import (
    CallContext,
    FunctionProvider,
    FunctionRegistry,
    Host,
    Principal,
    ToolCall,
    ToolExecutor,
    open_host,
    tool,
)

Write = Callable[..., Path]


class Patient(FunctionProvider):
    """One tool that waits."""

    def __init__(self) -> None:
        self.entered, self.go = asyncio.Event(), asyncio.Event()

    @tool
    async def wait(self) -> str:
        self.entered.set()
        await self.go.wait()
        return "done"


FILE = """
providers: {hello: {}}
toolsets: {one: {prefix: one, from: "provider:hello"}, two: {prefix: two, from: "provider:hello"}}
agents: {a: {toolsets: [one]}, b: {}}
store: sqlite:///./state.db
"""
ADMIN = Principal(subject="root", scopes=frozenset({"admin"}))


@pytest.mark.requirement("C-10-toolsets", "I4-cli-agents", "C-7-allowlist-put")
def test_lists_are_shown_added_to_and_taken_from_without_a_host(run: Run, write: Write) -> None:
    write(FILE)
    said = "toolplug agents (a) by operator"
    assert run("agents", "list", "--json").json["agents"] == [
        {"agent": "a", "toolsets": ["one"], "origin": "providers.yaml:4"},
        {"agent": "b", "toolsets": [], "origin": "providers.yaml:4"},
    ]
    assert run("agents", "allow", "a", "two", "one", "--json").json == {
        "agent": "a",
        "toolsets": ["one", "two"],
        "origin": said,
    }
    assert run("agents", "revoke", "a", "one").out == f"a: two ({said})\n"
    assert run("agents", "show", "a").out == f"a: two ({said})\n"
    assert run("agents", "revoke", "a").out == f"a: no toolsets ({said})\n"
    assert run("agents", "show", "a", "--tenant", "t2").out == "a: one (providers.yaml:4)\n"
    assert run("agents", "show", "nobody").out == "nobody: no toolsets (default)\n"
    assert run("agents", "allow", "nobody", "two").code == 0
    assert [line.split()[0] for line in run("agents", "list").out.splitlines()] == ["AGENT", "a", "b", "nobody"]
    assert run("agents", "list", "--tenant", "t2", "--json").json["agents"][0]["toolsets"] == ["one"]


@pytest.mark.requirement("H-trust-damaged-record")
def test_a_list_that_cannot_be_read_allows_nothing_until_it_is_set_again(run: Run, write: Write) -> None:
    write(FILE)
    run("agents", "allow", "a", "two")

    async def overwrite() -> None:
        async with open_host("providers.yaml", serving=False) as host:
            (key,) = await host.store.keys("allowlist/")
            await host.store.commit(key, b"garbage")

    asyncio.run(overwrite())
    assert run("agents", "show", "a").out.startswith("a: no toolsets (a record of the store that cannot be read")
    assert [item["toolsets"] for item in run("agents", "list", "--json").json["agents"]] == [[], []]
    assert run("agents", "allow", "a", "two").out == "a: two (toolplug agents (a) by operator)\n"


@pytest.mark.requirement("C-10-toolsets", "I4-cli-agents", "C-7-allowlist-unknown")
def test_what_cannot_be_changes_nothing_and_says_what_would_be_right(run: Run, write: Write) -> None:
    write(FILE)
    unknown = run("agents", "allow", "a", "two", "onne", "--json")
    assert (unknown.code, unknown.codes) == (1, ["unknown_toolset"])
    assert unknown.json["problems"][0]["message"] == "there is no toolset 'onne' (nearest: 'one')"
    without = run("agents", "revoke", "a", "two", "--json")
    assert without.json["problems"][0]["message"] == "agent 'a' may not use toolset 'two' as it is"
    assert run("agents", "allow", "a b", "one", "--json").codes == ["invalid_agent"]
    assert run("agents", "allow", "a").code == 2
    assert run("agents", "show", "a").out == "a: one (providers.yaml:4)\n"
    write("agents: {a: {}}\nstore: memory://")
    assert run("agents", "list", "--json").codes == ["store_in_memory"]
    write("agents: {a: {toolsets: 3}}\nstore: sqlite:///./state.db")
    assert run("agents", "list", "--json").codes == ["wrong_value"]


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.requirement("I4-cli-agents", "C-7-allowlist-revoked", "I4-two-processes")
async def test_a_revocation_by_another_process_lets_running_calls_finish_and_holds_for_the_next(
    write: Write, tmp_path: Path
) -> None:
    patient = Patient()
    host = open_host(write(FILE.replace("b: {}", "b: {toolsets: [own]}")), environ={})
    async with FunctionRegistry({"patient": patient}) as registry:
        host.register_toolset("own", "own", registry)
        async with host:
            agent = host.executor_for(ADMIN, agent="b")
            changed = asyncio.Event()
            agent.subscribe(lambda diff: changed.set())
            running = asyncio.create_task(called(agent))
            await patient.entered.wait()
            done = await asyncio.to_thread(toolplug, "agents", "revoke", "b", "own", folder=tmp_path)
            assert done.code == 0
            await asyncio.wait_for(changed.wait(), 60)
            assert await called(agent) == "Toolset not found for own.wait"
            assert refused(host) == ["agent 'b' may not use toolset 'own'", "toolplug agents (b) by operator"]
            patient.go.set()
            assert await running == "done"


async def called(agent: ToolExecutor) -> str:
    return (await agent.execute(ToolCall("c", "own.wait"), CallContext(principal=ADMIN))).output


def refused(host: Host) -> list[str]:
    gates = host.explain("own.wait", ADMIN, agent="b").gates
    return [text for gate in gates if gate.verdict == "refuses" for text in (gate.detail, gate.origin)]
