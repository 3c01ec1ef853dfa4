"""Registrations, allowlists, calls and sessions in any order, against a model of what must come of them."""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.toolsets.harness import READ, Files, Harness, run, settled

from toolplug import FunctionRegistry, ToolResult
from toolplug.execution.executor import LazyExecutor

IDS = ("a", "b")
SESSIONS = ("one", "two")
Kind = Literal["shared", "declared", "undeclared"]


class Register(NamedTuple):
    """Register an id, in place of what it was."""

    id: str
    kind: Kind


class Allow(NamedTuple):
    """Replace the agent's allowlist."""

    ids: tuple[str, ...]


class Call(NamedTuple):
    """Call the one tool of a toolset, in a session or in none."""

    id: str
    session: str | None


class End(NamedTuple):
    """End a session; another of the name begins with the next call."""

    session: str


Step = Register | Allow | Call | End

KINDS: tuple[Kind, ...] = ("shared", "declared", "undeclared")
ids, sessions = st.sampled_from(IDS), st.sampled_from(SESSIONS)
steps = st.one_of(
    st.builds(Register, ids, st.sampled_from(KINDS)),
    st.builds(Allow, st.lists(ids, unique=True).map(tuple)),
    st.builds(Call, ids, st.none() | sessions),
    st.builds(Call, ids, st.none() | sessions),
    st.builds(End, sessions),
)


class Model:
    """What is registered and allowed, what was made of it, and what each session has opened."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.registered: dict[str, tuple[Kind, str]] = {}
        self.allowed: tuple[str, ...] = IDS
        harness.allow(*IDS)
        self.opened: set[tuple[str, str]] = set()
        self.begun: dict[str, int] = dict.fromkeys(SESSIONS, 0)
        self.agents: dict[str | None, LazyExecutor] = {}
        self.made: list[Files] = []
        self.shared: list[Files] = []

    async def take(self, step: Step) -> None:
        match step:
            case Register():
                await self.register(step)
            case Allow(ids):
                self.allowed = ids
                self.harness.allow(*ids)
            case Call():
                await self.call(step)
            case End(session):
                await self.harness.tools.close(self.key(session))
                self.begun[session] += 1

    def key(self, session: str) -> str:
        return f"{session} {self.begun[session]}"

    def agent(self, key: str | None) -> LazyExecutor:
        """The executor that its caller has held since it first asked."""
        if key not in self.agents:
            self.agents[key] = self.harness.agent(key)
        return self.agents[key]

    async def register(self, step: Register) -> None:
        label = f"{step.id} {len(self.made) + len(self.shared)} {step.kind}"
        self.registered[step.id] = (step.kind, label)
        if step.kind == "shared":
            self.shared.append(Files(label))
            self.harness.share(step.id, await self.harness.registry(files=self.shared[-1]))
        else:
            self.harness.make(step.id, lambda: self.factory(label), READ if step.kind == "declared" else None)

    def factory(self, label: str) -> FunctionRegistry:
        self.made.append(Files(label))
        return FunctionRegistry({"files": self.made[-1]})

    async def call(self, step: Call) -> None:
        key = None if step.session is None else self.key(step.session)
        result = await run(self.agent(key), f"{step.id}.read")
        if step.id not in self.allowed or step.id not in self.registered:
            assert result.output == f"Toolset not found for {step.id}.read"
            return
        label = self.registered[step.id][1]
        assert (result, result.output) == (ToolResult("c", f"{step.id}.read", label), label)
        if key is not None and self.registered[step.id][0] != "shared":
            self.opened.add((key, label))

    def check(self) -> None:
        """Every executor lists what it must; what no session needs is closed, once, and nothing else is."""
        for key in (None, *map(self.key, SESSIONS)):
            listed = [f"{name}.read" for name in self.allowed if self.lists(name, key)]
            assert list(self.agent(key).catalog) == listed
        labels = {label for _, label in self.registered.values()}
        keys = {self.key(session) for session in SESSIONS}
        needed = [item for item in self.opened if item[0] in keys and item[1] in labels]
        closed = sorted(item.closed for item in self.made)
        assert closed == [0] * len(needed) + [1] * (len(self.made) - len(needed))
        assert [item.closed for item in self.shared] == [0] * len(self.shared)

    def lists(self, name: str, key: str | None) -> bool:
        kind, label = self.registered.get(name, ("undeclared", ""))
        return kind != "undeclared" or (key is not None and (key, label) in self.opened)


async def follow(path: list[Step]) -> None:
    async with Harness() as harness:
        model = Model(harness)
        for step in path:
            await model.take(step)
            await settled()
            model.check()
        await harness.tools.aclose()
        assert [item.closed for item in model.made] == [1] * len(model.made)


@pytest.mark.slow
@pytest.mark.requirement("I4-laws", "C-7-factory-once", "C-7-shared-not-closed", "C-7-allowlist-revoked")
@settings(max_examples=200)
@given(st.lists(steps, max_size=12))
def test_whatever_is_registered_allowed_called_and_ended_agents_see_and_reach_just_their_own(path: list[Step]) -> None:
    asyncio.run(follow(path))
