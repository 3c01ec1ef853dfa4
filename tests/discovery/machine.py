"""Hypothesis plays with the small world."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.discovery.fixtures import service
from tests.discovery.harness import Harness

from toolplug.parts.mcp.discovery.service import Discovery
from toolplug.stores.store import Store

ONE = st.sampled_from([0, 1])
FEW_TURNS = st.integers(0, 8)
MODES = st.sampled_from(["works", "works", "slow", "fails", "hangs", "stubborn"])
TIMES = st.sampled_from([0.05, 0.35, 1.5, 8.0, 16.0, 45.0, 300.0])
OPERATIONS = st.sampled_from(["read", "commit", "keys", "watch"])


class DiscoveryMachine(RuleBasedStateMachine):
    """`make` makes the services; a subclass brings a bug in."""

    make: Callable[[Store], Discovery] = staticmethod(service)

    @initialize(first=MODES, second=MODES)
    def begin(self, first: str, second: str) -> None:
        self.harness = Harness(self.make)
        self.harness.behave(0, first)
        self.harness.behave(1, second)

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        try:
            self.harness.rest()
        finally:
            self.harness.close()

    @rule(which=ONE, slot=ONE, turns=FEW_TURNS)
    def change(self, which: int, slot: int, turns: int) -> None:
        self.harness.change(which, slot)
        self.harness.turns(turns)

    @rule(which=ONE, slot=ONE, turns=FEW_TURNS)
    def hear(self, which: int, slot: int, turns: int) -> None:
        self.harness.hear(which, slot)
        self.harness.turns(turns)

    @rule(which=ONE, slot=ONE, turns=FEW_TURNS)
    def remove(self, which: int, slot: int, turns: int) -> None:
        self.harness.remove(which, slot)
        self.harness.turns(turns)

    @rule(slot=ONE, mode=MODES)
    def behave(self, slot: int, mode: str) -> None:
        self.harness.behave(slot, mode)

    @rule(which=ONE, slot=ONE, turns=FEW_TURNS)
    def ask(self, which: int, slot: int, turns: int) -> None:
        self.harness.ask(which, slot)
        self.harness.turns(turns)

    @rule(which=ONE, slot=ONE, how=st.sampled_from(["due", "keep"]), turns=FEW_TURNS)
    def may_have_changed(self, which: int, slot: int, how: str, turns: int) -> None:
        (self.harness.due if how == "due" else self.harness.keep)(which, slot)
        self.harness.turns(turns)

    @rule(which=ONE, operation=st.sampled_from(["commit", "read", "watch", "all", "none", "none"]))
    def fail(self, which: int, operation: str) -> None:
        self.harness.fail(which, operation)

    @rule(which=ONE, operation=OPERATIONS, before=FEW_TURNS, after=FEW_TURNS)
    def pace(self, which: int, operation: str, before: int, after: int) -> None:
        self.harness.pace(which, operation, before, after)

    @rule(which=ONE, killed=st.booleans())
    def restart(self, which: int, killed: bool) -> None:
        self.harness.restart(which, killed=killed)

    @rule(seconds=TIMES)
    def wait(self, seconds: float) -> None:
        self.harness.wait(seconds)

    @invariant()
    def what_is_shown_is_true(self) -> None:
        if hasattr(self, "harness"):
            self.harness.check()
